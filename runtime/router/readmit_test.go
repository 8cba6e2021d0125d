package router

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// The recorded course of a drain: refused while the old process runs, validated after it was
// replaced, with the recorded checks, events and members.
func TestReadmissionAsRecorded(t *testing.T) {
	raw, want := referenceLifecycle(t)
	b := startBed(t, 2, 2, quick(), contracted(&sidecar{}))
	status, d := b.lifecycle("drain", `{"engines":["d0"],"deadline_s":60}`)
	if e := d.Engines["d0"]; status != 200 || !e.Draining || !e.Restart || e.Old == nil || e.New != nil || e.Deadline == nil || e.Accepts {
		t.Fatalf("drain: %d %+v", status, e)
	}
	if status, d := b.lifecycle("drain", `{"engines":["d0"]}`); status != 409 || *d.Error != "lifecycle action already active for d0" {
		t.Errorf("again: %d %s", status, *d.Error)
	}
	if status, d := b.lifecycle("drain", `{"engines":["d1"]}`); status != 409 || !d.Wave.Ready || d.Wave.Active {
		t.Errorf("beside it: %d %+v", status, d.Wave)
	}
	if status, d = b.lifecycle("readmit", `{"engines":["d1"]}`); status != 409 || *d.Error != "d1 is active, expected drained" {
		t.Errorf("of an active one: %d %s", status, *d.Error)
	}
	checks := fingerprinted(want.Engines["d0"].Checks)
	status, d = b.lifecycle("readmit", `{"engines":["d0"]}`)
	if e := d.Engines["d0"]; status != 409 || *d.Error != "readmission validation failed" || e.State != stateBlocked || !slices.Equal(e.Checks, checks[:4]) ||
		e.Error != "engine process did not restart after drain" || d.Wave.Ready {
		t.Fatalf("the same process: %d %s %+v", status, *d.Error, e)
	}
	b.restart("d0")
	status, d = b.lifecycle("readmit", `{"engines":["d0"]}`)
	e := d.Engines["d0"]
	if status != 200 || e.State != stateActive || !e.Accepts || !slices.Equal(e.Checks, checks) || e.Error != "" || e.New == nil || *e.New == *e.Old || d.ProcessStarts["d0"] != *e.New {
		t.Fatalf("readmit: %d %s %+v, want %q", status, *d.Error, e, checks)
	}
	if got := actions(d); !slices.Equal(got, actions(want)) {
		t.Errorf("actions %q, want %q", got, actions(want))
	}
	ours := shape(t, []byte(post(t, limit(t), b.url+"/narwhal/lifecycle/drain", `{"engines":[]}`).body))
	for p := range shape(t, raw) {
		if _, ok := ours[p]; !ok && !strings.Contains(p, ".engines.") && !strings.Contains(p, ".process_starts.") {
			t.Errorf("the document has no %s", p)
		}
	}
	if a := b.complete(body(false, 3)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Each check stops the validation with what came before it, and the engine stays out.
func TestReadmissionChecks(t *testing.T) {
	s := &sidecar{}
	b := startBed(t, 1, 1, quick(), contracted(s))
	if status, d := b.lifecycle("drain", `{"engines":["d0"]}`); status != 200 || d.Engines["d0"].State != stateDrained {
		t.Fatal(status, d.Engines["d0"])
	}
	b.restart("d0", func(c *simulated.Config) { c.Model = "another" })
	_, want := referenceLifecycle(t)
	all := fingerprinted(want.Engines["d0"].Checks)
	on := func(iid string, in simulated.Injection) func() {
		return func() { b.inject(iid, in) }
	}
	for _, c := range []struct {
		name   string
		fail   func()
		passed int
		says   string
	}{
		{"model", func() {}, 3, "model: "},
		{"health", func() { b.restart("d0"); b.inject("d0", simulated.Injection{Kind: "refuse"}) }, 0, "probe health: "},
		{"attestation", func() { s.fail(&s.attest, "d0", errSidecar) }, 1, "attestation: sidecar says no"},
		{"profile", func() { s.fail(&s.verify, "d0", errSidecar) }, 2, "profile generation: sidecar says no"},
		{"generation", on("d0", simulated.Injection{Kind: "status", Status: 500, Count: 1}), 5, "generation: "},
		{"produce", on("d0", simulated.Injection{Kind: "drop-handoff", Count: 1}), 6, "fabric produce to p0: prefill on d0: "},
		{"read of the peer", on("p0", simulated.Injection{Kind: "read-failure", Count: 1}), 6, "fabric produce to p0: decode on p0: "},
		{"consume", on("d0", simulated.Injection{Kind: "read-failure", Count: 1}), 7, "fabric consume from p0: decode on d0: "},
		{"peer's attestation", func() { s.fail(&s.attest, "p0", errSidecar) }, 6, "fabric produce to p0: attestation: "},
	} {
		c.fail()
		status, d := b.lifecycle("readmit", `{"engines":["d0"]}`)
		e := d.Engines["d0"]
		if status != 409 || e.State != stateBlocked || !slices.Equal(e.Checks, all[:c.passed]) || !strings.HasPrefix(e.Error, c.says) || *d.Error != "readmission validation failed" {
			t.Errorf("%s: %d, %q after %q", c.name, status, e.Error, e.Checks)
		}
		s.fail(&s.attest, "", nil)
		s.fail(&s.verify, "", nil)
		b.inject("d0", simulated.Injection{Kind: "clear"})
		b.inject("d0", simulated.Injection{Kind: "refuse", On: new(bool)})
		b.inject("p0", simulated.Injection{Kind: "clear"})
	}
	if status, d := b.lifecycle("readmit", `{"engines":["d0"]}`); status != 200 || !slices.Equal(d.Engines["d0"].Checks, all) {
		t.Errorf("%d %s %+v", status, *d.Error, d.Engines["d0"])
	}
}

// A peer that fails its own part says nothing about the candidate: another one is taken.
func TestReadmissionTakesAnotherPeer(t *testing.T) {
	b := startBed(t, 2, 1, quick(), contracted(&sidecar{}))
	b.lifecycle("drain", `{"engines":["d0"]}`)
	b.restart("d0")
	b.inject("p0", simulated.Injection{Kind: "drop-handoff", Count: -1})
	status, d := b.lifecycle("readmit", `{"engines":["d0"]}`)
	if e := d.Engines["d0"]; status != 200 || !slices.Contains(e.Checks, "fabric produce to p0") || !slices.Contains(e.Checks, "fabric consume from p1") {
		t.Errorf("%d %s %+v", status, *d.Error, e)
	}
}

// A router that loses the fleet while it validates readmits nobody.
func TestReadmissionFencedMeanwhile(t *testing.T) {
	s := &sidecar{}
	b := startBed(t, 1, 2, quick(), contracted(s))
	b.lifecycle("drain", `{"engines":["d0"]}`)
	b.restart("d0")
	s.Lock()
	s.asked = func(context.Context, string) { b.router.Block("lease renewal failed") }
	s.Unlock()
	status, d := b.lifecycle("readmit", `{"engines":["d0"]}`)
	if e := d.Engines["d0"]; status != http.StatusServiceUnavailable || e.State != stateBlocked || !strings.Contains(*d.Error, "lease renewal failed") {
		t.Errorf("%d %s %+v", status, *d.Error, e)
	}
	for _, call := range []string{"drain", "readmit"} {
		if status, _ := b.lifecycle(call, `{"engines":["d1"]}`); status != 503 {
			t.Errorf("%s of a fenced router: %d", call, status)
		}
	}
	b.router.Block("")
}

// A stop of the router ends a validation at once.
func TestReadmissionEndsWithTheRouter(t *testing.T) {
	s := &sidecar{}
	b := startBed(t, 1, 2, quick(), contracted(s), func(c *Config) {
		c.Fleet.Serving.GracefulTimeoutS = 60
		c.Fleet.Engine.HealthTimeoutS = 60
	})
	b.lifecycle("drain", `{"engines":["d0"]}`)
	b.restart("d0")
	began := make(chan struct{})
	s.Lock()
	s.asked = func(ctx context.Context, _ string) {
		close(began)
		<-ctx.Done()
	}
	s.attest = map[string]error{"d0": context.Canceled}
	s.Unlock()
	done := make(chan int, 1)
	go func() {
		status, _ := b.lifecycle("readmit", `{"engines":["d0"]}`)
		done <- status
	}()
	<-began
	start := time.Now()
	b.stop()
	if status := <-done; status != 409 || time.Since(start) > 10*time.Second {
		t.Errorf("%d after %s", status, time.Since(start))
	}
}

// An engine that does not tell who it is is held and blocked; the order may be repeated.
func TestDrainNeedsTheProcess(t *testing.T) {
	b := startBed(t, 1, 2, quick(), contracted(&sidecar{}), func(c *Config) { c.Fleet.Engine.HealthTimeoutS = 0.3 })
	b.inject("d0", simulated.Injection{Kind: "hang"})
	status, d := b.lifecycle("drain", `{"engines":["d0"]}`)
	if e := d.Engines["d0"]; status != 503 || e.State != stateBlocked || !e.Draining || e.Accepts || e.Old != nil || !strings.HasPrefix(*d.Error, "d0: ") {
		t.Fatalf("%d %s %+v", status, *d.Error, e)
	}
	if got := actions(d); !slices.Equal(got, []string{"drain_started", "drain_blocked"}) {
		t.Errorf("actions %q", got)
	}
	if status, d := b.lifecycle("readmit", `{"engines":["d0"]}`); status != 409 || *d.Error != "d0 has no recorded pre-restart process identity" {
		t.Errorf("readmit: %d %s", status, *d.Error)
	}
	b.inject("d0", simulated.Injection{Kind: "hang", On: new(bool)})
	if status, d := b.lifecycle("drain", `{"engines":["d0"]}`); status != 200 || d.Engines["d0"].State != stateDrained || d.Engines["d0"].Old == nil {
		t.Errorf("again: %d %+v", status, d.Engines["d0"])
	}
}
