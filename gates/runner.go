package gates

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Runner takes a fleet through its gates. One Runner serves one command; it owns the
// connections that it opens until Close.
type Runner struct {
	Gates   []Gate
	Fleet   fleet.Fleet
	Release Release
	Record  *record.Run
	Dir     string // folder of the record
	RunID   string
	Connect Connect
	Secrets func(fleet.SecretRef) (fleet.Secret, error)
	// Approve is asked before a plan that changes hosts; nil refuses such plans.
	Approve  func(Info, Plan) error
	Progress Progress
	// Signer seals passed gates.
	Signer *attest.Signer

	// Holder identifies the operator's state folder to the lease on the router's host.
	Holder string

	mu      sync.Mutex
	facts   map[string]string
	hosts   map[string]*dialed
	resumed bool
	lease   *lease
	abort   context.CancelCauseFunc // ends the command when somebody else takes the lease
	back    *record.WayBack
	secrets [][]byte // values to mask; nil until they are needed
	guard   sync.Map // permitted commands and paths
}

// Options says which gates to run.
type Options struct {
	To    string          // last gate, "" = G
	Only  string          // this gate alone
	Again map[string]bool // repeat although it holds
	// PlanDigest, if set, must equal the digest of the plan about to run.
	PlanDigest string
	// narrow, if set, changes what a gate makes.
	narrow func(g Gate, needs map[record.Key]string)
}

// Outcome is what became of the gates.
type Outcome struct {
	Gates   []GateOutcome
	Changed bool // anything was executed
	Errors  []*problem.Problem
	Status  problem.Status
}

// GateOutcome is one gate's part.
type GateOutcome struct {
	Info   Info
	State  string
	Reused []record.Key
	// Because holds the reason for each repeated piece of evidence.
	Because map[record.Key]string
	Errors  []StepError
	// disrupted says that its plan interrupted what runs.
	disrupted bool
}

// StepError is a step that failed.
type StepError struct {
	Step Step
	Err  error
}

// Run continues the record until the last wanted gate holds, or one does not. A canceled
// context ends it in order, with its cause as the error.
func (r *Runner) Run(ctx context.Context, o Options) (Outcome, error) {
	ctx, abort := r.abortable(ctx)
	defer abort(nil)
	out, err := r.run(ctx, o)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		out.Status = problem.StatusOf(err)
		if r.Record.State().Seq > 1 {
			if _, werr := r.append(record.KindInterrupted, "", "", "", record.Interrupted{Signal: string(out.Status)}); werr != nil {
				err = werr
			}
		}
	}
	return out, err
}

func (r *Runner) run(ctx context.Context, o Options) (Outcome, error) {
	out := Outcome{Status: problem.Success}
	if rb := r.Record.State().Rollback; rb != nil {
		return r.fail(out, problem.New(problem.Refused, "rollback_unfinished",
			fmt.Sprintf("a rollback to gate %s was begun and is not finished", rb.To),
			fmt.Sprintf("finish it first: narwhal gate rollback --to %s", rb.To)))
	}
	if err := r.settle(ctx); err != nil {
		return r.fail(out, err)
	}
	if err := r.replacing(); err != nil {
		return r.fail(out, err)
	}
	if err := r.askedForLeft(); err != nil {
		return r.fail(out, err)
	}
	if err := r.sealLeft(); err != nil {
		return r.fail(out, err)
	}
	if err := r.keepPlan(ctx, o); err != nil {
		return r.fail(out, err)
	}
	returned := map[string]bool{}
	for i := 0; i < len(r.Gates); i++ {
		g := r.Gates[i]
		info := g.Info()
		if o.Only != "" && o.Only != info.Letter {
			continue
		}
		res, err := r.gate(ctx, g, o)
		out.put(res)
		out.Changed = out.Changed || len(res.Because) > 0
		if err != nil {
			return r.fail(out, err)
		}
		if res.State != record.VerdictPassed {
			return r.unpassed(out, res)
		}
		if back := r.shaken(i, res); back < i && o.Only == "" && !returned[info.Letter] {
			returned[info.Letter] = true
			o.Again = nil // it was repeated
			i = back - 1
			continue
		}
		if info.Letter == o.To {
			break
		}
	}
	return out, r.reseal()
}

// settle brings the record and the world together: facts, then unknown intents.
func (r *Runner) settle(ctx context.Context) error {
	r.mu.Lock()
	r.facts = known(r.Record.State())
	maps.Copy(r.facts, Inputs(r.Fleet, r.Release))
	r.mu.Unlock()
	if r.Record.State().Seq > 1 {
		if err := r.observe(ctx); err != nil {
			return err
		}
	}
	return r.resolveUnknown(ctx)
}

// gate runs one gate if it does not hold.
func (r *Runner) gate(ctx context.Context, g Gate, o Options) (GateOutcome, error) {
	info := g.Info()
	res := GateOutcome{Info: info, Because: map[record.Key]string{}}
	needs := r.needs(g)
	if o.Again[info.Letter] {
		for _, k := range g.Expect(r.Fleet) {
			needs[k] = AskedToRepeat(info.Letter)
		}
	}
	if o.narrow != nil {
		o.narrow(g, needs)
	}
	st := r.Record.State().Gates[info.Letter]
	for _, k := range g.Expect(r.Fleet) {
		if _, again := needs[k]; !again {
			res.Reused = append(res.Reused, k)
		}
	}
	if len(needs) == 0 && st.State == record.VerdictPassed {
		res.State = st.State
		r.Progress.Gate(info, st.State, "holds", nil)
		return res, nil
	}
	plan, err := g.Plan(ctx, r.view(needs))
	if err != nil {
		return res, err
	}
	plan.Gate = info.Letter
	if err := plan.validate(); err != nil {
		return res, err
	}
	if err := r.approve(info, plan); err != nil {
		return res, err
	}
	if plan.Mutates() {
		if err := r.takeLease(ctx); err != nil {
			return res, err
		}
	}
	res.Because, res.disrupted = needs, slices.ContainsFunc(plan.Steps, func(s Step) bool { return s.Effect == Disrupt })
	return r.execute(ctx, g, plan, needs, res)
}

// AskedToRepeat is why evidence is made although it holds.
func AskedToRepeat(letter string) string { return "asked to repeat gate " + letter }

func (r *Runner) approve(info Info, plan Plan) error {
	var allow []string
	if r.Fleet.Deploy != nil {
		allow = r.Fleet.Deploy.Policy.Allow
	}
	if !plan.asks(allow) {
		return nil
	}
	if r.Approve == nil {
		return problem.New(problem.Refused, "approval_missing",
			fmt.Sprintf("gate %s changes hosts and nobody approved its plan", info.Letter), "look at it with narwhal gate plan, then give --yes")
	}
	return r.Approve(info, plan)
}

// execute records the gate's start, runs its plan and judges what came of it.
func (r *Runner) execute(ctx context.Context, g Gate, plan Plan, needs map[record.Key]string, res GateOutcome) (GateOutcome, error) {
	info := g.Info()
	if err := r.begin(g, plan, needs); err != nil {
		return res, err
	}
	r.Progress.Gate(info, record.GateRunning, reason(needs), nil)
	errs, err := r.steps(ctx, g, plan)
	res.Errors = errs
	if err != nil {
		return res, err
	}
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	state, findings := r.judge(g, errs)
	said, err := r.verdict(g, state, findings)
	if err != nil {
		return res, err
	}
	if _, err := r.append(record.KindVerdict, info.Letter, "", "", said); err != nil {
		return res, err
	}
	res.State = state
	r.Progress.Gate(info, state, "", findings)
	if state == record.VerdictPassed {
		return res, r.seal(info.Letter)
	}
	return res, nil
}

func (r *Runner) begin(g Gate, plan Plan, needs map[record.Key]string) error {
	letter := g.Info().Letter
	state := r.Record.State()
	for _, s := range plan.Steps {
		if _, ok := needs[s.Yields]; !ok && s.Yields != "" {
			needs[s.Yields] = "what it rests on is made again"
		}
	}
	for _, k := range sortedKeys(needs) {
		if e, ok := state.Evidence(k); ok && !e.Stale {
			if _, err := r.append(record.KindStale, letter, "", "", record.Stale{Key: k, Because: needs[k]}); err != nil {
				return err
			}
		}
	}
	if err := r.voidActivation(plan); err != nil {
		return err
	}
	// A gate that was cut off goes on: it is not started again, and its plan is recorded
	// again only when it is another one by now.
	before := state.Gates[letter]
	cutOff := before.State == record.GateRunning
	if cutOff && before.PlanDigest == plan.Digest() {
		return nil
	}
	if !cutOff {
		if _, err := r.append(record.KindStarted, letter, "", "", record.Started{}); err != nil {
			return err
		}
	}
	ref, err := r.store("application/json", mustJSON(plan))
	if err != nil {
		return err
	}
	_, err = r.append(record.KindPlan, letter, "", "", record.Plan{Digest: plan.Digest(), Object: ref, Steps: len(plan.Steps)})
	return err
}

// reason sums up why evidence is made, in one line.
func reason(needs map[record.Key]string) string {
	set := map[string]bool{}
	for _, why := range needs {
		set[why] = true
	}
	whys := slices.Sorted(maps.Keys(set))
	if len(whys) > 3 {
		whys = append(whys[:3], fmt.Sprintf("and %d more", len(set)-3))
	}
	return strings.Join(whys, "; ")
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
