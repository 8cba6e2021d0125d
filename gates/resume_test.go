package gates

import (
	"context"
	"errors"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// cutOff leaves a record in which a step's intent has no outcome, as a killed process does.
func cutOff(t *testing.T, r *rig, s Step) {
	t.Helper()
	rec, err := record.Open(r.dir, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if _, err := rec.Append(record.KindStarted, "C", "", "", record.Started{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rec.Append(record.KindIntent, "C", s.ID, s.Host, intentOf(s)); err != nil {
		t.Fatal(err)
	}
}

func launchStep(r *rig) Step {
	launch := Inputs(r.fleet, r.rel)["fleet/launch/e"]
	return Step{ID: "C/launch", Host: "h1", Effect: Mutate, Argv: verb("launch", launch), Check: verb("status", launch), Undo: &Undo{Title: "stop engine-e", Argv: verb("stop"), Limit: second, Stops: "engine-e"}}
}

func TestUnknownIntentIsObservedAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		step   func(*rig) Step
		before func(*rig)
		want   string // how it is resolved, "" = the run fails
		done   int    // actions in Done after that
	}{
		{"its check finds the effect", launchStep, func(r *rig) { r.world.restart(Inputs(r.fleet, r.rel)["fleet/launch/e"]) }, record.ResolvedDone, 1},
		{"its check finds no effect", launchStep, func(*rig) {}, record.ResolvedUndone, 0},
		{"its check fails", launchStep, func(r *rig) { r.world.fail["status"] = &remote.ExitError{Host: "h1", Code: 4} }, record.ResolvedUnclear, 0},
		{"it has no check", func(r *rig) Step { s := launchStep(r); s.Check = nil; return s }, func(*rig) {}, record.ResolvedUnclear, 0},
		{"its file is there", func(r *rig) Step {
			return Step{ID: "C/file", Host: "h1", Effect: Mutate, File: TextFile(thePath, 0o600, []byte("m"))}
		}, func(r *rig) { r.world.files[thePath] = TextFile(thePath, 0, []byte("m")).SHA256 }, record.ResolvedDone, 1},
		{"its file is not there", func(r *rig) Step {
			return Step{ID: "C/file", Host: "h1", Effect: Mutate, File: TextFile(thePath, 0o600, []byte("m"))}
		}, func(*rig) {}, record.ResolvedUndone, 0},
		{"its host does not answer", launchStep, func(r *rig) { r.world.fail["status"] = &remote.LostError{Host: "h1", Err: errors.New("gone")} }, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.pass(Options{To: "A"})
			cutOff(t, r, c.step(r))
			c.before(r)
			run, end := r.open()
			_, err := run.Forecast(t.Context(), Options{})
			end()
			if c.want == "" {
				if problem.StatusOf(err) != problem.Failed || len(r.state().Unknown) != 1 {
					t.Fatalf("got %v, unknown %v", err, r.state().Unknown)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s := r.state()
			if len(s.Done) != c.done {
				t.Errorf("done %+v", s.Done)
			}
			snap, _ := record.Read(r.dir)
			last := snap.Events[len(snap.Events)-1]
			res, err := record.Body[record.Resolved](last)
			if err != nil || res.Status != c.want {
				t.Fatalf("last event %s %s, want it resolved as %s", last.Kind, last.Body, c.want)
			}
			clear(r.world.fail)
			r.pass(Options{})
			if s := r.state(); len(s.Unknown) != 0 || s.Gates["C"].State != record.VerdictPassed {
				t.Errorf("after the run: unknown %+v, gate C %s", s.Unknown, s.Gates["C"].State)
			}
			r.verify()
		})
	}
}

// TestUnclearIsNotAskedTwice settles an unclear intent only by running its step again.
func TestUnclearIsNotAskedTwice(t *testing.T) {
	r := newRig(t)
	r.pass(Options{To: "A"})
	s := launchStep(r)
	s.Check = nil
	cutOff(t, r, s)
	for range 3 {
		run, end := r.open()
		if _, err := run.Forecast(t.Context(), Options{}); err != nil {
			t.Fatal(err)
		}
		end()
	}
	equal(t, "resolved", r.kinds(record.KindResolved), []string{"resolved C/launch"})
	r.pass(Options{})
	if n := len(r.kinds(record.KindResolved)); n != 2 || len(r.state().Unknown) != 0 {
		t.Errorf("%d resolutions, unknown %+v", n, r.state().Unknown)
	}
}

// TestEvidenceFileIsNamedByDigest puts recorded evidence on a host: its intent names the
// digest, so that a second look can tell whether it is there.
func TestEvidenceFileIsNamedByDigest(t *testing.T) {
	r := newRig(t)
	r.gates = []Gate{first{}, copier{}}
	r.pass(Options{})
	snap, err := record.Read(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	want := TextFile(thePath, 0, []byte("boot=boot-1")).SHA256
	found := false
	for _, ev := range snap.Events {
		if ev.Kind != record.KindIntent {
			continue
		}
		in, err := record.Body[record.Intent](ev)
		if err != nil {
			t.Fatal(err)
		}
		found = found || string(in.Undo) == string(mustJSON(recorded{File: &filed{thePath, want}}))
	}
	if !found || r.world.files[thePath] != want {
		t.Errorf("no intent names %s; the host holds %s", want, r.world.files[thePath])
	}
}

// copier puts gate A's observation on the host.
type copier struct{ third }

func (copier) Plan(ctx context.Context, v View) (Plan, error) {
	p, err := third{}.Plan(ctx, v)
	for i := range p.Steps {
		if f := p.Steps[i].File; f != nil {
			p.Steps[i].File = &File{Path: f.Path, Mode: f.Mode, Evidence: "A/host/h1"}
		}
	}
	return p, err
}
