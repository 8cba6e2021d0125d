package gates

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Rollback takes the fleet back to the state after gate to, or finishes a rollback
// that was cut off. It ends with a live look and a record of what could not come back.
func (r *Runner) Rollback(ctx context.Context, p RollbackPlan) (RollbackResult, error) {
	res := RollbackResult{To: p.To, Stopped: []string{}, Restored: []string{}, Rerun: []string{}, Residue: []string{}, Findings: []record.Finding{}}
	if len(p.Unowned) > 0 {
		return res, refuse(p.Unowned)
	}
	ctx, abort := r.abortable(ctx)
	defer abort(nil)
	if err := r.takeLease(ctx); err != nil { // before the record says that a rollback began
		return res, err
	}
	if err := r.sealLeft(); err != nil {
		return res, err
	}
	if rb := r.Record.State().Rollback; rb != nil && rb.To != p.To {
		return res, problem.New(problem.Refused, "rollback_unfinished", fmt.Sprintf("a rollback to gate %s was begun and is not finished", rb.To),
			"finish it first: narwhal gate rollback --to "+rb.To)
	} else if done, ok := r.standsAt(ctx, p); rb == nil && ok {
		if err := r.reseal(); err != nil {
			return done, err
		}
		return done, r.sealRollbackOnce(done)
	} else if rb == nil {
		ref, err := r.store("application/json", mustJSON(p))
		if err != nil {
			return res, err
		}
		if _, err := r.append(record.KindRollbackStarted, "", "", "", record.RollbackStarted{To: p.To, Plan: &ref}); err != nil {
			return res, err
		}
	} else {
		res.Stopped, res.Restored = r.undoneBefore(*rb)
	}
	for _, s := range p.Steps {
		if ctx.Err() != nil {
			return res, context.Cause(ctx)
		}
		if err := r.leased(ctx); err != nil {
			return res, err
		}
		if err := r.undo(ctx, s, &res); err != nil {
			return res, err
		}
	}
	return r.endRollback(ctx, p, res)
}

// standsAt reports whether the last rollback went to the same gate, nothing has run since,
// and a live look finds what the kept gates promise: then there is nothing to take back
// or to restore, at most a seal to make.
func (r *Runner) standsAt(ctx context.Context, p RollbackPlan) (RollbackResult, bool) {
	state := r.Record.State()
	last := state.LastRollback
	if last == nil || last.Done == nil || last.To != p.To || len(p.Steps) > 0 {
		return RollbackResult{}, false
	}
	for _, letter := range p.Rerun {
		if g, ok := state.Gates[letter]; ok && g.State != record.GateUndone && g.State != record.GatePending {
			return RollbackResult{}, false
		}
	}
	if r.settle(ctx) != nil {
		return RollbackResult{}, false // the end of the rollback says why
	}
	for _, g := range r.Gates {
		if !slices.Contains(p.Rerun, g.Info().Letter) && len(r.needs(g)) > 0 {
			return RollbackResult{}, false
		}
	}
	res, err := resultOf(p.To, *last.Done, r.Record.Load)
	return res, err == nil
}

// undoneBefore names what an earlier, cut-off attempt already took back.
func (r *Runner) undoneBefore(rb record.Rollback) (stopped, restored []string) {
	stopped, restored = []string{}, []string{}
	if rb.Plan == nil {
		return stopped, restored
	}
	b, err := r.Record.Load(*rb.Plan)
	var p RollbackPlan
	if err != nil || json.Unmarshal(b, &p) != nil {
		return stopped, restored
	}
	for _, done := range rb.Steps {
		for _, s := range p.Steps {
			if s.ID == done.ID && done.Status == record.RollbackOK {
				stopped, restored = addNonEmpty(stopped, s.Stops), addNonEmpty(restored, s.Restores)
			}
		}
	}
	return stopped, restored
}

func addNonEmpty(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// endRollback brings back what the kept gates promise, looks at the fleet live and
// says which gates must run again.
func (r *Runner) endRollback(ctx context.Context, p RollbackPlan, res RollbackResult) (RollbackResult, error) {
	for _, letter := range p.Rerun {
		g := r.Record.State().Gates[letter]
		if g.State == "" || g.State == record.GatePending || g.State == record.GateUndone {
			continue
		}
		if _, err := r.append(record.KindUndone, letter, "", "", record.Undone{How: "rolled back to gate " + p.To}); err != nil {
			return res, err
		}
	}
	res.Rerun = slices.Clone(p.Rerun)
	if err := r.settle(ctx); ctx.Err() != nil {
		return res, context.Cause(ctx) // the same command goes on with the look
	} else if err != nil {
		res.Residue = append(res.Residue, "the fleet could not be looked at again: "+clean(err.Error(), 300))
	}
	for _, g := range r.Gates {
		letter := g.Info().Letter
		if slices.Contains(p.Rerun, letter) {
			break
		}
		restored, err := r.restore(ctx, g)
		if ctx.Err() != nil {
			return res, context.Cause(ctx)
		}
		if err != nil {
			return res, err
		}
		res.Restored = append(res.Restored, restored...)
		if r.Record.State().Gates[letter].State != record.VerdictPassed {
			res.Rerun = append(res.Rerun, letter)
		}
	}
	slices.Sort(res.Rerun)
	found, err := r.lookBack(ctx, p, len(res.Restored) > 0)
	if err != nil {
		return res, err
	}
	res.Findings = append(res.Findings, found...)
	done, err := r.ended(res)
	if err != nil {
		return res, err
	}
	if _, err := r.append(record.KindRollbackDone, "", "", "", done); err != nil {
		return res, err
	}
	if err := r.reseal(); err != nil {
		return res, err
	}
	return res, r.sealRollback(res)
}

// restore repeats what a kept gate needs and no longer has: files by digest, engines
// from their recorded launch, and the live checks that depend on them.
func (r *Runner) restore(ctx context.Context, g Gate) ([]string, error) {
	needs := r.needs(g)
	if len(needs) == 0 {
		return nil, nil
	}
	out, err := r.gate(ctx, g, Options{})
	if err != nil && problem.StatusOf(err) != problem.Failed {
		return nil, err
	}
	var names []string
	if out.State == record.VerdictPassed {
		for _, k := range sortedKeys(needs) {
			names = append(names, string(k))
		}
	}
	return names, nil
}
