package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/simulatedtest"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// env is a tunnel to a server of the test and a host with one file; nothing else is scripted.
type env struct {
	gates.Env
	view  gates.View
	addr  string
	lost  chan struct{}
	file  func() ([]byte, error)
	ended map[string][]byte // files of the journal that have ended
	gets  map[string]int
	asked string
	// router is behind the tunnel, where the test has one; handoff answers for the ring.
	router  *standIn
	handoff func(from, to string) (remote.Result, error)
	// secrets are what references resolve to; sent are the variables of the last handoff.
	secrets map[fleet.SecretRef]string
	sent    map[string]fleet.Secret
	opens   int
	silent  atomic.Bool // the host does not say what the trial rests on
}

func (e *env) View() gates.View { return e.view }
func (e *env) Progress(string)  {}
func (e *env) Tunnel(_ context.Context, host, address string) (string, <-chan struct{}, error) {
	if host != "h1" || address != "127.0.0.1:8000" {
		return "", nil, fmt.Errorf("not scripted: tunnel to %s on %s", address, host)
	}
	if e.opens++; e.opens == 2 && e.lost != nil {
		e.lost = make(chan struct{}) // the tunnel that is opened again
	}
	return e.addr, e.lost, nil
}

func (e *env) Host(_ context.Context, id string) (gates.Host, error) {
	if id != "h1" {
		return nil, fmt.Errorf("not scripted: host %s", id)
	}
	return &getter{env: e}, nil
}

type getter struct {
	gates.Host
	env *env
}

func (g *getter) Get(_ context.Context, name string, _ int64) ([]byte, error) {
	if g.env.gets == nil {
		g.env.gets = map[string]int{}
	}
	g.env.gets[path.Base(name)]++
	if b, ok := g.env.ended[path.Base(name)]; ok {
		if b == nil {
			return nil, fs.ErrNotExist
		}
		return b, nil
	}
	g.env.asked = name
	return g.env.file()
}

// Run lists the files of the journal, tells what a trial rests on, and hands over as scripted.
func (g *getter) Run(_ context.Context, c remote.Command) (remote.Result, error) {
	e, f := g.env, g.env.view.Fleet
	answer := func(v any) (remote.Result, error) {
		b, err := json.Marshal(v)
		return remote.Result{Stdout: b}, err
	}
	if slices.Equal(c.Argv, filesArgv(f, "h1")) {
		return answer(e.files())
	}
	if q := rests(f)["h1"]; slices.Equal(c.Argv, restsArgv(f, "h1", q)) && !e.silent.Load() {
		r := Rests{Values: map[string]string{"more": "than asked for"}}
		for _, n := range q.names() {
			r.Values[n] = "v"
		}
		return answer(r)
	}
	for _, p := range ringPairs(f) {
		if slices.Equal(c.Argv, ringArgv(f, p)) && e.handoff != nil {
			e.sent = c.SecretEnv
			return e.handoff(p[0].IID, p[1].IID)
		}
	}
	return remote.Result{}, fmt.Errorf("not scripted: %v", c.Argv)
}

func (e *env) Secret(ref fleet.SecretRef) (fleet.Secret, error) {
	s, ok := e.secrets[ref]
	if !ok {
		return fleet.Secret{}, fmt.Errorf("not scripted: secret %s", ref)
	}
	return fleet.NewSecret(s), nil
}

// files are those of the journal, each with an inode of its own.
func (e *env) files() (out Files) {
	for i, name := range append(slices.Sorted(maps.Keys(e.ended)), written) {
		m := Mark{Device: 1, Inode: uint64(100 + i), Bytes: int64(len(e.ended[name]))}
		if name == written {
			m.Inode = 1
			if e.router != nil {
				m.Bytes = int64(len(e.router.written()))
			} else {
				m.Bytes = 1 << 20
			}
		}
		out.Files = append(out.Files, File{Name: name, Mark: m})
	}
	return out
}

func newEnv(t *testing.T, f fleet.Fleet, evidence map[record.Key]any) *env {
	return &env{view: view(t, f, evidence), lost: make(chan struct{})}
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// serving runs a handler as the router.
func serving(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return l.Addr().String()
}

func askedReady(t *testing.T, e *env, within time.Duration) (Ready, error) {
	t.Helper()
	args, err := json.Marshal(readyArgs{Within: fleet.Duration(within)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Gate{}.Locals()["ready"](limited(t), e, args)
	if err != nil {
		return Ready{}, err
	}
	var r Ready
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r, nil
}

func TestReady(t *testing.T) {
	var asked atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"reason":"warming up"}`))
			return
		}
		_, _ = w.Write([]byte(`{"reason":""}`))
	})
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"ok":1}`)) })
	mux.HandleFunc("/narwhal/state", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`not JSON`)) })
	e := newEnv(t, testFleet(), nil)
	e.addr = serving(t, mux)
	r, err := askedReady(t, e, 10*time.Second)
	if err != nil || !r.Ready || asked.Load() != 3 || string(r.Health) != `{"ok":1}` || string(r.State) != "null" {
		t.Errorf("got %+v, %v after %d looks", r, err, asked.Load())
	}
}

func TestNeverReady(t *testing.T) {
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"a reason": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			_, _ = w.Write([]byte(`{"reason":"no decode engine"}`))
		}, "no decode engine"},
		"no reason":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); _, _ = w.Write([]byte(`<html>`)) }, "answered 500"},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`ok`)) }, "answered 200"},
		"no content": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "answered 204"},
	} {
		e := newEnv(t, testFleet(), nil)
		e.addr = serving(t, c.h)
		if r, err := askedReady(t, e, 0); err != nil || r.Ready || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	e := newEnv(t, testFleet(), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.addr = l.Addr().String()
	_ = l.Close()
	if r, err := askedReady(t, e, 0); err != nil || r.Ready || r.Reason != "the router does not answer" {
		t.Errorf("nobody: %+v, %v", r, err)
	}
}

// engineAsRouter is a simulated engine, which takes the trial's requests as a router does.
func engineAsRouter(t *testing.T) *simulated.Server {
	t.Helper()
	return simulatedtest.Start(t, simulated.Config{Model: "tiny", RequestIDHeaders: true, Simulated: fleet.Simulated{PrefillA: 0.001, DecodeD: 0.001}}, nil)
}

func TestTrialNeedsAReadyRouter(t *testing.T) {
	e := newEnv(t, testFleet(), map[record.Key]any{readyKey: Ready{Reason: "no decode engine"}})
	if _, err := (Gate{}).Locals()["trial"](limited(t), e, nil); err == nil || !strings.Contains(err.Error(), "no decode engine") {
		t.Errorf("got %v", err)
	}
	e = newEnv(t, testFleet(), nil)
	if _, err := (Gate{}).Locals()["trial"](limited(t), e, nil); err == nil {
		t.Error("a trial without the router's readiness")
	}
}

// journalOf is a router's journal with these rows.
func journalOf(t *testing.T, rows ...journal.Row) []byte {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"meta":{"schema":%q,"schema_version":%d}}`+"\n", journal.Schema, journal.Version)
	for _, r := range rows {
		r.Head = journal.Head{Schema: journal.Schema, Version: journal.Version, Run: "x"}
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.Bytes()
}

// TestJournal waits for rows that are still on their way, and takes the trial's alone.
func TestJournal(t *testing.T) {
	client, router := rows("tag0", 3)
	_, otherRouter := rows("tag01", 1) // another run's tag that begins alike
	f := testFleet()
	e := newEnv(t, f, map[record.Key]any{trialKey: Trial{Points: []Point{{Tag: "tag0", Rows: client, Begin: Mark{Device: 1, Inode: 1}}}}})
	looks := 0
	e.file = func() ([]byte, error) {
		looks++
		return journalOf(t, append(slices.Clone(router[:min(looks, 3)]), otherRouter[0], journal.Row{RID: "nobody", Terminal: journal.Completed})...), nil
	}
	b, err := Gate{}.Locals()["journal"](limited(t), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	var j Journal
	if err := json.Unmarshal(b, &j); err != nil {
		t.Fatal(err)
	}
	if len(j.Rows) != 3 || looks != 3 || len(j.Windows) != 1 || len(j.Windows[0].Others) != 2 || j.Windows[0].Trouble != "" || e.asked != "/opt/n/router/journal.jsonl" || len(j.Tags) != 1 {
		t.Errorf("%d rows after %d looks at %s", len(j.Rows), looks, e.asked)
	}
}

// TestJournalOverItsFiles reads files that ended during the trial too, each once, and passes
// over one that was pruned meanwhile.
func TestJournalOverItsFiles(t *testing.T) {
	client, router := rows("tag0", 4)
	e := newEnv(t, testFleet(), map[record.Key]any{trialKey: Trial{Points: []Point{{Tag: "tag0", Rows: client, Begin: Mark{Device: 1, Inode: 101}}}}})
	e.ended = map[string][]byte{"journal-20260101T000001.000000Z.jsonl": nil, "journal-20260101T000002.000000Z.jsonl": journalOf(t, router[:2]...), "journal-20260101T000003.000000Z.jsonl": journalOf(t, router[2])}
	looks := 0
	e.file = func() ([]byte, error) {
		looks++
		return journalOf(t, router[3:min(3+looks/2, 4)]...), nil
	}
	b, err := Gate{}.Locals()["journal"](limited(t), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	var j Journal
	if err := json.Unmarshal(b, &j); err != nil {
		t.Fatal(err)
	}
	if len(j.Rows) != 4 || j.Rows[0].RID != router[0].RID || j.Rows[3].RID != router[3].RID || e.gets["journal-20260101T000002.000000Z.jsonl"] != 1 {
		t.Errorf("%d rows, reads %v", len(j.Rows), e.gets)
	}
}

// TestJournalFiles lists what runtime/journal wrote, in order.
func TestJournalFiles(t *testing.T) {
	dir := t.TempDir()
	ask := func() (Files, error) { return journalFiles(t.Context(), FilesRequest{Path: dir + "/journal.jsonl"}) }
	if _, err := ask(); err == nil {
		t.Error("no journal has files")
	}
	want := []string{"journal-20260101T000001.000000Z.jsonl", "journal-20260102T000001.000000Z.jsonl", "journal.jsonl"}
	for _, name := range append([]string{"journal-old.jsonl", "profiles.json"}, want...) {
		if err := os.WriteFile(path.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ask()
	var names []string
	inodes := map[uint64]bool{}
	for _, f := range got.Files {
		names, inodes[f.Inode] = append(names, f.Name), true
	}
	if err != nil || !slices.Equal(names, want) || len(inodes) != 3 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestJournalThatCannotBeRead(t *testing.T) {
	client, _ := rows("tag0", 1)
	for name, c := range map[string]struct {
		evidence map[record.Key]any
		file     func() ([]byte, error)
	}{
		"no trial": {nil, nil},
		"no file":  {map[record.Key]any{trialKey: Trial{Points: []Point{{Tag: "tag0", Rows: client, Begin: Mark{Device: 1, Inode: 1}}}}}, func() ([]byte, error) { return nil, errors.New("no such file") }},
	} {
		e := newEnv(t, testFleet(), c.evidence)
		e.file = c.file
		if _, err := (Gate{}).Locals()["journal"](limited(t), e, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFacts(t *testing.T) {
	b, err := json.Marshal(gates.Launched{Name: "router", ID: "b:1:2", Launch: "l"})
	if err != nil {
		t.Fatal(err)
	}
	if got := (Gate{}).Facts(routerKey, b); got["proc/router/id"] != "b:1:2" || got["proc/router/launch"] != "l" {
		t.Errorf("facts %v", got)
	}
	if (Gate{}).Facts(readyKey, b) != nil || (Gate{}).Facts(routerKey, []byte("{}")) != nil {
		t.Error("facts of something else")
	}
}
