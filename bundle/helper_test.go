package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

var now = time.Date(2026, 11, 29, 18, 51, 2, 5, time.UTC)

// testFleet has an engine on each of two hosts, and the router on the first.
func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Schema: fleet.Schema, SchemaVersion: fleet.Version, Model: "tern-7b",
		Engines: []fleet.Engine{
			{IID: "p0", URL: "http://192.0.2.11:8100", AttestationURL: "http://192.0.2.11:8110/v1/attestation", Role: fleet.RolePrefill},
			{IID: "d0", URL: "http://192.0.2.12:8100/", Role: fleet.RoleDecode},
		},
		Deploy: &fleet.Deploy{
			Name:    "tern",
			Hosts:   map[string]fleet.Host{"alpha-1": {Root: "/opt/narwhal"}, "alpha-2": {Root: "/srv/narwhal"}, "gate": {}},
			Engines: map[string]fleet.Place{"p0": {Host: "alpha-1"}, "d0": {Host: "alpha-2"}},
			Router:  fleet.Router{Host: "alpha-1", Listen: "0.0.0.0:8000"},
		},
	}
}

// answer is what a scripted host says.
type answer struct {
	data []byte
	err  error
}

// scripted is the fake world of a test. What is not scripted fails the test.
type scripted struct {
	t     *testing.T
	fleet fleet.Fleet
	mu    sync.Mutex
	files map[string]answer // host:path
	runs  map[string]answer // host:first word of argv and last, or host:script
	urls  map[string]answer // host:URL
	open  map[string]error
	got   []string // paths that were asked for
	ran   []string
	hang  map[string]bool
}

type fakeHost struct {
	w  *scripted
	id string
}

func (w *scripted) host(_ context.Context, id string) (Host, error) {
	if err := w.open[id]; err != nil {
		return nil, err
	}
	if _, ok := w.fleet.Deploy.Hosts[id]; !ok {
		w.t.Errorf("host %q was opened", id)
	}
	return &fakeHost{w, id}, nil
}

func (h *fakeHost) Get(ctx context.Context, path string, limit int64) ([]byte, error) {
	if h.w.hang[h.id] {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.got = append(h.w.got, h.id+":"+path)
	a, ok := h.w.files[h.id+":"+path]
	if !ok {
		h.w.t.Errorf("get of %s:%s is not scripted", h.id, path)
		return nil, errors.New("not scripted")
	}
	if a.err == nil && int64(len(a.data)) > limit {
		return nil, &remote.TooLargeError{Host: h.id, Path: path, Max: limit}
	}
	return a.data, a.err
}

func (h *fakeHost) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	permitted := slices.ContainsFunc(Scripts(h.w.fleet, h.id), func(p remote.Command) bool { return reflect.DeepEqual(p, c) })
	if !permitted {
		h.w.t.Errorf("command is none of Scripts: %v %s", c.Argv, c.Script)
	}
	if h.w.hang[h.id] {
		<-ctx.Done()
		return remote.Result{}, context.Cause(ctx)
	}
	key := h.id + ":script"
	if len(c.Argv) > 0 {
		key = h.id + ":" + c.Argv[0] + " " + c.Argv[len(c.Argv)-1]
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.ran = append(h.w.ran, key)
	a, ok := h.w.runs[key]
	if !ok {
		h.w.t.Errorf("run of %s is not scripted", key)
	}
	return remote.Result{Stdout: a.data}, a.err
}

func (w *scripted) http(ctx context.Context, host, url string) ([]byte, error) {
	if w.hang[host] {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	a, ok := w.urls[host+":"+url]
	if !ok {
		w.t.Errorf("get of %s from %s is not scripted", url, host)
		return nil, errors.New("not scripted")
	}
	return a.data, a.err
}

// healthy scripts a fleet where everything answers.
func healthy(t *testing.T) *scripted {
	w := &scripted{t: t, fleet: testFleet(), files: map[string]answer{}, runs: map[string]answer{}, urls: map[string]answer{}, open: map[string]error{}, hang: map[string]bool{}}
	file := func(host string, paths ...string) {
		root := w.fleet.Deploy.Hosts[host].Root
		list := "== files\n"
		for _, p := range paths {
			w.files[host+":"+root+"/"+p] = answer{data: fmt.Appendf(nil, "{\"file\": %q}\n", p)}
			list += p + "\n"
		}
		w.runs[host+":script"] = answer{data: []byte(list + "== uname -a\nLinux " + host + "\n")}
	}
	file("alpha-1", "etc/host.json", "run/engine-p0.json", "run/engine-p0.log", "run/sidecar-p0.json", "run/sidecar-p0.log", "run/router.json", "run/router.log",
		"attest/p0.json", "router/fleet.json", "router/journal.jsonl")
	file("alpha-2", "etc/host.json", "run/engine-d0.json", "run/engine-d0.log")
	for _, u := range []string{"alpha-1:http://192.0.2.11:8100", "alpha-2:http://192.0.2.12:8100"} {
		w.urls[u+"/version"] = answer{data: []byte(`{"version":"0.9"}`)}
		w.urls[u+"/v1/models"] = answer{data: []byte(`{"data":[{"id":"tern-7b"}]}`)}
		w.urls[u+"/metrics"] = answer{data: []byte("vllm:prompt_tokens_total 5\n")}
	}
	for _, p := range []string{"/health", "/ready", "/narwhal/state", "/metrics"} {
		w.urls["alpha-1:http://127.0.0.1:8000"+p] = answer{data: []byte(`{"path":"` + p + `"}`)}
	}
	return w
}

func (w *scripted) source() Source {
	return Source{Fleet: w.fleet, Host: w.host, HTTP: w.http, Now: func() time.Time { return now }, Key: []byte("test"), Tool: "0.1.0"}
}

func collect(t *testing.T, src Source) (Summary, []byte) {
	t.Helper()
	var b bytes.Buffer
	sum, err := Collect(t.Context(), src, &b)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Bytes != int64(b.Len()) || sum.SHA256 != digestOf(b.Bytes()) {
		t.Errorf("the summary describes another archive: %+v", sum)
	}
	return sum, b.Bytes()
}

func reader(t *testing.T, archive []byte) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func verified(t *testing.T, archive []byte) *Reader {
	t.Helper()
	r := reader(t, archive)
	problems, err := r.Verify()
	if err != nil || len(problems) > 0 {
		t.Fatalf("the bundle does not verify: %v %v", problems, err)
	}
	return r
}

func unpacked(t *testing.T, archive []byte) []byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func text(t *testing.T, r *Reader, path string) string {
	t.Helper()
	b, err := r.File(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func missingOf(s Summary) map[string]string {
	out := map[string]string{}
	for _, m := range s.Missing {
		out[m.Path] = m.Why
	}
	return out
}

// packed builds an archive of any shape.
func packed(t *testing.T, m *Manifest, files ...packedFile) []byte {
	t.Helper()
	var b bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	tw := tar.NewWriter(zip)
	put := func(h *tar.Header, body []byte) {
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if m != nil {
		head, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		put(header(ManifestFile, int64(len(head))), head)
	}
	for _, f := range files {
		h := header(f.path, int64(len(f.body)))
		if f.change != nil {
			f.change(h)
		}
		put(h, []byte(f.body))
	}
	if err := errors.Join(tw.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type packedFile struct {
	path, body string
	change     func(*tar.Header)
}

func manifestOf(files ...packedFile) *Manifest {
	m := &Manifest{Schema: Schema, SchemaVersion: Version, Hosts: []string{}, Missing: []Missing{}}
	for _, f := range files {
		m.Entries = append(m.Entries, Entry{Path: f.path, Bytes: int64(len(f.body)), SHA256: digestOf([]byte(f.body))})
	}
	return m
}

// testRun makes a record with evidence, a plan, findings, a seal and a secret-free history.
func testRun(t *testing.T, more ...func(*record.Run)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "20261129T185102Z-0a0b0c")
	doc, err := json.MarshalIndent(testFleet(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.Create(dir, record.Header{Run: filepath.Base(dir), FleetName: "tern", Fleet: doc, Operator: "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"},
		record.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	must := func(_ record.Event, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.SetPlan("sha256:aa", 1, []byte(`{"steps":[{"id":"C/launch/p0","secrets":{"HF_TOKEN":"env:HF_TOKEN"}}]}`)))
	must(r.Append(record.KindStarted, "A", "", "", nil))
	ref, err := r.Store("application/json", []byte(`{"facts":"of alpha-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	must(r.Append(record.KindIntent, "A", "A/look", "alpha-1", record.Intent{Effect: record.EffectMutate, Argv: []string{"narwhal", "attest", "serve", "--key", "/opt/narwhal/etc/sidecar.key"}}))
	must(r.Append(record.KindOutcome, "A", "A/look", "alpha-1", record.Outcome{Status: record.StatusOK}))
	must(r.Append(record.KindEvidence, "A", "A/look", "alpha-1", record.Evidence{Key: record.NewKey("A", "host", "alpha-1"), Ref: ref}))
	must(r.Append(record.KindVerdict, "A", "", "", record.Verdict{State: record.VerdictPassed}))
	seq, digest := r.Head()
	must(r.Seal("A", seq, digest, []byte(`{"dsseEnvelope":{"payload":"eyJhIjoxfQ==","signatures":[{"keyid":"x","sig":"MEUC"}]}}`)))
	must(r.Append(record.KindVerdict, "D", "", "", record.Verdict{State: record.VerdictFailed, Findings: []record.Finding{
		{Code: "edge-slow", Host: "alpha-1", Want: "8.0 Gbit/s", Got: "3.1 Gbit/s <script>alert(1)</script>", Hint: "check the link"}}}))
	for _, f := range more {
		f(r)
	}
	return dir
}

func keysOf[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

var errGone = fmt.Errorf("get: %w", fs.ErrNotExist)
