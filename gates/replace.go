package gates

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Stages of a replacement beside "gate A" to "gate F".
const (
	stageOut      = "out"
	stageStop     = "stop"
	stageActivate = "activate"
	stageBack     = "back"
)

// Replace takes engines of a serving fleet through their gates anew, or goes on with that. An
// engine returns only when gates A to F hold for it; what fails leaves it out of service.
func (r *Runner) Replace(ctx context.Context, p ReplacePlan) (Outcome, error) {
	ctx, abort := r.abortable(ctx)
	defer abort(nil)
	out, err := r.replace(ctx, p)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		out.Status = problem.StatusOf(err)
		if _, werr := r.append(record.KindInterrupted, "", "", "", record.Interrupted{Signal: string(out.Status)}); werr != nil {
			err = werr
		}
	}
	return out, err
}

func (r *Runner) replace(ctx context.Context, p ReplacePlan) (Outcome, error) {
	out := Outcome{Status: problem.Success}
	if len(p.Unowned) > 0 {
		return r.fail(out, refuse(p.Unowned))
	}
	if err := r.takeLease(ctx); err != nil { // before the record says that a replacement began
		return r.fail(out, err)
	}
	if err := r.sealLeft(); err != nil {
		return r.fail(out, err)
	}
	if err := r.beginReplacement(p); err != nil {
		return r.fail(out, err)
	}
	p.Resumes, out.Changed = true, true
	for _, engines := range p.split() {
		if r.isBack(p, engines) {
			continue
		}
		if err := r.replaceRound(ctx, p, engines, &out); err != nil {
			return r.fail(out, err)
		}
		if out.Status != problem.Success {
			return out, nil
		}
	}
	if err := r.reseal(); err != nil {
		return r.fail(out, err)
	}
	if _, err := r.append(record.KindReplaceDone, "", "", "", record.ReplaceDone{Engines: p.Engines}); err != nil {
		return r.fail(out, err)
	}
	return out, nil
}

func (r *Runner) beginReplacement(p ReplacePlan) error {
	if p.Resumes {
		return nil
	}
	if p.Back != nil {
		ref, err := r.store("application/json", mustJSON(r.Fleet))
		if err != nil {
			return err
		}
		p.Back.Fleet = ref
	}
	ref, err := r.store("application/json", mustJSON(p))
	if err != nil {
		return err
	}
	b := record.ReplaceStarted{Engines: p.Engines, Was: map[string]string{}, Wave: p.Wave, Only: p.Only, Profile: p.Profile, Plan: &ref, Back: p.Back}
	facts := r.currentFacts()
	for _, e := range p.Engines {
		if !slices.Contains(p.keeps, e) {
			b.Was[e] = facts["proc/"+fleet.RankProcess(e, 0)+"/id"]
		}
	}
	_, err = r.append(record.KindReplaceStarted, "", "", "", b)
	return err
}

// replaceRound replaces engines at once. A gate or step that says no is in out.
func (r *Runner) replaceRound(ctx context.Context, p ReplacePlan, engines []string, out *Outcome) error {
	serving, launcher, err := r.replacers()
	if err != nil {
		return err
	}
	x := &replaceStages{r: r, engines: engines, out: out}
	outing := p.outing(engines)
	if !r.kept(p, engines) {
		x.steps(ctx, stageOut, serving.(Gate), func() ([]Step, error) { return serving.Out(r.view(nil), outing), nil })
	}
	if x.good() && r.toStop(p, engines) {
		x.steps(ctx, stageStop, launcher.(Gate), func() ([]Step, error) { return launcher.Stop(r.view(nil), engines) })
	}
	if x.good() {
		x.err = r.settle(ctx)
	}
	for _, g := range r.Gates {
		if x.good() && g.Info().Letter < "G" {
			x.gate(ctx, g, r.narrowed(p, engines))
		}
	}
	if x.good() && r.behind() {
		x.steps(ctx, stageActivate, serving.(Gate), func() ([]Step, error) { return serving.Activate(r.view(nil), outing) })
	}
	if x.good() {
		x.steps(ctx, stageBack, serving.(Gate), func() ([]Step, error) { return serving.Back(r.view(nil), outing), nil })
	}
	return x.err
}

// behind reports whether the router was started with other profiles than those of now and has
// not taken these up.
func (r *Runner) behind() bool {
	e, ok := r.Record.State().Evidence(routerKey)
	return ok && r.currentFacts()[profilesActive] != startedWith(e)
}

// replaceStages records one stage after the other, until one does not end well.
type replaceStages struct {
	r       *Runner
	engines []string
	out     *Outcome
	err     error
}

func (x *replaceStages) good() bool { return x.err == nil && x.out.Status == problem.Success }

// stage runs do between two lines of the record. failed says what did not go well.
func (x *replaceStages) stage(ctx context.Context, name string, do func() (failed string, err error)) {
	s := record.ReplaceStep{Engines: x.engines, Stage: name, Status: record.ReplaceRunning}
	if _, x.err = x.r.append(record.KindReplaceStep, "", "", "", s); x.err != nil {
		return
	}
	begin := time.Now()
	failed, err := do()
	s.DurationMS, s.Status = time.Since(begin).Milliseconds(), record.ReplaceOK
	if ctx.Err() != nil {
		x.err = context.Cause(ctx)
		return // the same command goes on here
	}
	if err != nil {
		failed = err.Error()
	}
	if failed != "" {
		s.Status, s.Error = record.ReplaceFailed, clean(failed, 1000)
	}
	if _, werr := x.r.append(record.KindReplaceStep, "", "", "", s); werr != nil {
		x.err = werr
		return
	}
	if x.err = err; failed != "" && err == nil {
		x.out.Errors = append(x.out.Errors, x.stays(name))
	}
}

// stays says where a replacement stopped and what its engines are now.
func (x *replaceStages) stays(stage string) *problem.Problem {
	all := strings.Join(x.engines, ", ")
	text := fmt.Sprintf("the replacement of %s stopped at stage %s: it stays out of service", clean(all, 200), stage)
	p := problem.New(x.out.Status, "replacement_stopped", text, "mend what the errors name, then narwhal gate replace goes on from there; narwhal gate replace --back takes it back; narwhal gate status shows it")
	if len(x.engines) == 1 {
		p.Engine = x.engines[0]
	}
	return p
}

// steps runs planned steps of a gate as a stage.
func (x *replaceStages) steps(ctx context.Context, name string, g Gate, plan func() ([]Step, error)) {
	if !x.good() {
		return
	}
	x.stage(ctx, name, func() (string, error) {
		list, err := plan()
		if err != nil {
			return "", err
		}
		p := Plan{Gate: g.Info().Letter, Steps: list}
		if err := p.validate(); err != nil {
			return "", err
		}
		errs, err := x.r.steps(ctx, g, p)
		if err != nil || len(errs) == 0 {
			return "", err
		}
		x.out.Status = statusOf(errs)
		var texts []string
		for _, e := range errs {
			q := problem.Wrap(StatusOf(e.Err), "step-failed", e.Step.ID, e.Err, hintOf(e.Err))
			q.Gate, q.Host, q.Engine = p.Gate, e.Step.Host, e.Step.Engine
			if all := problem.All(e.Err); len(all) > 0 {
				q.Code = all[0].Code
			}
			x.out.Errors, texts = append(x.out.Errors, q), append(texts, fmt.Sprintf("%s: %v", e.Step.ID, e.Err))
		}
		return strings.Join(texts, "; "), nil
	})
}

// gate runs one gate for the engines as a stage, where it does not hold for them.
func (x *replaceStages) gate(ctx context.Context, g Gate, narrow func(Gate, map[record.Key]string)) {
	r, letter := x.r, g.Info().Letter
	needs := r.needs(g)
	narrow(g, needs)
	if len(needs) == 0 && r.Record.State().Gates[letter].State == record.VerdictPassed {
		return
	}
	x.stage(ctx, "gate "+letter, func() (string, error) {
		for k := range needs {
			if err := r.recall(k, needs[k]); err != nil {
				return "", err
			}
		}
		res, err := r.gate(ctx, g, Options{narrow: narrow})
		x.out.put(res)
		if err != nil || res.State == record.VerdictPassed {
			return "", err
		}
		*x.out, err = r.unpassed(*x.out, res)
		return "gate " + letter + " is " + res.State, err
	})
}
