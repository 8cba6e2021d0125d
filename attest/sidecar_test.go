package attest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func yes() *bool { b := true; return &b }

func testContract() fleet.Contract {
	return fleet.Contract{EngineVersion: "0.30.0", Connector: "NixlConnector", EnforceHandshakeCompat: yes()}
}

func testDocument() Document {
	return Document{
		Contract: testContract(),
		Sources:  map[string]string{"engine_version": "/x sha256:aa", "connector": "/y", "enforce_handshake_compat": "/z"},
		Launch:   map[string]any{"args": []any{"--block-size", "16"}, "decode_cuda_graph_memory_gb": json.Number("2.0")},
	}
}

// engineServer is an engine's two pages; what they say can be changed.
type engineServer struct {
	*httptest.Server
	mu      sync.Mutex
	version string
	metrics string
	status  int
}

func startEngine(t *testing.T) *engineServer {
	e := &engineServer{version: `{"version":"0.30.0"}`, metrics: "# HELP x\nother 1\nprocess_start_time_seconds 1.764442262e+09\n", status: 200}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.status != 200 {
			w.WriteHeader(e.status)
			return
		}
		switch r.URL.Path {
		case "/version":
			_, _ = io.WriteString(w, e.version)
		case "/metrics":
			_, _ = io.WriteString(w, e.metrics)
		default:
			t.Errorf("the engine was asked for %s", r.URL.Path)
			w.WriteHeader(404)
		}
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *engineServer) set(change func(*engineServer)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

func startSidecar(t *testing.T, e *engineServer, s *Signer) (*Sidecar, *httptest.Server) {
	t.Helper()
	side, err := NewSidecar(context.Background(), testDocument(), HTTPIdentity{Base: e.URL + "/", PID: os.Getpid()}, s)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(side.Handler())
	t.Cleanup(srv.Close)
	return side, srv
}

func get(t *testing.T, url string) (int, []byte) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

func TestContractFingerprintOfTheReference(t *testing.T) {
	if got, err := ContractFingerprint(testContract()); err != nil || got != "b68b596c67d607da" {
		t.Fatalf("fingerprint %s, %v; want b68b596c67d607da", got, err)
	}
}

func TestSidecarAnswersForItsProcessOnly(t *testing.T) {
	e := startEngine(t)
	side, srv := startSidecar(t, e, nil)
	if code, body := get(t, srv.URL+"/health"); code != 200 || string(body) != `{"status":"ok"}` {
		t.Fatalf("health %d %s", code, body)
	}
	code, body := get(t, srv.URL+"/v1/attestation")
	r, err := ParseResponse(body)
	if code != 200 || err != nil || r.Digest != side.Response().Digest || r.LaunchDigest == "" || r.Binding() != r.LaunchDigest {
		t.Fatalf("attestation %d %s: %v", code, body, err)
	}
	for _, want := range []string{`"process_start_time_seconds":1764442262.0`, `"decode_cuda_graph_memory_gb":2.0`, `"kv_role":""`, `"cross_layers_blocks":null`} {
		if !bytes.Contains(body, []byte(want)) {
			t.Errorf("the response lacks %s: %s", want, body)
		}
	}
	e.set(func(e *engineServer) { e.status = 500 })
	if code, body := get(t, srv.URL+"/v1/attestation"); code != 503 {
		t.Fatalf("unreadable engine: %d %s", code, body)
	}
	e.set(func(e *engineServer) { e.status = 200 })
	if code, _ := get(t, srv.URL+"/v1/attestation"); code != 200 {
		t.Fatalf("readable again: %d", code)
	}
	before := e.metrics
	e.set(func(e *engineServer) { e.metrics = "process_start_time_seconds 1764442263\n" })
	if code, _ := get(t, srv.URL+"/v1/attestation"); code != 503 {
		t.Fatalf("restarted engine: %d", code)
	}
	e.set(func(e *engineServer) { e.metrics = before })
	if code, _ := get(t, srv.URL+"/v1/attestation"); code != 503 {
		t.Fatalf("a sidecar came back after its process had changed: %d", code)
	}
}

func TestSidecarRefusesToStart(t *testing.T) {
	e := startEngine(t)
	start := func(d Document) error {
		_, err := NewSidecar(context.Background(), d, HTTPIdentity{Base: e.URL}, nil)
		return err
	}
	e.set(func(e *engineServer) { e.version = `{"version":"0.31.0"}` })
	if err := start(testDocument()); !errors.Is(err, ErrEngineVersion) {
		t.Fatalf("other version: %v", err)
	}
	e.set(func(e *engineServer) { e.version = `{"version":"0.30.0"}` })
	bad := testDocument()
	delete(bad.Sources, "connector")
	if err := start(bad); !errors.Is(err, ErrDocument) {
		t.Fatalf("field without a source: %v", err)
	}
	for name, metrics := range map[string]string{"none": "x 1\n", "zero": startMetric + " 0\n", "infinite": startMetric + " +Inf\n", "longer name": startMetric + "_total 5\n", "no value": startMetric + " \n"} {
		e.set(func(e *engineServer) { e.metrics = metrics })
		if err := start(testDocument()); err == nil {
			t.Errorf("process start %s: accepted", name)
		}
	}
	e.set(func(e *engineServer) { e.metrics = startMetric + `{pid="1"} 5e9` + "\n" })
	if err := start(testDocument()); err != nil {
		t.Errorf("labelled sample: %v", err)
	}
	e.set(func(e *engineServer) { e.version = `{"version":"` + strings.Repeat("x", MaxIdentity) + `"}` })
	if err := start(testDocument()); err == nil {
		t.Error("an answer above its limit was read")
	}
}

func TestStatementRequests(t *testing.T) {
	s, _ := keys()
	e := startEngine(t)
	_, srv := startSidecar(t, e, s)
	post := func(body string) int {
		resp, err := http.Post(srv.URL+"/v1/statement", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	ok := NewNonce()
	for body, want := range map[string]int{
		`{"nonce":"` + ok + `"}`:                         200,
		`{"nonce":"` + strings.ToUpper(ok[:62]) + `AB"}`: 400,
		`{"nonce":"` + ok[:30] + `"}`:                    400,
		`{"nonce":"` + strings.Repeat("ab", 65) + `"}`:   400,
		`{"nonce":"` + ok + `","x":1}`:                   400,
		`{"nonce":"` + ok + `","nonce":"` + ok + `"}`:    400,
		`{"nonce":1}`: 400,
		`x`:           400,
		`{"nonce":"` + strings.Repeat("a", MaxRequest) + `"}`: 413,
	} {
		if got := post(body); got != want {
			t.Errorf("%.60s: %d; want %d", body, got, want)
		}
	}
	e.set(func(e *engineServer) { e.status = 500 })
	if got := post(`{"nonce":"` + ok + `"}`); got != 503 {
		t.Errorf("unreadable engine: %d", got)
	}
	_, unsigned := startSidecar(t, startEngine(t), nil)
	resp, err := http.Post(unsigned.URL+"/v1/statement", "application/json", strings.NewReader(`{"nonce":"`+ok+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 404 {
		t.Errorf("no key: %d", resp.StatusCode)
	}
	if _, err := RequestStatement(context.Background(), nil, unsigned.URL, ok); err == nil {
		t.Error("a refusal was taken as a statement")
	}
}

func TestServeEndsInOrder(t *testing.T) {
	e := startEngine(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	addr := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	cfg := SidecarConfig{Listen: "127.0.0.1:0", Document: testDocument(), Identity: HTTPIdentity{Base: e.URL}, Ready: func(a net.Addr) { addr <- a }}
	go func() { ended <- Serve(ctx, cfg) }()
	url := "http://" + (<-addr).String()
	if code, _ := get(t, url+"/v1/attestation"); code != 200 {
		t.Fatalf("answered %d", code)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	e.Close()
	if err := Serve(context.Background(), cfg); err == nil {
		t.Fatal("served without an engine")
	}
}

func TestStartTicks(t *testing.T) {
	stat := "7 (a) b (c)) S" + strings.Repeat(" 1", 18) + " 4242 9"
	if got, err := startTicks([]byte(stat)); err != nil || got != 4242 {
		t.Fatalf("%d, %v", got, err)
	}
	for _, bad := range []string{"", "7 (x) S 1", "7 (x) Z" + strings.Repeat(" 1", 20)} {
		if _, err := startTicks([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func FuzzParseResponse(f *testing.F) {
	r, err := NewResponse(testDocument(), "0.30.0", 1764442262.25)
	if err != nil {
		f.Fatal(err)
	}
	body, err := r.JSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"schema":null,"attestation_digest":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ParseResponse(raw)
		if err == nil && (r.Digest == "" || r.EngineVersion == "") {
			t.Fatalf("accepted %s", raw)
		}
		if err != nil && !errors.Is(err, ErrUnverified) {
			t.Fatalf("error without a refusal: %v", err)
		}
	})
}

func FuzzEnginePages(f *testing.F) {
	f.Add([]byte(startMetric+"{a=\"}\"} 1e9\n"), []byte(`{"version":"1"}`))
	f.Add([]byte(startMetric+" NaN"), []byte(`{"version":null}`))
	f.Fuzz(func(t *testing.T, metrics, version []byte) {
		if start, err := parseProcessStart(bytes.NewReader(metrics)); err == nil && (!(start > 0) || math.IsInf(start, 0)) {
			t.Fatalf("start %v", start)
		}
		if v, err := parseVersion(version); err == nil && v == "" {
			t.Fatal("empty version")
		}
	})
}
