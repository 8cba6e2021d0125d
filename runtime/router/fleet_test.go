package router

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

const modelName = "tern-tiny"

// quick is an engine whose latencies are small beside a test's patience.
func quick() fleet.Simulated {
	return fleet.Simulated{Seed: 1, PrefillA: 0.002, PrefillB: 2e-6, DecodeD: 0.002, DecodeE: 1e-5, TransferS: 0.001, TransferGbps: 10,
		BlockSize: 16, Blocks: 2049, MaxModelLen: 8192, MaxNumSeqs: 64, MaxBatched: 8192, LeaseS: 20, EngineVersion: "0.32.0", PrefixCaching: true}
}

func curveOf(s fleet.Simulated) profile.Curve {
	return profile.Curve{A: s.PrefillC, B: max(s.PrefillB, 1e-7), C: s.PrefillA, Slope: s.DecodeF, RequestSlope: s.DecodeE, Intercept: s.DecodeD,
		MinRequests: 1, MaxRequests: s.MaxNumSeqs, MinKVTokens: 1, MaxKVTokens: s.Blocks * s.BlockSize}
}

// settingsFor is an effective fleet document with test-sized times.
func fleetDoc() fleet.Fleet {
	return fleet.Fleet{Schema: fleet.Schema, SchemaVersion: fleet.Version, Model: modelName, SLO: fleet.SLO{TTFTS: 2, TPOTS: 0.1},
		Controller: fleet.Controller{MonitorIntervalS: 0.05, MonitorFailureLimit: 5, MinPrefill: 1, MinDecode: 1, FlipHistory: 100,
			Thresholds: fleet.Thresholds{Expand: 1, Shrink: 0.5, CooldownS: 10, SustainedIntervals: 3},
			Reactive: fleet.Reactive{WindowS: 120, Confirmations: 2, Utilization: 0.8, MinArrivals: 10, DemandFloor: 0.5, MovementMargin: 0.05, StepS: 5, EvidenceSpanS: 60,
				DecodeCorrectionMin: 0.5, DecodeCorrectionMax: 2, DecodeCorrectionAlpha: 0.2, DecodeCorrectionMinSamples: 8}},
		Serving: fleet.Serving{Admission: "predictive", MaxConnections: 64, RequestTimeoutS: 20, PrefillTimeoutS: 10, GracefulTimeoutS: 5, MaxAttempts: 2,
			RetryBaseS: 0.01, RetryCapS: 0.02, RetryBudget: 10, RetryReplenish: 0.1, MaxRequestBytes: 1 << 20, MaxResponseBytes: 1 << 22},
		Engine: fleet.Backend{Backend: "vllm", Tokenize: true, CharsPerToken: 3.8, TokenizeTimeoutS: 2, PoolTimeoutS: 5, ConnectTimeoutS: 2, HealthTimeoutS: 2,
			DecodeReadTimeoutS: 5, FirstTokenTimeoutS: 5},
		Recovery: fleet.Recovery{EjectAfter: 3, ReadmitEvery: 2, LivenessEvery: 4, LivenessMisses: 2, EngineRestartPolicy: "individual"}}
}

// bench is a router over simulated engines on loopback.
type testbed struct {
	t       *testing.T
	engines []*simulated.Server
	router  *Router
	url     string
	journal string
	stopped bool
}

type tweak func(*Config)

func startBed(t *testing.T, prefill, decode int, sim fleet.Simulated, tweaks ...tweak) *testbed {
	t.Helper()
	b := &testbed{t: t, journal: filepath.Join(t.TempDir(), "journal.jsonl")}
	cfg := Config{Fleet: fleetDoc(), Listen: "127.0.0.1:0", JournalPath: b.journal, PrefixAffinity: true, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var rows []profile.Row
	for i := range prefill + decode {
		e := b.startEngine(ctx, sim, "")
		b.engines = append(b.engines, e)
		entry := fleet.Engine{IID: fmt.Sprintf("p%d", i), URL: e.URL(), Role: fleet.RolePrefill}
		if i >= prefill {
			entry.IID, entry.Role = fmt.Sprintf("d%d", i-prefill), fleet.RoleDecode
		}
		cfg.Fleet.Engines = append(cfg.Fleet.Engines, entry)
		rows = append(rows, profile.NewRow(entry.IID, digestOf(ctx, t, e.URL()), curveOf(sim), profile.Report{}))
	}
	cfg.Profiles = profile.NewStore(nil, rows...)
	for _, tw := range tweaks {
		tw(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	b.router, b.url = r, "http://"+r.Addr()
	t.Cleanup(b.stop)
	return b
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (b *testbed) startEngine(ctx context.Context, sim fleet.Simulated, listen string) *simulated.Server {
	b.t.Helper()
	e, err := simulated.New(simulated.Config{Simulated: sim, Model: modelName, Listen: listen, SideChannel: "127.0.0.1:0"})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := e.Start(ctx); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(e.Stop)
	return e
}

func digestOf(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	c, err := engine.NewClient(url, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id, err := c.Identity(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return IdentityDigest(id)
}

func (b *testbed) stop() {
	if b.stopped {
		return
	}
	b.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := b.router.Stop(ctx); err != nil {
		b.t.Errorf("stop: %v", err)
	}
}

// rows stops the router and returns its journal.
func (b *testbed) rows() []journal.Row {
	b.t.Helper()
	b.stop()
	f, err := os.Open(b.journal)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	rows, st, err := journal.ReadRows(f)
	if err != nil || st.Bad > 0 || st.Torn {
		b.t.Fatalf("journal: %+v, %v", st, err)
	}
	return rows
}

func (b *testbed) engine(iid string) *simulated.Server {
	for i, e := range b.router.set.Fleet.Engines {
		if e.IID == iid {
			return b.engines[i]
		}
	}
	b.t.Fatalf("no engine %s", iid)
	return nil
}

func (b *testbed) inject(iid string, in simulated.Injection) {
	b.t.Helper()
	if err := b.engine(iid).Inject(in); err != nil {
		b.t.Fatal(err)
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func post(t *testing.T, ctx context.Context, url string, body any) answer {
	t.Helper()
	raw, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		raw = string(b)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return send(t, req)
}

func send(t *testing.T, req *http.Request) answer {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(all)}
}

func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (b *testbed) complete(body any) answer {
	return post(b.t, limit(b.t), b.url+"/v1/completions", body)
}

func (b *testbed) get(path string, v any) int {
	b.t.Helper()
	resp, err := http.Get(b.url + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	if v != nil {
		if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
			b.t.Fatal(err)
		}
	}
	return resp.StatusCode
}

func (b *testbed) state() (s state) {
	b.get("/narwhal/state", &s)
	return s
}

// eventually polls a condition that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(15 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("never: %s", what)
		}
	}
}

// events cuts a stream's body into payloads.
func events(t *testing.T, body string) (out []string) {
	t.Helper()
	sc := bufio.NewScanner(strings.NewReader(body))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if v, ok := bytes.CutPrefix(sc.Bytes(), []byte("data: ")); ok {
			out = append(out, string(v))
		}
	}
	return out
}

func text(t *testing.T, body string) (s string) {
	t.Helper()
	var c struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
			Delta   struct{ Content string }
		}
	}
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, ch := range c.Choices {
		s += ch.Text + ch.Message.Content + ch.Delta.Content
	}
	return s
}
