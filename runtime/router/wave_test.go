package router

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// A wave drains all, tells once when all may stop, and readmits all or nobody.
func TestWaveOfAContractedFleet(t *testing.T) {
	b := startBed(t, 1, 2, quick(), contracted(&sidecar{}))
	if status, d := b.lifecycle("readmit", `{"wave":true}`); status != 409 || *d.Error != "no whole-wave drain is active" {
		t.Errorf("%d %s", status, *d.Error)
	}
	status, d := b.lifecycle("drain", `{"wave":true,"deadline_s":60}`)
	if status != 200 || !d.Wave.Active || !d.Wave.Ready {
		t.Fatalf("%d %+v", status, d.Wave)
	}
	for iid, e := range d.Engines {
		if e.State != stateDrained || e.Wave != d.Wave.ID || e.Old == nil || !e.Ready || !e.Restart {
			t.Errorf("%s: %+v", iid, e)
		}
	}
	if got := actions(d); got[0] != "wave_started" || got[len(got)-1] != "wave_ready_to_stop" {
		t.Errorf("actions %q", got)
	}
	if status, _ := b.lifecycle("drain", `{"engines":["d0"]}`); status != 409 {
		t.Errorf("a drain inside the wave: %d", status)
	}
	b.restart("p0")
	b.restart("d0")
	b.restart("d1")
	b.inject("d1", simulated.Injection{Kind: "read-failure", Count: -1})
	status, d = b.lifecycle("readmit", `{"wave":true}`)
	if status != 409 || d.Engines["d1"].State != stateBlocked || !strings.HasPrefix(d.Engines["d1"].Error, "fabric consume from ") || d.Engines["p0"].State != stateDrained {
		t.Errorf("with a bad engine: %d %+v", status, d.Engines)
	}
	if b.get("/ready", nil) != 503 {
		t.Error("ready although an engine of the wave is blocked")
	}
	b.inject("d1", simulated.Injection{Kind: "clear"})
	status, d = b.lifecycle("readmit", `{"wave":true}`)
	if status != 200 || d.Wave.Active || !d.Router.Ready {
		t.Fatalf("%d %s %+v", status, *d.Error, d)
	}
	for iid, e := range d.Engines {
		if e.State != stateActive || e.New == nil || *e.New == *e.Old || len(e.Checks) != 9 || e.Checks[4] != "new process identity" {
			t.Errorf("%s: %+v", iid, e)
		}
	}
	if a := b.complete(body(false, 3)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What an ejection holds under the policy whole_wave returns when all engines were restarted, with
// a drain before or after the restart or without one.
func TestARequiredWave(t *testing.T) {
	for name, drained := range map[string]bool{"no drain": false, "a drain after the restart": true} {
		t.Run(name, func(t *testing.T) {
			b := startBed(t, 1, 2, quick(), contracted(&sidecar{}), func(c *Config) { c.Fleet.Recovery.EngineRestartPolicy = "whole_wave" })
			b.router.own.do(func() {
				b.router.own.eject(b.router.own.node("d0"), causeConnection)
			})
			b.restart("d0")
			b.restart("d1")
			if drained {
				for _, iid := range []string{"d1", "p0"} {
					b.router.own.do(func() { b.router.own.eject(b.router.own.node(iid), causeIdentity) })
				}
				if status, d := b.lifecycle("drain", `{"wave":true}`); status != 200 {
					t.Fatalf("drain: %d %s", status, *d.Error)
				}
			}
			status, d := b.lifecycle("readmit", `{"wave":true}`)
			if e := d.Engines["p0"]; status != 409 || e.State != stateBlocked || !d.Wave.Active || e.Old == nil || !strings.Contains(e.Error, "process") {
				t.Fatalf("p0 was not restarted: %d %+v", status, e)
			}
			b.restart("p0")
			if status, d = b.lifecycle("readmit", `{"wave":true}`); status != 200 || d.Wave.Active || !d.Router.Ready {
				t.Fatalf("%d %s %+v", status, *d.Error, d.Engines)
			}
			if a := b.complete(body(false, 3)); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

// ready_to_stop is of the current order: individual drains count while there is no wave.
func TestReadyToStop(t *testing.T) {
	b := startBed(t, 1, 3, quick())
	o := b.router.own
	wave := func() (w lifecycleWave) {
		o.do(func() { w = o.lifecycle().Wave })
		return w
	}
	if w := wave(); w.Ready || w.Active {
		t.Errorf("nothing ordered: %+v", w)
	}
	l := &claim{}
	o.do(func() {
		d0 := o.node("d0")
		l.p, l.d = o.node("p0"), d0
		d0.decoding[l] = struct{}{}
	})
	b.lifecycle("drain", `{"engines":["d0"]}`)
	if w := wave(); w.Ready {
		t.Error("ready although d0 decodes")
	}
	status, _ := b.lifecycle("drain", `{"engines":["d1"]}`)
	if judge := judgeCase("second_drain_without_contract", fmt.Sprintf("status 409 → %d", status)); judge != "" {
		t.Error(judge)
	}
	if w := wave(); w.Ready {
		t.Error("ready although one of two decodes")
	}
	o.do(func() { delete(o.node("d0").decoding, l) })
	eventually(t, "both are drained", func() bool { w := wave(); return w.Ready && !w.Active })
	b.lifecycle("readmit", `{"engines":["d0"]}`)
	if w := wave(); !w.Ready {
		t.Error("the other drained engine may not stop")
	}
	b.lifecycle("readmit", `{"engines":["d1"]}`)
	if w := wave(); w.Ready {
		t.Error("ready with nobody held")
	}
}

// A drain whose time is up says so, and becomes drained when its requests have ended.
func TestDrainOutlivesItsDeadline(t *testing.T) {
	b := startBed(t, 1, 2, quick())
	o := b.router.own
	l := &claim{}
	o.do(func() {
		l.p, l.d = o.node("p0"), o.node("d0")
		l.d.decoding[l] = struct{}{}
	})
	if status, d := b.lifecycle("drain", `{"engines":["d0"],"deadline_s":0.05}`); status != 200 || d.Engines["d0"].State != stateDraining {
		t.Fatalf("%d %+v", status, d.Engines["d0"])
	}
	state := func() (s lifecycleState) {
		o.do(func() { s = o.lifecycle().Engines["d0"] })
		return s
	}
	eventually(t, "the deadline", func() bool { s := state(); return s.State == stateExceeded && !s.Ready && s.Resident["decode"] == 1 })
	o.do(func() { delete(l.d.decoding, l) })
	eventually(t, "drained", func() bool { s := state(); return s.State == stateDrained && s.Ready })
	var got []string
	o.do(func() { got = actions(o.lifecycle()) })
	if !slices.Equal(got, []string{"drain_started", "process_recorded", "drain_deadline_exceeded", "drain_complete"}) {
		t.Errorf("actions %q", got)
	}
}

// A wave takes individual holds over only when nothing serves any more.
func TestWaveAbsorbsAHold(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	b.lifecycle("drain", `{"engines":["d0"]}`)
	if status, d := b.lifecycle("drain", `{"wave":true}`); status != 409 || *d.Error != "lifecycle action already active for d0" {
		t.Errorf("while p0 serves: %d %s", status, *d.Error)
	}
	b.router.own.do(func() { b.router.own.eject(b.router.own.node("p0"), causeHealth) })
	status, d := b.lifecycle("drain", `{"wave":true}`)
	if e := d.Engines["d0"]; status != 200 || e.Wave != d.Wave.ID || e.Old == nil {
		t.Errorf("%d %+v", status, e)
	}
}

func TestSingleEngineFleetIsReadmitted(t *testing.T) {
	b := startBed(t, 0, 1, quick(), contracted(&sidecar{}))
	b.lifecycle("drain", `{"wave":true}`)
	b.restart("d0")
	status, d := b.lifecycle("readmit", `{"wave":true}`)
	if e := d.Engines["d0"]; status != 200 || !slices.Equal(e.Checks[4:], []string{"new process identity", "generation", "fabric not applicable: single-engine fleet", "final health"}) {
		t.Errorf("%d %+v", status, e)
	}
}

// The handoff carries every record; a validation that another router began has failed.
func TestHandoffCarriesTheRecords(t *testing.T) {
	b := startBed(t, 2, 2, quick(), contracted(&sidecar{}), func(c *Config) {
		for i := range c.Fleet.Engines {
			c.Fleet.Engines[i].Pin = true
		}
	})
	b.lifecycle("drain", `{"engines":["d0"],"deadline_s":60}`)
	b.lifecycle("readmit", `{"engines":["d0"]}`)
	o := b.router.own
	var doc standby.Document
	o.do(func() {
		o.node("d0").state = stateValidating
		o.node("d0").suspect("p0")
		doc = o.handoffState()
	})
	rec := doc.Lifecycle.Records[0]
	if len(doc.Lifecycle.Records) != 1 || rec.IID != "d0" || rec.OldStart == nil || len(rec.Checks) != 4 || !rec.Restart || rec.Deadline == nil {
		t.Fatalf("%+v", doc.Lifecycle.Records)
	}
	raw, err := doc.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if doc, err = standby.Decode(raw); err != nil {
		t.Fatal(err)
	}
	doc.Sources["d1"], doc.Sources["p1"] = []string{"", "p0"}, []string{""}
	if err := b.router.Apply(limit(t), doc); err != nil {
		t.Fatal(err)
	}
	o.do(func() {
		n, d1 := o.node("d0"), o.node("d1")
		if n.state != stateBlocked || n.fault != interrupted || !n.draining || *n.oldStart != *rec.OldStart {
			t.Errorf("restored %+v", n.record)
		}
		if len(d1.sources) != 2 || d1.ejected != "" {
			t.Errorf("a suspect that nobody covers is %q, %v", d1.ejected, d1.sources)
		}
		if p1 := o.node("p1"); p1.ejected != causeInference || !p1.sources[""] {
			t.Errorf("a covered suspect is %q, %v", p1.ejected, p1.sources)
		}
	})
	delete(doc.Lifecycle.Starts, "p0")
	if err := b.router.Apply(limit(t), doc); err == nil || !strings.Contains(err.Error(), "p0") {
		t.Errorf("a serving engine without a process start: %v", err)
	}
}

// An ejected engine of a contracted fleet returns by the same validation, as the process
// that it is; when nothing serves, all that are well return as one wave.
func TestContractedRecovery(t *testing.T) {
	s := &sidecar{}
	b := startBed(t, 1, 2, quick(), contracted(s))
	o, r := b.router.own, b.router
	out := func(ids ...string) (list []*node) {
		o.do(func() {
			for _, id := range ids {
				o.eject(o.node(id), causeHealth)
				list = append(list, o.node(id))
			}
		})
		return list
	}
	engine := func(iid string) (e lifecycleState) {
		o.do(func() { e = o.lifecycle().Engines[iid] })
		return e
	}
	s.fail(&s.verify, "d0", errSidecar)
	r.recoverContracted(t.Context(), out("d0"))
	if e := engine("d0"); e.Accepts || !strings.HasPrefix(e.Error, "profile generation: ") {
		t.Errorf("with a stale profile: %+v", e)
	}
	s.fail(&s.verify, "", nil)
	r.recoverContracted(t.Context(), out("d0"))
	if e := engine("d0"); !e.Accepts || e.Error != "" || len(e.Checks) != 9 || e.Checks[4] != "process identity" || e.New == nil {
		t.Errorf("recovered: %+v", e)
	}
	all := out("p0", "d0", "d1")
	b.inject("d1", simulated.Injection{Kind: "refuse"})
	s.Lock()
	reason := ""
	s.asked = func(context.Context, string) {
		reason = o.view.Load().reason()
	}
	s.Unlock()
	r.recoverContracted(t.Context(), all)
	if !engine("p0").Accepts || !engine("d0").Accepts || engine("d1").Accepts || !strings.HasPrefix(reason, "whole-wave recovery ") {
		t.Errorf("one wave: %+v, reason %q", engine("p0"), reason)
	}
	var back []string
	for _, n := range all {
		if engine(n.id).Accepts {
			back = append(back, n.id)
		}
	}
	if judge := judgeCase("recovery_with_a_dead_engine", "readmitted none → "+strings.Join(back, ", ")); judge != "" {
		t.Error(judge)
	}
	b.stop()
	var got []string
	readEvents(t, b.journal, func(e journal.Event) {
		if e.Name == "engine_lifecycle" {
			got = append(got, e.Fields["action"].(string))
		}
	})
	for _, want := range []string{"profile_recovery_blocked", "recovery_validation_started", "wave_readmitted"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
}

// A process that changed without an order is out at the next sweep; one that cannot be
// verified, after as many as liveness may miss.
func TestChangedProcessIsExcluded(t *testing.T) {
	s := &sidecar{}
	b := startBed(t, 1, 2, quick(), contracted(s))
	o, r := b.router.own, b.router
	prove := func(iid string) (cause string) {
		r.proveProcess(t.Context(), o.node(iid), nil)
		o.do(func() { cause = o.node(iid).ejected })
		return cause
	}
	if c := prove("d0"); c != "" {
		t.Errorf("the same process: %q", c)
	}
	b.restart("d0")
	s.fail(&s.attest, "d1", errSidecar)
	if a, b, c := prove("d0"), prove("d1"), prove("d1"); a != causeIdentity || b != "" || c != causeIdentity {
		t.Errorf("causes %q, %q, %q", a, b, c)
	}
	s.fail(&s.attest, "p0", errSidecar)
	if judge := judgeCase("sidecar_fails_once", "ejected process_identity → "+cmp.Or(prove("p0"), "none")); judge != "" {
		t.Error(judge)
	}
	var events []json.RawMessage
	o.do(func() { events = slices.Clone(o.lifeEvents) })
	for i, want := range []string{`"reason":"process changed"`, `"reason":"sidecar says no"`} {
		if len(events) != 2 || !strings.Contains(string(events[i]), want) || !strings.Contains(string(events[i]), `"action":"process_excluded"`) {
			t.Errorf("%s", events)
		}
	}
}

// A contracted fleet whose state file does not fit knows no process: all must be replaced.
func TestRejectedStateHoldsAContractedFleet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	raw, err := standby.NewDocument().Encode() // of no engines
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := startBed(t, 1, 1, quick(), contracted(&sidecar{}), func(c *Config) { c.HA = HA{StatePath: path, Resume: true} })
	var r readiness
	if b.get("/ready", &r) != 503 || r.Reason != "whole-wave restart required: state file was rejected" {
		t.Errorf("%+v", r)
	}
	b.lifecycle("drain", `{"wave":true}`)
	b.restart("p0")
	b.restart("d0")
	if status, d := b.lifecycle("readmit", `{"wave":true}`); status != 200 || !d.Router.Ready {
		t.Errorf("%d %s", status, *d.Error)
	}
}

// swept is why an engine is out after one liveness sweep; "" = it is not.
func (b *testbed) swept(iid string) (cause string) {
	b.t.Helper()
	o := b.router.own
	b.router.liveness(b.t.Context(), o.node(iid))
	o.do(func() { cause = o.node(iid).ejected })
	return cause
}

// unswept turns off the sweeps, and readmission with them.
func unswept(c *Config) { c.Fleet.Recovery.LivenessEvery, c.Fleet.Recovery.ReadmitEvery = 0, 1<<20 }

// Without a contract too, a restart of an engine that nobody uses is noticed at a sweep.
func TestIdleRestartIsNoticed(t *testing.T) {
	b := startBed(t, 1, 1, quick(), unswept)
	o := b.router.own
	if c := b.swept("d0"); c != "" {
		t.Errorf("the same process: %q", c)
	}
	b.restart("d0")
	o.do(func() { o.node("d0").draining = true })
	if c := b.swept("d0"); c != "" {
		t.Errorf("one that an order holds: %q", c)
	}
	o.do(func() { o.node("d0").draining = false })
	if c := b.swept("d0"); c != causeIdentity {
		t.Errorf("another process: %q", c)
	}
}
