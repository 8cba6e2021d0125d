package router

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// shared gives a configuration its own access to one lease file and a state file of its own.
func shared(t *testing.T, dir, id string) tweak {
	return func(c *Config) {
		f, err := lease.NewFile(lease.FileOptions{Path: filepath.Join(dir, "lease.json"), Holder: lease.NewHolder(id), TTL: 2 * time.Second, Margin: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		c.HA = HA{Lease: f, Renew: 100 * time.Millisecond, StatePath: filepath.Join(dir, id+".json")}
	}
}

// second starts another router of the same fleet.
func (b *testbed) second(tweaks ...tweak) *testbed {
	b.t.Helper()
	cfg := b.router.set.Config
	cfg.Logger = slog.New(slog.NewTextHandler(testWriter{b.t}, nil))
	cfg.JournalPath = filepath.Join(b.t.TempDir(), "second.jsonl")
	for _, tw := range tweaks {
		tw(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := r.Start(limit(b.t)); err != nil {
		b.t.Fatal(err)
	}
	s := &testbed{t: b.t, engines: b.engines, router: r, url: "http://" + r.Addr(), journal: cfg.JournalPath}
	b.t.Cleanup(s.stop)
	return s
}

func waitsFor(url string) tweak {
	return func(c *Config) {
		c.HA.Standby = standby.Options{Primary: url, Interval: 50 * time.Millisecond, Misses: 4, MaxAge: 30 * time.Second}
	}
}

type readiness struct {
	Status  string
	Control bool `json:"control_ready"`
	Epoch   int64
	Holder  string
	Reason  string
}

// A planned handover: the standby serves while the old router finishes its stream, and
// counters, roles and orders go along.
func TestPlannedHandover(t *testing.T) {
	dir := t.TempDir()
	slow := quick()
	slow.DecodeD = 0.02
	a := startBed(t, 1, 2, slow, shared(t, dir, "a"), func(c *Config) { c.HTTP.LameDuck = 300 * time.Millisecond })
	s := a.second(shared(t, dir, "s"), waitsFor(a.url))
	var r readiness
	if s.get("/ready", &r) != 503 || r.Reason != "shadowing" || r.Control {
		t.Errorf("standby: %+v", r)
	}
	if x := s.complete(body(false, 2)); x.status != 503 || !strings.Contains(x.body, `"code":"standby"`) {
		t.Errorf("standby served: %d %s", x.status, x.body)
	}
	for range 3 {
		if x := a.complete(body(false, 2)); x.status != 200 {
			t.Fatalf("%d %s", x.status, x.body)
		}
	}
	if x := post(t, limit(t), a.url+"/narwhal/lifecycle/drain", `{"engines":["d1"]}`); x.status != 200 {
		t.Fatalf("%d %s", x.status, x.body)
	}
	eventually(t, "the standby has the drain", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "s.json"))
		return strings.Contains(string(b), `"state":"drained"`)
	})
	stream := make(chan answer, 1)
	go func() { stream <- a.complete(body(true, 60)) }()
	eventually(t, "the stream runs", func() bool { return a.state().Resident["d0"]["decode"] > 0 })
	stopped := make(chan struct{})
	go func() { a.stop(); close(stopped) }()
	eventually(t, "the standby serves", func() bool { return s.get("/ready", nil) == 200 })
	select {
	case <-stopped:
		t.Error("the old router ended before its stream")
	default:
	}
	if x := s.complete(body(false, 2)); x.status != 200 {
		t.Errorf("%d %s", x.status, x.body)
	}
	if x := <-stream; x.status != 200 || strings.Count(x.body, "[DONE]") != 1 {
		t.Errorf("the old stream: %d %.200s", x.status, x.body)
	}
	<-stopped
	st := s.state()
	if s.get("/ready", &r); r.Epoch != 2 || st.Served < 4 || len(st.Draining) != 1 || st.Draining[0] != "d1" {
		t.Errorf("after: %+v, served %d, draining %v", r, st.Served, st.Draining)
	}
}

// Routers that were fenced serve again when nobody has had the lease for a while: one that found
// it taken at its start, and one that lost it. Never two at once.
func TestFencedRoutersTakeALeaseThatNobodyWants(t *testing.T) {
	dir := t.TempDir()
	quickly := func(c *Config) { c.HA.Renew = 30 * time.Millisecond }
	a := startBed(t, 1, 1, quick(), shared(t, dir, "a"), quickly)
	s := a.second(shared(t, dir, "s"), quickly)
	var r readiness
	if s.get("/ready", &r) != 503 || r.Reason != standby.BlockHeld {
		t.Fatalf("%+v", r)
	}
	// The first one stops renewing, as after a freeze, and lets go.
	a.router.own.do(func() { a.router.own.keeper.Stop(errors.New("frozen")) })
	eventually(t, "the first router is fenced", func() bool { return a.get("/ready", &r) == 503 })
	eventually(t, "one of them serves", func() bool { return a.get("/ready", nil) == 200 || s.get("/ready", nil) == 200 })
	serves, waits := a, s
	if s.get("/ready", nil) == 200 {
		serves, waits = s, a
	}
	if waits.get("/ready", &r) != 503 {
		t.Fatalf("both serve: %+v", r)
	}
	if x := serves.complete(body(false, 2)); x.status != 200 {
		t.Errorf("%d %s", x.status, x.body)
	}
	serves.get("/ready", &r)
	if r.Epoch != 2 {
		t.Errorf("epoch %d", r.Epoch)
	}
	serves.stop()
	eventually(t, "the other one serves", func() bool { return waits.get("/ready", &r) == 200 && r.Epoch == 3 })
}

// All files of the lease are removed under a living pair: the first router makes them anew, and
// nobody takes over. Rubbish in the document keeps nobody from following a dead holder.
func TestLeaseFilesAreSpoilt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lease.json")
	a := startBed(t, 1, 1, quick(), shared(t, dir, "a"))
	s := a.second(shared(t, dir, "s"), waitsFor(a.url))
	follows := func(spoilt string) {
		t.Helper()
		eventually(t, spoilt+": the standby has seen the lease", func() bool {
			d, err := a.router.set.HA.Lease.Look(t.Context())
			var r readiness
			s.get("/ready", &r)
			return err == nil && d.Epoch == 1 && !d.Expired(time.Now()) && r.Reason != standby.BlockNoFresh && r.Reason != standby.BlockHeld
		})
		if x := a.complete(body(false, 2)); x.status != 200 {
			t.Errorf("%s: %d %s", spoilt, x.status, x.body)
		}
	}
	follows("at the start")
	for range 3 {
		for _, p := range lease.Paths(path) {
			if err := os.Remove(p); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the lease is there again", func() bool { _, err := os.Stat(path + ".alive"); return err == nil })
		follows("removed")
	}
	a.router.own.do(func() { a.router.own.keeper.Stop(errors.New("frozen")) })
	a.router.set.HA.Lease.(*lease.File).Close() // as at a process's end
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	var r readiness
	eventually(t, "the standby serves", func() bool { return s.get("/ready", &r) == 200 })
	if r.Epoch != 2 {
		t.Errorf("epoch %d", r.Epoch)
	}
}

// Two routers with one lease: the second one does not admit while the first has it.
func TestLeaseFences(t *testing.T) {
	dir := t.TempDir()
	a := startBed(t, 1, 1, quick(), shared(t, dir, "a"))
	s := a.second(shared(t, dir, "s"))
	var r readiness
	if s.get("/ready", &r) != 503 || r.Reason != standby.BlockHeld || r.Control {
		t.Errorf("%+v", r)
	}
	var h struct{ Status string }
	if s.get("/health", &h); h.Status != "fenced" {
		t.Errorf("health %+v", h)
	}
	if x := s.complete(body(false, 2)); x.status != 503 {
		t.Errorf("%d %s", x.status, x.body)
	}
	if x := a.complete(body(false, 2)); x.status != 200 {
		t.Errorf("%d %s", x.status, x.body)
	}
	// A router whose renewals fail stops admitting before the lease runs out.
	path := filepath.Join(dir, "lease.json")
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first router is fenced", func() bool { return a.get("/ready", &r) == 503 && r.Reason == standby.BlockRenewal })
	if x := a.complete(body(false, 2)); x.status != 503 {
		t.Errorf("%d %s", x.status, x.body)
	}
}

// A router whose monitoring breaks for good stops renewing its lease, so that its standby may
// serve.
func TestRow20DegradedRouterGivesWay(t *testing.T) {
	dir := t.TempDir()
	a := startBed(t, 1, 1, quick(), shared(t, dir, "a"))
	s := a.second(shared(t, dir, "s"), waitsFor(a.url))
	eventually(t, "the standby knows the fleet", func() bool {
		_, err := os.Stat(filepath.Join(dir, "s.json"))
		return err == nil
	})
	o := a.router.own
	o.do(func() {
		for range a.router.set.Fleet.Controller.MonitorFailureLimit {
			failed := ""
			o.stage("controller", &failed, func() { panic("a mistake") })
			o.degrade(failed)
		}
	})
	var r readiness
	eventually(t, "the standby serves", func() bool { return s.get("/ready", &r) == 200 && r.Epoch == 2 })
	if a.get("/ready", &r) != 503 || r.Control {
		t.Errorf("the degraded one: %+v", r)
	}
	if x := s.complete(body(false, 2)); x.status != 200 {
		t.Errorf("%d %s", x.status, x.body)
	}
}

func TestResumeRestoresCounters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	keep := func(c *Config) { c.HA.StatePath, c.HA.Resume = path, true }
	a := startBed(t, 1, 1, quick(), keep)
	for range 3 {
		if x := a.complete(body(false, 2)); x.status != 200 {
			t.Fatalf("%d %s", x.status, x.body)
		}
	}
	eventually(t, "the state is written", func() bool {
		b, _ := os.ReadFile(path)
		return strings.Contains(string(b), `"served":3`)
	})
	s := a.second(keep)
	if st := s.state(); st.Served != 3 || st.Offered != 3 {
		t.Errorf("served %d, offered %d", st.Served, st.Offered)
	}
	s.stop()
	a.stop()
	if err := os.WriteFile(path, []byte(`{"schema":"narwhal.handoff","schema_version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := New(a.router.set.Config)
	if err != nil {
		t.Fatal(err)
	}
	r.set.JournalPath = ""
	if err := r.Start(limit(t)); !errors.Is(err, ErrResume) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a state of another version: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s := a.second(keep); s.get("/ready", nil) != 200 {
		t.Error("an empty state is no first start")
	}
}

// A state file that cannot be written is told of where that begins and where it ends.
func TestStateFailuresAreLoggedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var log strings.Builder
	r := offline(t, 1, 1)
	r.set.Logger, r.set.HA.StatePath = slog.New(slog.NewTextHandler(&log, nil)), filepath.Join(dir, "state.json")
	store := func(fails bool) {
		t.Helper()
		if err := r.Store(standby.NewDocument(), time.Now()); (err != nil) != fails {
			t.Fatal(err)
		}
	}
	store(true)
	store(true)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store(false)
	store(false)
	if got := log.String(); strings.Count(got, "\n") != 2 || strings.Count(got, "level=ERROR") != 1 || strings.Count(got, "written again") != 1 {
		t.Error(got)
	}
}

func TestHandoffDocumentIsServed(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	resp, err := http.Get(b.url + "/narwhal/handoff")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var raw json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
		t.Fatal(err)
	}
	if d, err := standby.Decode(raw); err != nil || d.Roles["p0"] != "prefill" || d.Epoch != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}
