package router

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

func readEvents(t *testing.T, path string, f func(journal.Event)) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := journal.Read(file, func(l journal.Line) error {
		if l.Event != nil {
			f(*l.Event)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestHoldStopsAdmissionAndReadmitOpensIt(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/drain", `{"wave":true}`); a.status != 200 || !strings.Contains(a.body, `"active":true,"ready_to_stop":true`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if b.get("/ready", nil) != 503 {
		t.Error("ready during a hold")
	}
	a := b.complete(body(false, 4))
	if a.status != 503 || !strings.Contains(a.body, `{"error":{"message":"Router is not ready","type":"standby","code":"standby"}}`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	var h map[string]any
	if b.get("/health", &h); h["status"] != "maintenance" {
		t.Errorf("health %v", h)
	}
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/readmit", `{"wave":true}`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := b.complete(body(false, 4)); a.status != 200 || b.get("/ready", nil) != 200 {
		t.Errorf("after the hold: %d %s", a.status, a.body)
	}
	rows := b.rows()
	if len(rows) != 2 || !rows[0].Rejected || !strings.HasPrefix(rows[0].ReadinessReason, "whole-wave drain ") {
		t.Errorf("rows %+v", rows)
	}
}

func TestDrainOfOneEngine(t *testing.T) {
	b := startBed(t, 1, 2, quick())
	for _, c := range []struct {
		body   string
		status int
	}{{`{"engines":["d0","d1"]}`, 409}, {`{"engines":["x"]}`, 409}, {`{"engines":[]}`, 409}, {`{"engines":["d0"],"deadline_s":-1}`, 409}, {`{"engines":3}`, 422}, {`{"engines":["d0"]}`, 200}, {`{"engines":["d0"]}`, 200}} {
		if a := post(t, limit(t), b.url+"/narwhal/lifecycle/drain", c.body); a.status != c.status {
			t.Errorf("%s: %d %s", c.body, a.status, a.body)
		}
	}
	if s := b.state(); len(s.Draining) != 1 || !s.Lifecycle.Engines["d0"].Ready || s.Lifecycle.Engines["d0"].State != stateDrained {
		t.Errorf("draining %v, %+v", s.Draining, s.Lifecycle.Engines["d0"])
	}
	for range 6 {
		if a := b.complete(body(false, 2)); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/readmit", `{"engines":["d0"]}`); a.status != 200 {
		t.Errorf("readmit: %d %s", a.status, a.body)
	}
	if len(b.state().Draining) != 0 {
		t.Error("still draining")
	}
	for _, row := range b.rows() {
		if row.Decode == nil || *row.Decode != "d1" {
			t.Errorf("decoded on %v while d0 was drained", row.Decode)
		}
	}
}

func TestStartRefusesAProfileOfAnotherGeneration(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	cfg := b.router.set.Config
	cfg.JournalPath = ""
	rows := append(cfg.Profiles.Rows[:0:0], cfg.Profiles.Rows...)
	other := "sha256:" + strings.Repeat("0", 64)
	rows[1].GenerationDigest = &other
	cfg.Profiles.Rows = rows
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(limit(t)); err == nil || !strings.Contains(err.Error(), "engine d0") {
		t.Errorf("start: %v", err)
	}
}

func TestCheckNamesEverything(t *testing.T) {
	f := fleetDoc()
	f.SLO.TTFTS = 0
	f.Engines = append(f.Engines, f.Engines...)
	err := Check(Config{Fleet: f, Listen: "nowhere"})
	for _, want := range []string{"no engines", "slo.ttft_s", `listen address "nowhere"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// A failed leg holds a covered engine for a while, and never the last of its kind.
func TestFailureQuarantine(t *testing.T) {
	b := startBed(t, 1, 2, quick(), func(c *Config) { c.Fleet.Recovery.FailureQuarantineS = 0.3 })
	b.inject("d0", simulated.Injection{Kind: "busy"})
	b.inject("d1", simulated.Injection{Kind: "busy"})
	if a := b.complete(body(false, 2)); a.status != 429 {
		t.Errorf("%d %s", a.status, a.body)
	}
	held := func() (n int) {
		b.router.own.do(func() {
			for _, m := range b.router.own.nodes {
				if m.hold != nil {
					n++
				}
			}
		})
		return n
	}
	if n := held(); n != 0 {
		t.Errorf("%d engines are held for being busy", n)
	}
	b.inject("d0", simulated.Injection{Kind: "clear"})
	b.inject("d1", simulated.Injection{Kind: "clear"})
	b.router.own.do(func() { b.router.own.quarantine(b.router.own.node("p0"), holdTimed, "") })
	b.router.own.do(func() { b.router.own.quarantine(b.router.own.node("d0"), holdTimed, "") })
	if a := b.complete(body(false, 2)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	eventually(t, "holds end", func() bool { return held() == 0 })
	for _, r := range b.rows() {
		if r.Terminal == journal.Completed && *r.Decode != "d1" {
			t.Errorf("decoded on %s while it was held", *r.Decode)
		}
	}
}

// Under the policy whole_wave one ejection closes the fleet until all of it is readmitted.
func TestWholeWaveRestart(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Fleet.Recovery.EngineRestartPolicy = "whole_wave"
		c.Fleet.Recovery.ReadmitEvery = 1 << 20
	})
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/drain", `{"engines":["d0"]}`); a.status != 409 {
		t.Errorf("single drain: %d %s", a.status, a.body)
	}
	b.router.own.do(func() { b.router.own.eject(b.router.own.node("d0"), causeIdentity) })
	var ready struct{ Reason string }
	if b.get("/ready", &ready) != 503 || ready.Reason != "whole-wave restart required: process_identity" {
		t.Errorf("ready: %+v", ready)
	}
	if a := b.complete(body(false, 2)); a.status != 503 || !strings.Contains(a.body, `"standby"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	b.inject("d0", simulated.Injection{Kind: "pause"})
	b.router.set.health, b.router.set.firstToken = 200*time.Millisecond, 200*time.Millisecond
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/readmit", `{"wave":true}`); a.status != 409 || b.get("/ready", nil) != 503 {
		t.Errorf("readmit with a paused engine: %d %s", a.status, a.body)
	}
	off := false
	b.inject("d0", simulated.Injection{Kind: "pause", On: &off})
	b.router.set.health = 2 * time.Second
	if a := post(t, limit(t), b.url+"/narwhal/lifecycle/readmit", `{"wave":true}`); a.status != 200 || b.get("/ready", nil) != 200 {
		t.Errorf("readmit: %d %s", a.status, a.body)
	}
	if a := b.complete(body(false, 2)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
