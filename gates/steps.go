package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// errSkipped marks steps whose needs did not succeed.
var errSkipped = errors.New("not started: what it needs did not succeed")

// schedule is the state of one plan while it runs. Only the loop in steps touches it.
type schedule struct {
	plan    Plan
	pending []int
	state   map[string]string // step id → "ok" | "failed"
	busy    map[string]bool   // exclusive resources in use
	hosts   map[string]int    // running steps by host
	running int
}

type finished struct {
	step Step
	err  error
}

// steps runs a plan: what is independent at once, at most fan_out hosts wide. It
// returns the steps that failed; the error is of the record, which ends everything.
func (r *Runner) steps(ctx context.Context, g Gate, plan Plan) ([]StepError, error) {
	s := &schedule{plan: plan, state: map[string]string{}, busy: map[string]bool{}, hosts: map[string]int{}}
	taken := r.taken(g.Info().Letter)
	for i, step := range plan.Steps {
		if step.File != nil && step.Yields == "" && taken[step.ID] == string(recordedOf(step)) {
			s.state[step.ID] = "ok"
			continue
		}
		s.pending = append(s.pending, i)
	}
	results := make(chan finished)
	failed := map[string]error{}
	var fatal error
	for len(s.pending) > 0 || s.running > 0 {
		before := len(s.pending)
		for _, step := range s.ready(ctx, fatal != nil, r.fanOut()) {
			go func() { results <- finished{step, r.step(stepContext(ctx, step), g, step)} }()
		}
		if s.running == 0 && len(s.pending) < before {
			continue // what was given up may free a closing step
		}
		if s.running == 0 {
			for _, i := range s.pending {
				failed[plan.Steps[i].ID] = errSkipped
			}
			break
		}
		f := <-results
		s.done(f)
		if f.err != nil {
			failed[f.step.ID] = f.err
			var w *recordError
			if errors.As(f.err, &w) {
				fatal = f.err
			}
		}
	}
	var errs []StepError
	for _, step := range plan.Steps {
		if err := failed[step.ID]; err != nil && !errors.Is(err, errSkipped) && !errors.Is(err, errHalted) {
			errs = append(errs, StepError{step, err})
		}
	}
	return errs, fatal
}

// taken are the steps that took effect since the gate was started, with what they did.
// A run that was cut off does not place the same file again.
func (r *Runner) taken(letter string) map[string]string {
	state := r.Record.State()
	out := map[string]string{}
	for _, a := range state.Done {
		if a.Gate == letter && !a.Time.Before(state.Gates[letter].Started) {
			out[a.Step] = string(a.Undo)
		}
	}
	return out
}

// stepContext lets closing steps run although the command was interrupted.
func stepContext(ctx context.Context, s Step) context.Context {
	if s.Last {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// ready takes the steps that may start now out of pending. A step in order that waits for a
// resource keeps what it asks for from later ones.
func (s *schedule) ready(ctx context.Context, stop bool, fanOut int) []Step {
	var out []Step
	var rest []int
	claimed := map[string]bool{}
	for _, i := range s.pending {
		step := s.plan.Steps[i]
		verdict := s.may(step, fanOut)
		if verdict == "now" && slices.ContainsFunc(step.Exclusive, func(x string) bool { return claimed[x] }) {
			verdict = "busy"
		}
		switch {
		case verdict == "never", stop, ctx.Err() != nil && !step.Last:
			s.state[step.ID] = "failed"
		case verdict == "now":
			s.start(step)
			out = append(out, step)
		default:
			rest = append(rest, i)
		}
		if verdict == "busy" && step.InOrder {
			for _, x := range step.Exclusive {
				claimed[x] = true
			}
		}
	}
	s.pending = rest
	return out
}

// may is "now", "never", "later" while something that the step needs is not done, or "busy".
func (s *schedule) may(step Step, fanOut int) string {
	for _, n := range step.Needs {
		switch s.state[n] {
		case "failed":
			if !step.Last {
				return "never"
			}
		case "ok":
		default:
			return "later"
		}
	}
	if step.Last && s.unfinished(step) {
		return "later"
	}
	for _, x := range step.Exclusive {
		if s.busy[x] {
			return "busy"
		}
	}
	if step.Host != "" && s.hosts[step.Host] == 0 && len(s.hosts) >= fanOut {
		return "busy"
	}
	return "now"
}

// unfinished reports whether a step that is not a closing one still waits or runs.
func (s *schedule) unfinished(last Step) bool {
	for _, o := range s.plan.Steps {
		if !o.Last && s.state[o.ID] == "" {
			return true
		}
	}
	return false
}

func (s *schedule) start(step Step) {
	for _, x := range step.Exclusive {
		s.busy[x] = true
	}
	if step.Host != "" { // the workstation takes no part in the fan-out
		s.hosts[step.Host]++
	}
	s.running++
}

func (s *schedule) done(f finished) {
	for _, x := range f.step.Exclusive {
		delete(s.busy, x)
	}
	if s.hosts[f.step.Host]--; s.hosts[f.step.Host] <= 0 {
		delete(s.hosts, f.step.Host)
	}
	s.running--
	s.state[f.step.ID] = "ok"
	if f.err != nil {
		s.state[f.step.ID] = "failed"
	}
}

func (r *Runner) fanOut() int {
	if r.Fleet.Deploy != nil && r.Fleet.Deploy.Limits.FanOut > 0 {
		return r.Fleet.Deploy.Limits.FanOut
	}
	return 32
}

// recordError marks a failure to write the record.
type recordError struct{ err error }

func (e *recordError) Error() string { return e.err.Error() }
func (e *recordError) Unwrap() error { return e.err }

// step runs one step between its intent and its outcome and stores its evidence.
func (r *Runner) step(ctx context.Context, g Gate, s Step) error {
	letter := g.Info().Letter
	var intent int64
	s, err := r.resolved(s)
	if err == nil && s.Effect != Observe {
		err = r.leased(ctx)
	}
	if err != nil { // nothing was begun
		r.Progress.Step(letter, s, 0, err, true)
		return err
	}
	if s.Effect != Observe {
		ev, err := r.append(record.KindIntent, letter, s.ID, s.Host, intentOf(s))
		if err != nil {
			return &recordError{err}
		}
		intent = ev.Seq
	}
	r.Progress.Step(letter, s, 0, nil, false)
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, s.Limit.D()+graceAfterLimit)
	out, err := r.perform(limited, g, s)
	out, err = r.maskBytes(out, s.Media), r.maskError(err)
	cancel()
	took := time.Since(begin)
	if err == nil && s.Yields != "" && s.Media == "" && !json.Valid(out) {
		err = fmt.Errorf("read the answer of %s: not JSON", s.ID)
	}
	r.Progress.Step(letter, s, took, err, true)
	if werr := r.finish(ctx, g, s, intent, out, took, err); werr != nil {
		return &recordError{werr}
	}
	if h, ok := g.(WithHalts); ok && err == nil && s.Yields != "" {
		if why := h.Halts(s.Yields, out); why != "" {
			return fmt.Errorf("%w: %s", errHalted, why)
		}
	}
	return err
}

// errHalted marks a step that went well and whose observation forbids what needs it.
var errHalted = errors.New("what was observed forbids the next step")

// graceAfterLimit is how much longer than its limit a step may take to be cut off.
const graceAfterLimit = 5 * time.Second

// finish records evidence first, then the outcome: a crash between the two leaves an
// unknown intent, which is observed again.
func (r *Runner) finish(ctx context.Context, g Gate, s Step, intent int64, out []byte, took time.Duration, err error) error {
	letter := g.Info().Letter
	var ref *record.Ref
	if err == nil && s.Yields != "" {
		media := s.Media
		if media == "" {
			media = "application/json"
		}
		stored, serr := r.store(media, out)
		if serr != nil {
			return serr
		}
		ref = &stored
		r.learn(g.Facts(s.Yields, out))
		bonds := r.bonds(s.Yields)
		if _, err := r.append(record.KindEvidence, letter, s.ID, s.Host, record.Evidence{Key: s.Yields, Ref: stored, Bonds: bonds}); err != nil {
			return err
		}
	}
	if s.Effect == Observe && err == nil {
		return nil
	}
	o := record.Outcome{Intent: intent, Status: record.StatusOK, DurationMS: took.Milliseconds(), Output: ref}
	if err != nil {
		o.Status, o.Error = record.StatusFailed, clean(err.Error(), 2000)
		if ctx.Err() != nil || errors.Is(err, context.Canceled) {
			o.Status = record.StatusCanceled
		}
	}
	if _, err := r.append(record.KindOutcome, letter, s.ID, s.Host, o); err != nil {
		return err
	}
	if err == nil {
		return r.supersede(letter, s, intent)
	}
	return nil
}

func (r *Runner) learn(facts map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.facts, facts)
}

func intentOf(s Step) record.Intent {
	return record.Intent{Summary: s.Title, Effect: string(s.Effect), Argv: s.Argv, Undo: recordedOf(s)}
}

// perform does what the step says and returns what it printed.
func (r *Runner) perform(ctx context.Context, g Gate, s Step) ([]byte, error) {
	if s.Local != nil {
		return r.performLocal(ctx, g, s)
	}
	h, err := r.host(ctx, s.Host)
	if err != nil {
		return nil, err
	}
	switch {
	case s.File != nil:
		return r.performFile(ctx, h, s)
	case s.Fetch != "":
		return h.Get(ctx, s.Fetch, maxFetch)
	}
	secret := map[string]fleet.Secret{}
	for name, ref := range s.Secrets {
		v, err := r.Secrets(ref)
		if err != nil {
			return nil, fmt.Errorf("read secret %s: %w", name, err)
		}
		secret[name] = v
	}
	res, err := h.Run(ctx, r.permit(remote.Command{Argv: s.Argv, Script: s.Script, SecretEnv: secret, Limit: s.Limit.D()}))
	if err != nil {
		return nil, withStderr(err, res)
	}
	if res.Truncated {
		return nil, fmt.Errorf("read the answer of %s: longer than the limit", s.ID)
	}
	return res.Stdout, nil
}

// maxFetch bounds a file read from a host.
const maxFetch = 64 << 20

func (r *Runner) performLocal(ctx context.Context, g Gate, s Step) ([]byte, error) {
	l, ok := g.(WithLocals)
	if !ok {
		return nil, fmt.Errorf("run %s: gate %s has no local operations", s.ID, g.Info().Letter)
	}
	op, ok := l.Locals()[s.Local.Op]
	if !ok {
		return nil, fmt.Errorf("run %s: no local operation %q", s.ID, s.Local.Op)
	}
	for _, host := range sortedKeys(s.Local.Runs) {
		for _, c := range s.Local.Runs[host] {
			r.permit(remote.Command{Argv: c.Argv, Script: c.Script})
		}
	}
	limited, cancel := context.WithTimeout(ctx, s.Limit.D())
	defer cancel()
	return op(limited, &localEnv{runner: r, step: s}, s.Local.Args)
}
