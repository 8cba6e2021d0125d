package gates

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func TestRunThenNothingToDo(t *testing.T) {
	r := newRig(t)
	out := r.pass(Options{})
	if !out.Changed || len(out.Gates) != 2 {
		t.Errorf("outcome %+v", out)
	}
	equal(t, "calls", r.world.took(), []string{"probe", "lease", "put " + thePath, "launch", "live", "release-lease"})
	equal(t, "write-ahead", r.kinds(record.KindIntent, record.KindOutcome), []string{"intent C/file", "outcome C/file", "intent C/launch", "outcome C/launch"})
	if v := r.verify(); v.Seals != 2 || len(v.Notices) != 0 || v.Signer != testSigner().Public().Hint() {
		t.Errorf("verification %+v", v)
	}

	before := r.state().Seq
	again := r.pass(Options{})
	if again.Changed {
		t.Error("the second run changed something")
	}
	equal(t, "calls of the second run", r.world.took(), []string{"observe"})
	after := r.kinds(record.KindStarted, record.KindVerdict, record.KindIntent, record.KindSeal)
	if r.state().Seq-before > 2 { // resumed, and facts that are known for the first time
		t.Errorf("the second run wrote %d events: %v", r.state().Seq-before, after)
	}
	for _, g := range again.Gates {
		if len(g.Reused) != 2 || len(g.Because) != 0 {
			t.Errorf("gate %s reused %v, repeated %v", g.Info.Letter, g.Reused, g.Because)
		}
	}
	r.verify()
}

func TestResumeCostsWhatRemains(t *testing.T) {
	r := newRig(t)
	r.pass(Options{To: "A"})
	if _, ok := r.state().Gates["C"]; ok {
		t.Error("gate C was touched")
	}
	r.world.took()
	r.pass(Options{})
	equal(t, "calls", r.world.took(), []string{"observe", "lease", "put " + thePath, "launch", "live", "release-lease"})

	r.world.restart(r.world.proc.Launch)
	out := r.pass(Options{})
	equal(t, "after a restart with the same launch", r.world.took(), []string{"observe", "live"})
	why := out.Gates[1].Because["C/live/e"]
	if !strings.HasPrefix(why, "engine-e was restarted") || len(out.Gates[1].Because) != 1 {
		t.Errorf("because %v", out.Gates[1].Because)
	}

	r.world.restart("by hand")
	out = r.pass(Options{})
	equal(t, "after a launch of another kind", r.world.took(), []string{"observe", "lease", "put " + thePath, "launch", "live", "release-lease"})
	if why := out.Gates[1].Because["C/launch/e"]; why != "engine-e was launched differently" {
		t.Errorf("because %q", why)
	}
	r.verify()
}

func TestAgainAndOnly(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	r.world.took()
	out := r.pass(Options{Only: "A", Again: map[string]bool{"A": true}})
	equal(t, "calls", r.world.took(), []string{"observe", "probe"})
	if len(out.Gates) != 1 || out.Gates[0].Because["A/host/h1"] != "asked to repeat gate A" {
		t.Errorf("gates %+v", out.Gates)
	}
	r.pass(Options{}) // seals gate C behind the new seal of A
	st := r.state()
	if st.Gates["A"].Seal.At > st.Gates["C"].Seal.At {
		t.Error("gate C's seal does not follow gate A's new one")
	}
	r.verify()
}

func TestFindingFailsTheGate(t *testing.T) {
	r := newRig(t)
	r.world.boot = "bad"
	out, err := r.run(t.Context(), Options{})
	if err != nil || out.Status != problem.FailedGate || len(out.Gates) != 1 {
		t.Fatalf("got %v, %v, %d gates", out.Status, err, len(out.Gates))
	}
	if len(out.Errors) != 1 || out.Errors[0].Code != "bad-boot" || out.Errors[0].Gate != "A" || out.Errors[0].Host != "h1" {
		t.Errorf("errors %+v", out.Errors)
	}
	equal(t, "calls", r.world.took(), []string{"probe"})
	if st := r.state().Gates["A"]; st.State != record.VerdictFailed || st.Seal != nil {
		t.Errorf("gate A is %s, seal %v", st.State, st.Seal)
	}
	// Its evidence is all there and holds: the gate does not.
	out, err = r.run(t.Context(), Options{})
	if err != nil || out.Status != problem.FailedGate {
		t.Errorf("again: %v, %v", out.Status, err)
	}
	equal(t, "calls of the second run", r.world.took(), []string{"observe"})
	r.verify()
	r.world.boot = "good"
	r.pass(Options{})
	r.verify()
}

func TestFailedStepIsInconclusive(t *testing.T) {
	r := newRig(t)
	r.world.fail["launch"] = &remote.ExitError{Host: "h1", Command: "launch", Code: 1}
	out, err := r.run(t.Context(), Options{})
	if err != nil || out.Status != problem.Failed {
		t.Fatalf("got %v, %v", out.Status, err)
	}
	if len(out.Errors) != 1 || out.Errors[0].Code != "step-failed" || !strings.Contains(out.Errors[0].Message, "scripted") {
		t.Errorf("errors %+v", out.Errors)
	}
	equal(t, "calls", r.world.took(), []string{"probe", "lease", "put " + thePath, "launch", "release-lease"})
	st := r.state()
	if g := st.Gates["C"]; g.State != record.VerdictInconclusive || g.Seal != nil {
		t.Errorf("gate C is %s", g.State)
	}
	if len(st.Partial) != 1 || st.Partial[0].Step != "C/launch" || st.Partial[0].Outcome.Status != record.StatusFailed {
		t.Errorf("partial %+v", st.Partial)
	}
	r.verify()
	delete(r.world.fail, "launch")
	r.pass(Options{})
	if st := r.state(); len(st.Partial) != 0 || len(st.Unknown) != 0 {
		t.Errorf("after the repair: partial %+v, unknown %+v", st.Partial, st.Unknown)
	}
	r.verify()
}

// silent is the third gate with a plan that makes nothing, and a judge that finds nothing.
type silent struct{ third }

func (silent) Plan(context.Context, View) (Plan, error) { return Plan{}, nil }
func (silent) Judge(View) []record.Finding              { return nil }

func TestMissingEvidenceNeverPasses(t *testing.T) {
	r := newRig(t)
	r.gates = []Gate{first{}, silent{}}
	out, err := r.run(t.Context(), Options{})
	if err != nil || out.Status != problem.Degraded {
		t.Fatalf("got %v, %v; want degraded", out.Status, err)
	}
	if len(out.Errors) != 2 || out.Errors[0].Code != "evidence-missing" {
		t.Errorf("errors %+v", out.Errors)
	}
	if st := r.state().Gates["C"]; st.State != record.VerdictInconclusive {
		t.Errorf("gate C is %s", st.State)
	}
	r.verify()
}

func TestNonJSONAnswerIsNoEvidence(t *testing.T) {
	r := newRig(t)
	r.gates = []Gate{first{}, babble{}}
	out, err := r.run(t.Context(), Options{})
	if err != nil || out.Status != problem.Failed || !strings.Contains(out.Errors[0].Message, "not JSON") {
		t.Fatalf("got %v, %v, %+v", out.Status, err, out.Errors)
	}
}

type babble struct{ third }

func (babble) Plan(context.Context, View) (Plan, error) {
	return Plan{Steps: []Step{{ID: "C/live", Host: "h1", Effect: Observe, Script: "probe h1", Yields: "C/live/e", Limit: second}}}, nil
}

func TestDeletedObjectIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	r.world.took()
	e, ok := r.state().Evidence("C/live/e")
	if !ok {
		t.Fatal("no evidence")
	}
	object := filepath.Join(r.dir, record.ObjectDir, e.Ref.SHA256)
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	v, err := Verify(r.dir, r.gates, []*attest.Public{testSigner().Public()})
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, p := range v.Problems {
		codes[p.Code] = true
	}
	if !codes[record.ProblemMissing] || !codes["verdict_differs"] {
		t.Errorf("problems %+v, want the missing object and the verdict that does not follow", v.Problems)
	}
	out := r.pass(Options{})
	if why := out.Gates[1].Because["C/live/e"]; why != "its file is missing or changed" {
		t.Errorf("because %v", out.Gates[1].Because)
	}
	equal(t, "calls", r.world.took(), []string{"observe", "live"})
}

func TestUnreachableHost(t *testing.T) {
	r := newRig(t)
	r.world.offline = &remote.HopError{Host: "h1", Hop: "h1", Stage: remote.StageConnect, Err: errors.New("connection refused")}
	out, err := r.run(t.Context(), Options{})
	if err != nil || out.Status != problem.Failed || out.Errors[0].Host != "h1" {
		t.Fatalf("got %v, %v, %+v", out.Status, err, out.Errors)
	}
	r.world.offline = nil
	r.pass(Options{})
	r.verify()
}

func TestChangedHostKeyIsUnverified(t *testing.T) {
	r := newRig(t)
	r.world.offline = &remote.HopError{Host: "h1", Hop: "h1", Stage: remote.StageHostKey, Err: &remote.ChangedHostKeyError{}}
	out, err := r.run(t.Context(), Options{})
	if err != nil || out.Status != problem.Unverified {
		t.Fatalf("got %v, %v", out.Status, err)
	}
}

func TestInterrupted(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := problem.New(problem.Interrupted, "interrupted", "stopped by SIGINT", "")
	r.world.after["put"] = func() { cancel(why) }
	out, err := r.run(ctx, Options{})
	if !errors.Is(err, why) || out.Status != problem.Interrupted {
		t.Fatalf("got %v, %v", out.Status, err)
	}
	s := r.state()
	if s.Interrupted == nil || s.Interrupted.Signal != string(problem.Interrupted) || s.Gates["C"].State != record.GateRunning {
		t.Errorf("interrupted %+v, gate C %q", s.Interrupted, s.Gates["C"].State)
	}
	if len(s.Unknown) != 0 {
		t.Errorf("an orderly stop left unknown intents: %+v", s.Unknown)
	}
	delete(r.world.after, "put")
	r.verify()
	r.pass(Options{})
	if s := r.state(); s.Interrupted != nil || s.Resumes == 0 {
		t.Errorf("after resuming: %+v", s.Interrupted)
	}
	r.verify()
}

// TestInterruptedStepIsCanceled cuts a step off, which may have left something.
func TestInterruptedStepIsCanceled(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := problem.New(problem.Terminated, "terminated", "stopped by SIGTERM", "")
	run, end := r.open()
	run.Connect = func(context.Context, string) (Host, error) { return &cutHost{r.world, func() { cancel(why) }}, nil }
	_, err := run.Run(ctx, Options{})
	end()
	if !errors.Is(err, why) {
		t.Fatal(err)
	}
	s := r.state()
	if len(s.Partial) != 1 || s.Partial[0].Step != "C/launch" || s.Partial[0].Outcome.Status != record.StatusCanceled {
		t.Errorf("partial %+v", s.Partial)
	}
	if s.Interrupted == nil || s.Interrupted.Signal != string(problem.Terminated) {
		t.Errorf("interrupted %+v", s.Interrupted)
	}
	r.verify()
	r.pass(Options{})
}

// cutHost is a host whose launch is cut off, as fleet/remote reports it: by the cause alone.
type cutHost struct {
	*world
	cut func()
}

func (h *cutHost) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	if nameOf(c) != "launch" {
		return h.world.Run(ctx, c)
	}
	h.cut()
	<-ctx.Done()
	return remote.Result{Code: -1}, context.Cause(ctx)
}

func TestGuard(t *testing.T) {
	r := newRig(t)
	run, _ := r.open()
	if _, err := run.Run(t.Context(), Options{}); err != nil {
		t.Fatal(err)
	}
	digest := r.world.files[thePath]
	for what, c := range map[string]struct {
		op remote.Operation
		ok bool
	}{
		"a planned command":          {remote.Operation{Kind: remote.KindRun, Argv: verb("live")}, true},
		"a planned script":           {remote.Operation{Kind: remote.KindRun, Script: "probe h1"}, true},
		"a planned file":             {remote.Operation{Kind: remote.KindPut, Path: thePath, SHA256: digest}, true},
		"other content":              {remote.Operation{Kind: remote.KindPut, Path: thePath, SHA256: strings.Repeat("0", 64)}, false},
		"another file":               {remote.Operation{Kind: remote.KindPut, Path: thePath + "x", SHA256: digest}, false},
		"another command":            {remote.Operation{Kind: remote.KindRun, Argv: []string{"rm", "-rf", "/"}}, false},
		"a longer command":           {remote.Operation{Kind: remote.KindRun, Argv: append(verb("live"), "x")}, false},
		"words joined otherwise":     {remote.Operation{Kind: remote.KindRun, Argv: []string{binary, "host live"}}, false},
		"a command as a script":      {remote.Operation{Kind: remote.KindRun, Script: strings.Join(verb("live"), " ")}, false},
		"a planned command's script": {remote.Operation{Kind: remote.KindRun, Argv: verb("live"), Script: "x"}, false},
		"reading":                    {remote.Operation{Kind: remote.KindGet, Path: "/etc/passwd"}, true},
		"dialling":                   {remote.Operation{Kind: remote.KindDial, Address: "127.0.0.1:1"}, true},
	} {
		if err := run.Guard(c.op); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrUnplanned) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestCloseEndsConnections(t *testing.T) {
	r := newRig(t)
	r.pass(Options{})
	if r.world.closed != 1 || r.world.lease != "" {
		t.Errorf("closed %d times, lease %q", r.world.closed, r.world.lease)
	}
}
