package gates

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// lookBack compares the fleet, as it is after a rollback, with the record: what the kept gates
// rest on, and that nothing of the others runs. again looks once more, after something came back.
func (r *Runner) lookBack(ctx context.Context, p RollbackPlan, again bool) ([]record.Finding, error) {
	if again {
		if err := r.settle(ctx); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		} else if err != nil {
			return []record.Finding{{Code: "host-unseen", Want: "a look at every host", Got: clean(err.Error(), 300), Message: "the fleet could not be looked at after it was restored: " + clean(err.Error(), 300), Hint: "see that host, then run the same rollback again"}}, nil
		}
	}
	facts, state := r.currentFacts(), r.Record.State()
	found := map[string]record.Finding{}
	for _, g := range r.Gates {
		letter := g.Info().Letter
		if slices.Contains(p.Rerun, letter) {
			continue
		}
		for _, k := range g.Expect(r.Fleet) {
			e, ok := state.Evidence(k)
			if !ok {
				continue
			}
			for _, name := range sortedKeys(e.Bonds) {
				if f, differs := r.differs(name, e.Bonds[name], facts[name]); differs {
					f.Evidence = string(k)
					if subject, ok := strings.CutSuffix(name, "/launch"); ok {
						name = subject + "/id" // one finding a process
					}
					found[name] = f
				}
			}
		}
	}
	maps.Copy(found, r.remaining(p, facts))
	out := []record.Finding{}
	for _, name := range sortedKeys(found) {
		out = append(out, found[name])
	}
	return out, nil
}

// differs names a fact of a host or a process that is not as evidence has it.
func (r *Runner) differs(name, was, is string) (record.Finding, bool) {
	parts := strings.Split(name, "/")
	if was == is || len(parts) < 3 {
		return record.Finding{}, false
	}
	f := record.Finding{Host: parts[1], Want: short(was), Got: short(is), Message: because(name, was, is) + " after the rollback",
		Hint: "narwhal gate run makes the gates again that rest on it; its log on the host and `narwhal gate log` tell why it did not come back"}
	switch {
	case parts[0] == "proc":
		f.Code, f.Host = "process-differs", r.hostOf(parts[1])
	case parts[0] == "host" && slices.Contains([]string{"release", "files", "files-dir", "key", "trees"}, parts[2]):
		f.Code = "file-differs"
	case parts[0] == "host":
		f.Code = "host-differs"
	default:
		return f, false
	}
	return f, true
}

// remaining are processes of gates that were taken back and that run all the same.
func (r *Runner) remaining(p RollbackPlan, facts map[string]string) map[string]record.Finding {
	out := map[string]record.Finding{}
	for _, host := range r.Fleet.WorkHosts() {
		for _, name := range looking(r.Fleet, host).Procs {
			id := facts["proc/"+name+"/id"]
			if id == "" || id == Gone {
				continue
			}
			for _, o := range owners {
				if strings.HasPrefix(name, o.prefix) && slices.Contains(p.Rerun, o.gate) {
					out["proc/"+name+"/id"] = record.Finding{Code: "process-remains", Host: host, Want: "nothing of gate " + o.gate, Got: short(id),
						Message: fmt.Sprintf("%s runs although gate %s was taken back", name, o.gate), Hint: "see what starts it on that host, then run the same rollback again"}
				}
			}
		}
	}
	return out
}

// hostOf is the host of a process of the fleet, "" for none.
func (r *Runner) hostOf(name string) string {
	for _, host := range r.Fleet.WorkHosts() {
		if slices.Contains(looking(r.Fleet, host).Procs, name) {
			return host
		}
	}
	return ""
}
