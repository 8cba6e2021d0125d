package gates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// undos are what takes the gates back, newest first, with the letter of the gate.
var undos = []struct{ gate, act string }{
	{"G", "drain standby"}, {"G", "drain router"}, {"E", "stop sidecar-e"}, {"D", "stop fabric"}, {"C", "stop engine-e"}, {"B", "switch-back"},
}

func wantedUndos(from, to string) (out []string) {
	for _, u := range undos {
		if u.gate <= from && u.gate > to {
			out = append(out, u.act)
		}
	}
	return out
}

// backAt wants the host and the record to stand after a gate.
func backAt(t *testing.T, r *rig, l *ladder, to string) {
	t.Helper()
	for name := range l.procs {
		for k, p := range rungProcs {
			if p == name && k.Gate() > to {
				t.Errorf("%s still runs", name)
			}
		}
	}
	if (to == "A") != (l.release == "old") {
		t.Errorf("at gate %s the host carries the %s release", to, l.release)
	}
	s := r.state()
	for _, g := range rungs {
		want := record.VerdictPassed
		if g.letter > to {
			want = record.GateUndone
		}
		if got := s.Gates[g.letter].State; got != want && !(g.letter > to && (got == "" || got == record.GatePending)) {
			t.Errorf("gate %s is %s, want %s", g.letter, got, want)
		}
	}
	if s.Rollback != nil || s.LastRollback == nil || s.LastRollback.Done == nil || len(s.LastRollback.Done.Findings) != 0 || len(s.LastRollback.Done.Residue) != 0 {
		t.Errorf("rollback %+v, last %+v", s.Rollback, s.LastRollback)
	}
}

// TestRollbackFromEveryGateToEveryGate closes admission first, takes the rest back newest
// first, records each step before and after, and can go forward again.
func TestRollbackFromEveryGateToEveryGate(t *testing.T) {
	letters := "ABCDEFG"
	for to := 0; to < len(letters); to++ {
		for from := to; from < len(letters); from++ {
			from, to := letters[from:from+1], letters[to:to+1]
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				r, l := newLadder(t)
				r.pass(Options{To: from})
				l.acts = nil
				p, res, err := r.rollback(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				want := wantedUndos(from, to)
				equal(t, "acts", l.acts, want)
				if len(p.Steps) != len(want) {
					t.Errorf("plan %+v", p.Steps)
				}
				for _, s := range p.Steps {
					if s.Limit <= 0 {
						t.Errorf("%s has no limit", s.ID)
					}
				}
				if steps := r.kinds(record.KindRollbackStep); len(steps) != 2*len(want) {
					t.Errorf("recorded %v", steps)
				}
				if len(res.Rerun) != len(letters)-1-strings.Index(letters, to) {
					t.Errorf("rerun %v", res.Rerun)
				}
				backAt(t, r, l, to)
				if _, sealed := r.state().Seals["rollback"]; !sealed {
					t.Error("the rollback is not sealed")
				}
				r.pass(Options{To: from})
			})
		}
	}
}

// TestRollbackCutOffAtEachStep cuts a rollback from the last gate after each of its steps; the
// same command goes on and does nothing twice.
func TestRollbackCutOffAtEachStep(t *testing.T) {
	for _, to := range []string{"A", "B", "C", "D", "E", "F"} {
		for _, at := range wantedUndos("G", to) {
			t.Run(fmt.Sprintf("to %s after %s", to, at), func(t *testing.T) {
				t.Parallel()
				r, l := newLadder(t)
				r.pass(Options{})
				l.acts = nil
				ctx, cancel := context.WithCancelCause(t.Context())
				why := problem.New(problem.Interrupted, "interrupted", "stopped by SIGINT", "")
				l.ended = func(act string) {
					if act == at {
						cancel(why)
					}
				}
				_, _, err := r.rollback(ctx, to)
				l.ended = nil
				if !errors.Is(err, why) {
					t.Fatalf("got %v", err)
				}
				if out, err := r.run(t.Context(), Options{}); out.Status == problem.Success || problem.StatusOf(err) != problem.Refused {
					t.Errorf("a run during a rollback: %v, %v", out.Status, err)
				}
				_, res, err := r.rollback(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "acts", l.acts, wantedUndos("G", to))
				for _, act := range wantedUndos("G", to) {
					if _, name, ok := strings.Cut(act, " "); ok && !slices.Contains(res.Stopped, name) {
						t.Errorf("stopped %v, without %s", res.Stopped, name)
					}
				}
				backAt(t, r, l, to)
			})
		}
	}
}

// TestRollbackClosesAdmissionFirst: an engine that was launched after the router is the newest
// action, and the router is drained before it all the same.
func TestRollbackClosesAdmissionFirst(t *testing.T) {
	r, l := newLadder(t)
	r.pass(Options{})
	delete(l.procs, "engine-e")
	r.pass(Options{})
	l.acts = nil
	if _, _, err := r.rollback(t.Context(), "B"); err != nil {
		t.Fatal(err)
	}
	if len(l.acts) < 3 || l.acts[0] != "drain standby" || l.acts[1] != "drain router" {
		t.Errorf("acts %v", l.acts)
	}
	backAt(t, r, l, "B")
}

// TestRollbackStopsWhereAdmissionStaysOpen takes nothing from under a router that serves.
func TestRollbackStopsWhereAdmissionStaysOpen(t *testing.T) {
	for _, name := range []string{"router", "standby"} {
		r, l := newLadder(t)
		r.pass(Options{})
		l.acts = nil
		l.broken["drain "+name] = &remote.LimitError{Host: "h1", Command: "drain", Limit: second.D()}
		_, _, err := r.rollback(t.Context(), "B")
		if p := problemOf(t, err); p.Code != "admission_open" || p.Status != problem.Failed || p.Host != "h1" || p.Hint == "" {
			t.Fatalf("%s: got %v", name, err)
		}
		if slices.Contains(l.acts, "stop engine-e") || l.procs["engine-e"].ID == "" {
			t.Errorf("%s: acts %v", name, l.acts)
		}
		if s := r.state(); s.Rollback == nil {
			t.Errorf("%s: the rollback counts as ended", name)
		}
		clear(l.broken)
		if _, _, err := r.rollback(t.Context(), "B"); err != nil {
			t.Fatal(err)
		}
		backAt(t, r, l, "B")
	}
}

// TestRollbackNeedsKnownOwners refuses before anything is undone.
func TestRollbackNeedsKnownOwners(t *testing.T) {
	for what, spoil := range map[string]func(*ladder){
		"a record that cannot be read": func(l *ladder) { l.unowned = []Unowned{{Name: "engine-e", Why: unownedRecord}} },
		"another listens":              func(l *ladder) { l.unowned = []Unowned{{Name: "router", Why: unownedAddress + "127.0.0.1:8000"}} },
		"another's launch":             func(l *ladder) { l.procs["engine-e"] = Launched{Name: "engine-e", ID: "b:77", Launch: "of somebody"} },
	} {
		r, l := newLadder(t)
		r.pass(Options{})
		l.acts = nil
		spoil(l)
		p, _, err := r.rollback(t.Context(), "B")
		if q := problemOf(t, err); q.Code != "owner_unknown" || q.Status != problem.Refused || q.Host != "h1" || !strings.Contains(q.Hint, "ss -ltnp") {
			t.Errorf("%s: got %v", what, err)
		}
		if len(p.Unowned) != 1 || len(l.acts) != 0 || r.state().Rollback != nil {
			t.Errorf("%s: plan %+v, acts %v", what, p.Unowned, l.acts)
		}
	}
}

// TestRollbackLooksBack tells of what is not as the record says once the rollback has ended.
func TestRollbackLooksBack(t *testing.T) {
	broken := &remote.ExitError{Host: "h1", Command: "x", Code: 1}
	for _, c := range []struct {
		what, to, code string
		spoil          func(*ladder)
	}{
		{"a process of an undone gate runs on", "D", "process-remains", func(l *ladder) { l.frozen["sidecar-e"] = true }},
		{"an engine does not come back", "E", "process-differs", func(l *ladder) {
			delete(l.procs, "engine-e")
			l.broken["launch engine-e"] = broken
		}},
		{"a release does not come back", "B", "file-differs", func(l *ladder) { l.release, l.broken["switch"] = "third", broken }},
	} {
		t.Run(c.what, func(t *testing.T) {
			r, l := newLadder(t)
			r.pass(Options{})
			c.spoil(l)
			_, res, err := r.rollback(t.Context(), c.to)
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Findings) == 0 || !slices.ContainsFunc(res.Findings, func(f record.Finding) bool {
				return f.Code == c.code && f.Host == "h1" && f.Hint != "" && !f.Note
			}) {
				t.Errorf("findings %+v", res.Findings)
			}
			if d := r.state().LastRollback.Done; d == nil || len(d.Findings) != len(res.Findings) {
				t.Errorf("recorded %+v", d)
			}
			clear(l.broken)
			clear(l.frozen)
			if _, res, err := r.rollback(t.Context(), c.to); err != nil || len(res.Findings) != 0 {
				t.Errorf("again: %+v, %v", res.Findings, err)
			}
			backAt(t, r, l, c.to)
		})
	}
}

// TestRollbackTellsOfCutRequests notes what the limit of a drain ended.
func TestRollbackTellsOfCutRequests(t *testing.T) {
	r, l := newLadder(t)
	r.pass(Options{})
	n := 3
	l.cut = &n
	_, res, err := r.rollback(t.Context(), "F")
	if err != nil || len(res.Findings) != 2 {
		t.Fatalf("findings %+v, %v", res.Findings, err)
	}
	for _, f := range res.Findings {
		if f.Code != "drain-cut" || !f.Note || f.Got != "3" {
			t.Errorf("%+v", f)
		}
	}
}

// TestRollbackTellsOfAnUnseenEnd: what ended in an attempt whose outcome is not known was stopped by the
// rollback, and nobody heard of its requests; what was gone before an attempt reached it was not.
func TestRollbackTellsOfAnUnseenEnd(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		ended   bool
		stopped bool
	}{
		"the connection was lost":     {&remote.LostError{Host: "h1", Hop: "h1", Err: io.EOF}, true, true},
		"the command was interrupted": {fmt.Errorf("run: %w", context.Canceled), true, true},
		"it was not reached":          {&remote.HopError{Host: "h1", Hop: "h1", Stage: remote.StageConnect, Err: io.EOF}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := newLadder(t)
			r.pass(Options{})
			faults := map[string]error{"drain " + routerProcess: c.err}
			if c.ended {
				l.lost = faults
			} else {
				l.broken = faults
			}
			for range 2 { // an attempt that gets no farther changes nothing about it
				if _, _, err := r.rollback(t.Context(), "F"); err == nil {
					t.Fatal("the router was drained all the same")
				}
				l.broken = map[string]error{"drain " + routerProcess: &remote.HopError{Host: "h1", Hop: "h1", Stage: remote.StageConnect, Err: io.EOF}}
			}
			l.lost, l.broken = nil, nil
			delete(l.procs, routerProcess)
			_, res, err := r.rollback(t.Context(), "F")
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(res.Stopped, routerProcess); got != c.stopped {
				t.Errorf("stopped %q", res.Stopped)
			}
			if got := slices.ContainsFunc(res.Findings, func(f record.Finding) bool {
				return f.Code == "drain-unseen" && f.Note && f.Host == "h1" && f.Hint != ""
			}); got != c.stopped {
				t.Errorf("findings %+v", res.Findings)
			}
		})
	}
}

func problemOf(t *testing.T, err error) *problem.Problem {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) {
		t.Fatalf("no problem: %v", err)
	}
	return p
}
