package gates

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// rollback does what one command does.
func (r *rig) rollback(ctx context.Context, to string) (RollbackPlan, RollbackResult, error) {
	r.t.Helper()
	run, end := r.open()
	defer end()
	p, err := run.PlanRollback(ctx, to)
	if err != nil {
		return p, RollbackResult{}, err
	}
	res, err := run.Rollback(ctx, p)
	return p, res, err
}

func TestRollback(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	r.world.took()
	p, res, err := r.rollback(t.Context(), "A")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Steps) != 1 || p.Steps[0].ID != "undo/C/launch" || !slices.Equal(p.Kept, []string{"C/file"}) || !slices.Equal(p.Rerun, []string{"C"}) {
		t.Errorf("plan %+v", p)
	}
	equal(t, "calls", r.world.took(), []string{"observe", "observe", "lease", "stop", "observe", "release-lease"})
	if r.world.proc != nil {
		t.Error("the engine still runs")
	}
	equal(t, "stopped", res.Stopped, []string{"engine-e"})
	equal(t, "rerun", res.Rerun, []string{"C"})
	equal(t, "residue", res.Residue, []string{})
	s := r.state()
	if s.Gates["A"].State != record.VerdictPassed || s.Gates["C"].State != record.GateUndone || s.Rollback != nil || s.LastRollback == nil {
		t.Errorf("A is %s, C is %s, rollback %+v", s.Gates["A"].State, s.Gates["C"].State, s.Rollback)
	}
	for k, e := range s.Gates["C"].Evidence {
		if !e.Stale {
			t.Errorf("evidence %s still counts", k)
		}
	}
	if _, sealed := s.Seals["rollback"]; !sealed {
		t.Error("the rollback is not sealed")
	}
	r.verify()

	r.pass(Options{}) // what was rolled back can run again
	if r.world.proc == nil {
		t.Error("nothing was launched again")
	}
	r.verify()
}

// TestRollbackVerifiesLive goes back to gate C although its engine died: it is launched
// again from its recorded plan.
func TestRollbackVerifiesLive(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	r.world.proc = nil
	r.world.took()
	_, res, err := r.rollback(t.Context(), "C")
	if err != nil {
		t.Fatal(err)
	}
	if r.world.proc == nil || !slices.Contains(r.world.took(), "launch") {
		t.Error("the engine was not launched again")
	}
	equal(t, "restored", res.Restored, []string{"C/launch/e", "C/live/e"})
	equal(t, "rerun", res.Rerun, nil)
	if g := r.state().Gates["C"]; g.State != record.VerdictPassed || g.Seal == nil {
		t.Errorf("gate C is %s, seal %v", g.State, g.Seal)
	}
	r.verify()
}

// TestRollbackAgainVerifiesLive repeats a rollback after an engine died: standing at the
// gate once does not mean standing there now.
func TestRollbackAgainVerifiesLive(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	if _, _, err := r.rollback(t.Context(), "C"); err != nil {
		t.Fatal(err)
	}
	before := r.state().Seq
	if _, res, err := r.rollback(t.Context(), "C"); err != nil || len(res.Restored) != 0 {
		t.Fatalf("again: %+v, %v", res, err)
	}
	if n := r.state().Seq - before; n > 2 {
		t.Errorf("a rollback to where the fleet stands wrote %d events", n)
	}
	r.world.proc = nil
	_, res, err := r.rollback(t.Context(), "C")
	if err != nil {
		t.Fatal(err)
	}
	if r.world.proc == nil {
		t.Error("the engine was not launched again")
	}
	equal(t, "restored", res.Restored, []string{"C/launch/e", "C/live/e"})
	r.verify()
}

// TestRollbackThatCannotRestore says that the kept gate must run again.
func TestRollbackThatCannotRestore(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	r.world.proc = nil
	r.world.fail["launch"] = &remote.ExitError{Host: "h1", Command: "launch", Code: 1}
	_, res, err := r.rollback(t.Context(), "C")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "rerun", res.Rerun, []string{"C"})
	equal(t, "restored", res.Restored, []string{})
	if len(res.Findings) != 1 || res.Findings[0].Code != "process-differs" || res.Findings[0].Host != "h1" || res.Findings[0].Want == "" {
		t.Errorf("findings %+v", res.Findings)
	}
	if g := r.state().Gates["C"]; g.State != record.GateUndone {
		t.Errorf("gate C is %s", g.State)
	}
	r.verify()
}

func TestRollbackResidue(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	r.world.fail["stop"] = &remote.LimitError{Host: "h1", Command: "stop", Limit: second.D()}
	_, res, err := r.rollback(t.Context(), "A")
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Residue) != 1 || !strings.HasPrefix(res.Residue[0], "stop engine-e on host h1: ") || len(res.Stopped) != 0 {
		t.Errorf("residue %v, stopped %v", res.Residue, res.Stopped)
	}
	s := r.state()
	if s.Rollback != nil || s.LastRollback.Done == nil || len(s.LastRollback.Done.Residue) != 1 {
		t.Errorf("rollback %+v", s.LastRollback)
	}
	r.verify()

	// What was left is taken back by the same rollback once it can be.
	clear(r.world.fail)
	_, res, err = r.rollback(t.Context(), "A")
	if err != nil || len(res.Residue) != 0 || r.world.proc != nil {
		t.Errorf("again: %v, residue %v", err, res.Residue)
	}
	equal(t, "stopped", res.Stopped, []string{"engine-e"})
	r.verify()
}

// TestRollbackCutOff stops a rollback in its middle: a run is refused, another target is
// refused, and the same rollback goes on.
func TestRollbackCutOff(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := problem.New(problem.Interrupted, "interrupted", "stopped by SIGINT", "")
	run, end := r.open()
	p, err := run.PlanRollback(t.Context(), "A")
	if err != nil {
		t.Fatal(err)
	}
	p.Steps = append(p.Steps, UndoStep{ID: "undo/other", Gate: "C", Host: "h1", Undo: Undo{Title: "not reached", Argv: verb("stop"), Limit: second}})
	r.world.after["stop"] = func() { cancel(why) }
	_, err = run.Rollback(ctx, p)
	end()
	if !errors.Is(err, why) {
		t.Fatalf("got %v", err)
	}
	delete(r.world.after, "stop")
	if s := r.state(); s.Rollback == nil || len(s.Rollback.Steps) != 1 || s.Rollback.Steps[0].Status != record.RollbackOK {
		t.Fatalf("rollback %+v", r.state().Rollback)
	}
	r.verify()

	out, err := r.run(t.Context(), Options{})
	if out.Status == problem.Success || problem.StatusOf(err) != problem.Refused {
		t.Errorf("a run during a rollback: %v, %v", out.Status, err)
	}
	if _, _, err := r.rollback(t.Context(), "C"); problem.StatusOf(err) != problem.Refused {
		t.Errorf("another target: %v", err)
	}
	r.world.took()
	_, res, err := r.rollback(t.Context(), "A")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "calls", r.world.took(), []string{"observe", "lease", "observe", "release-lease"})
	equal(t, "stopped", res.Stopped, []string{"engine-e"})
	if s := r.state(); s.Rollback != nil || s.LastRollback.Done == nil {
		t.Errorf("rollback %+v", s.Rollback)
	}
	r.verify()
}

func TestRollbackOfAnUnknownIntent(t *testing.T) {
	r := newRig(t)
	r.pass(Options{To: "A"})
	s := launchStep(r)
	cutOff(t, r, s)
	r.world.restart(s.Argv[3])
	p, res, err := r.rollback(t.Context(), "A")
	if err != nil || len(p.Steps) != 1 || r.world.proc != nil {
		t.Fatalf("plan %+v, %v", p, err)
	}
	equal(t, "stopped", res.Stopped, []string{"engine-e"})
	if s := r.state(); len(s.Unknown) != 0 || s.Gates["C"].State != record.GateUndone {
		t.Errorf("unknown %+v, gate C %s", s.Unknown, s.Gates["C"].State)
	}
}

func TestRollbackOfNothingNamesNothing(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	r.world.proc = nil // it died before
	_, res, err := r.rollback(t.Context(), "A")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "stopped", res.Stopped, []string{})
}

func TestRollbackToNowhere(t *testing.T) {
	r := newRig(t)
	if _, _, err := r.rollback(t.Context(), "B"); problem.StatusOf(err) != problem.Invalid {
		t.Errorf("got %v", err)
	}
}

func TestRollbackNeedsTheLease(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	r.world.lease = "somebody else"
	_, _, err := r.rollback(t.Context(), "A")
	if problem.StatusOf(err) != problem.Locked {
		t.Fatalf("got %v", err)
	}
	if s := r.state(); s.Rollback != nil {
		t.Error("the record says that a rollback began")
	}
	if r.world.proc == nil {
		t.Error("the engine was stopped")
	}
}

// TestPlanRollback takes back newest first: what was done, what failed, what is unknown;
// a step done twice once; observations and earlier gates not at all.
func TestPlanRollback(t *testing.T) {
	r := newRig(t)
	act := func(rec *record.Run, gate, step, effect string, status string) {
		t.Helper()
		undo := recordedOf(Step{Undo: &Undo{Title: "undo " + step, Argv: []string{"undo", step}, Limit: second}})
		ev, err := rec.Append(record.KindIntent, gate, step, "h1", record.Intent{Effect: effect, Undo: undo})
		if err != nil {
			t.Fatal(err)
		}
		if status == "" {
			return
		}
		if _, err := rec.Append(record.KindOutcome, gate, step, "h1", record.Outcome{Intent: ev.Seq, Status: status}); err != nil {
			t.Fatal(err)
		}
	}
	forge(t, r, func(rec *record.Run) {
		act(rec, "A", "A/before", record.EffectMutate, record.StatusOK)
		act(rec, "C", "C/one", record.EffectMutate, record.StatusOK)
		act(rec, "C", "C/two", record.EffectDisrupt, record.StatusFailed)
		act(rec, "C", "C/look", record.EffectObserve, record.StatusOK)
		act(rec, "C", "C/three", record.EffectMutate, "")
		act(rec, "C", "C/one", record.EffectMutate, record.StatusOK)
		act(rec, "C", "C/four", record.EffectMutate, record.StatusCanceled)
		act(rec, "X", "X/unheard-of", record.EffectMutate, record.StatusOK)
	})
	run, _ := r.open()
	p, err := run.PlanRollback(t.Context(), "A")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, s := range p.Steps {
		got = append(got, s.ID)
		if i > 0 && s.Intent >= p.Steps[i-1].Intent {
			t.Errorf("%s is undone before the newer %s", s.ID, p.Steps[i-1].ID)
		}
	}
	equal(t, "undoes", got, []string{"undo/C/four", "undo/C/one", "undo/C/three", "undo/C/two"})
	if p, err := run.PlanRollback(t.Context(), "C"); err != nil || len(p.Steps) != 0 || len(p.Rerun) != 0 {
		t.Errorf("to the last gate: %+v, %v", p, err)
	}
}
