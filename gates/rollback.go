package gates

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// RollbackPlan is what a rollback will do, as data: undo newest first.
type RollbackPlan struct {
	To    string     `json:"to"`
	Steps []UndoStep `json:"steps"`
	// Kept are actions that nothing takes back; Rerun are the gates after To.
	Kept  []string `json:"kept,omitempty"`
	Rerun []string `json:"rerun"`
}

// UndoStep takes back one recorded action.
type UndoStep struct {
	ID     string `json:"id"`
	Gate   string `json:"gate"`
	Host   string `json:"host"`
	Intent int64  `json:"intent"`
	Undo
}

// RollbackResult is what a rollback left.
type RollbackResult struct {
	To       string   `json:"to"`
	Stopped  []string `json:"stopped"`
	Restored []string `json:"restored"`
	Rerun    []string `json:"rerun"`
	Residue  []string `json:"residue"`
}

// PlanRollback lists what must be taken back to stand after gate to. Actions whose
// outcome is unknown, and such as failed, are taken back as well: undo is idempotent.
func (r *Runner) PlanRollback(ctx context.Context, to string) (RollbackPlan, error) {
	letters := r.letters()
	at := slices.Index(letters, to)
	if at < 0 {
		return RollbackPlan{}, problem.New(problem.Invalid, "unknown_gate", fmt.Sprintf("no gate %q", to), "gates are A to G")
	}
	state := r.Record.State()
	p := RollbackPlan{To: to, Rerun: slices.Clone(letters[at+1:])}
	actions := slices.Concat(state.Done, state.Partial, state.Unknown)
	slices.SortFunc(actions, func(a, b record.Action) int { return int(b.Seq - a.Seq) })
	seen := map[string]bool{}
	for _, a := range actions {
		if slices.Index(letters, a.Gate) <= at || a.Effect == record.EffectObserve || seen[a.Gate+a.Step] {
			continue
		}
		seen[a.Gate+a.Step] = true
		var rec recorded
		if json.Unmarshal(a.Undo, &rec) != nil || rec.Undo == nil {
			p.Kept = append(p.Kept, a.Step)
			continue
		}
		p.Steps = append(p.Steps, UndoStep{ID: "undo/" + a.Step, Gate: a.Gate, Host: a.Host, Intent: a.Seq, Undo: *rec.Undo})
	}
	p.Steps = append(r.strays(ctx, p, letters[at+1:]), p.Steps...)
	return p, nil
}

// owners says which gate starts the processes of a name.
var owners = []struct{ prefix, gate string }{{"engine-", "C"}, {TesterProcess, "D"}, {"sidecar-", "E"}, {"router", "G"}, {"standby", "G"}}

// strays are processes that run on the hosts and belong to gates after the target although
// this record did not start them, as those of an earlier run. A host that cannot be
// looked at now is looked at again when the rollback ends.
func (r *Runner) strays(ctx context.Context, p RollbackPlan, later []string) []UndoStep {
	named := map[string]bool{}
	for _, s := range p.Steps {
		named[s.Host+"/"+s.Stops] = true
	}
	var out []UndoStep
	for _, host := range r.Fleet.WorkHosts() {
		facts, err := r.lookAt(ctx, host)
		if err != nil {
			continue
		}
		for _, name := range looking(r.Fleet, host).Procs {
			if id := facts["proc/"+name+"/id"]; id == "" || id == Gone || named[host+"/"+name] {
				continue
			}
			for _, o := range owners {
				if strings.HasPrefix(name, o.prefix) && slices.Contains(later, o.gate) {
					out = append(out, UndoStep{ID: "undo/stray/" + name, Gate: o.gate, Host: host, Undo: *StopUndo(r.Fleet, host, name, strayWithin)})
				}
			}
		}
	}
	return out
}

const strayWithin = fleet.Duration(30 * time.Second)

func (r *Runner) letters() []string {
	var out []string
	for _, g := range r.Gates {
		out = append(out, g.Info().Letter)
	}
	return out
}

// Rollback takes the fleet back to the state after gate to, or finishes a rollback
// that was cut off. It ends with a live look and a record of what could not come back.
func (r *Runner) Rollback(ctx context.Context, p RollbackPlan) (RollbackResult, error) {
	res := RollbackResult{To: p.To, Stopped: []string{}, Restored: []string{}, Rerun: []string{}, Residue: []string{}}
	if err := r.takeLease(ctx); err != nil { // before the record says that a rollback began
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
	d := last.Done
	return RollbackResult{To: p.To, Stopped: d.Stopped, Restored: d.Restored, Rerun: d.Rerun, Residue: d.Residue}, true
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

// undo runs one step with its own limit. A failure becomes residue, not an end.
func (r *Runner) undo(ctx context.Context, s UndoStep, res *RollbackResult) error {
	note := record.RollbackStep{ID: s.ID, Intent: s.Intent, Summary: s.Title, Status: record.RollbackRunning}
	begun := r.begunBefore(s.ID)
	if _, err := r.append(record.KindRollbackStep, s.Gate, s.ID, s.Host, note); err != nil {
		return err
	}
	step := Step{ID: s.ID, Title: s.Title, Host: s.Host, Effect: Disrupt, Argv: s.Argv, Limit: s.Limit}
	r.Progress.Step(s.Gate, step, 0, nil, false)
	begin := time.Now()
	was, err := r.runUndo(ctx, s)
	took := time.Since(begin)
	r.Progress.Step(s.Gate, step, took, err, true)
	note.DurationMS, note.Status = took.Milliseconds(), record.RollbackOK
	if err != nil {
		note.Status, note.Error = record.RollbackFailed, clean(err.Error(), 2000)
		res.Residue = append(res.Residue, fmt.Sprintf("%s on host %s: %s", s.Title, s.Host, clean(err.Error(), 300)))
	} else if was || begun {
		res.Stopped, res.Restored = addNonEmpty(res.Stopped, s.Stops), addNonEmpty(res.Restored, s.Restores)
	}
	if _, werr := r.append(record.KindRollbackStep, s.Gate, s.ID, s.Host, note); werr != nil || err != nil {
		return werr
	}
	return r.forgetEarlier(s)
}

// begunBefore reports whether an attempt that was cut off had begun the step: what it
// stopped then no longer runs, and was stopped all the same.
func (r *Runner) begunBefore(id string) bool {
	rb := r.Record.State().Rollback
	if rb == nil {
		return false
	}
	for _, s := range rb.Steps {
		if s.ID == id {
			return s.Status == record.RollbackRunning
		}
	}
	return false
}

// forgetEarlier settles older actions of the same step: one undo takes them all back.
func (r *Runner) forgetEarlier(s UndoStep) error {
	state := r.Record.State()
	for _, a := range slices.Concat(state.Done, state.Partial, state.Unknown) {
		if a.Gate == s.Gate && "undo/"+a.Step == s.ID && a.Host == s.Host && a.Seq != s.Intent {
			if _, err := r.append(record.KindUndone, s.Gate, a.Step, a.Host, record.Undone{Step: a.Step, Intent: a.Seq, How: "taken back with intent " + fmt.Sprint(s.Intent)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// runUndo runs the undo's command; was is false when there was nothing to take back.
func (r *Runner) runUndo(ctx context.Context, s UndoStep) (was bool, err error) {
	limited, cancel := context.WithTimeout(ctx, s.Limit.D()+graceAfterLimit)
	defer cancel()
	h, err := r.host(limited, s.Host)
	if err != nil {
		return false, err
	}
	out, err := h.Run(limited, r.permit(remote.Command{Argv: s.Argv, Limit: s.Limit.D()}))
	if err != nil {
		return false, withStderr(err, out)
	}
	answer := struct {
		Was *bool `json:"was_running"`
	}{}
	if json.Unmarshal(out.Stdout, &answer) == nil && answer.Was != nil {
		return *answer.Was, nil
	}
	return true, nil
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
	if err := r.settle(ctx); err != nil {
		res.Residue = append(res.Residue, "the fleet could not be looked at again: "+clean(err.Error(), 300))
	}
	for _, g := range r.Gates {
		letter := g.Info().Letter
		if slices.Contains(p.Rerun, letter) {
			break
		}
		restored, err := r.restore(ctx, g)
		if err != nil {
			return res, err
		}
		res.Restored = append(res.Restored, restored...)
		if r.Record.State().Gates[letter].State != record.VerdictPassed {
			res.Rerun = append(res.Rerun, letter)
		}
	}
	slices.Sort(res.Rerun)
	_, err := r.append(record.KindRollbackDone, "", "", "", record.RollbackDone{Stopped: res.Stopped, Restored: res.Restored, Rerun: res.Rerun, Residue: res.Residue})
	if err != nil {
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

// StopUndo is the undo of a started process: stop it by its recorded identity.
func StopUndo(f fleet.Fleet, host, name string, within fleet.Duration) *Undo {
	return &Undo{
		Title: "stop " + name, Stops: name, Limit: within + fleet.Duration(10*time.Second),
		Argv: HostCommand(f, host, "stop", StopRequest{Root: f.Deploy.Hosts[host].Root, Name: name, Within: within}),
	}
}
