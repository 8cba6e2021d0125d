package gates

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
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
	// Unowned are processes that it would stop and whose owner nobody can tell.
	Unowned []Unowned `json:"unowned,omitempty"`
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
	// Findings are what the live look at the end found other than the record says, and notes.
	Findings []record.Finding `json:"findings"`
}

// PlanRollback lists what must be taken back to stand after gate to: first what admits
// requests, then the rest, newest first. Actions whose
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
	slices.SortStableFunc(p.Steps, func(a, b UndoStep) int { return r.closes(a) - r.closes(b) })
	p.Unowned = r.disown(ctx, p.Steps)
	return p, nil
}

// closes orders what ends admission before everything else: 0 the standby, which would take
// the router's place, 1 the router, 2 the rest.
func (r *Runner) closes(s UndoStep) int {
	d := r.Fleet.Deploy.Router
	switch {
	case d.Standby != nil && s.Host == d.Standby.Host && s.Stops == standbyProcess:
		return 0
	case s.Host == d.Host && s.Stops == routerProcess:
		return 1
	}
	return 2
}

// owners says which gate starts the processes of a name.
var owners = []struct{ prefix, gate string }{{"engine-", "C"}, {TesterProcess, "D"}, {"sidecar-", "E"}, {routerProcess, "G"}, {standbyProcess, "G"}}

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
					out = append(out, UndoStep{ID: "undo/stray/" + name, Gate: o.gate, Host: host, Undo: *StopUndo(r.Fleet, host, name, r.strayWithin(name))})
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b UndoStep) int { return strings.Compare(b.Gate, a.Gate) })
	return out
}

// strayWithin is what a process may take to end: a router drains.
func (r *Runner) strayWithin(name string) fleet.Duration {
	if name == routerProcess || name == standbyProcess {
		return max(strayWithin, RouterGrace(r.Fleet))
	}
	return strayWithin
}

// RouterGrace is what a router may take to drain and end.
func RouterGrace(f fleet.Fleet) fleet.Duration {
	return fleet.Duration(f.Serving.GracefulTimeoutS*float64(time.Second)) + fleet.Duration(10*time.Second)
}

const strayWithin = fleet.Duration(30 * time.Second)

func (r *Runner) letters() []string {
	var out []string
	for _, g := range r.Gates {
		out = append(out, g.Info().Letter)
	}
	return out
}
