package gates

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// inline is how many bytes of lists a line holds at most.
const inline = record.MaxLine / 2

// verdict is what the log says of a judgement. Findings that its line does not hold are in an object, all of
// them; the line has the first then, those that are no notes before the others. The keys that the gate expects
// are always in one: those of 64 hosts in pairs fill more than a line.
func (r *Runner) verdict(g Gate, state string, findings []record.Finding) (record.Verdict, error) {
	v := record.Verdict{State: state, Findings: findings}
	expects, err := r.store("application/json", mustJSON(expected(g, r.Fleet)))
	if err != nil {
		return v, err
	}
	v.Expects = &expects
	if len(mustJSON(findings)) <= inline {
		return v, nil
	}
	ref, err := r.store("application/json", mustJSON(findings))
	if err != nil {
		return v, err
	}
	v.Findings, v.Object = firstOf(faultsFirst(findings), inline), &ref
	return v, nil
}

// ended is what the log says of a rollback. A result that its line does not hold is whole in an object.
func (r *Runner) ended(res RollbackResult) (record.RollbackDone, error) {
	d := record.RollbackDone{Stopped: res.Stopped, Restored: res.Restored, Rerun: res.Rerun, Residue: res.Residue, Findings: res.Findings}
	if len(mustJSON(d)) <= inline {
		return d, nil
	}
	ref, err := r.store("application/json", mustJSON(res))
	if err != nil {
		return d, err
	}
	const share = inline / 4
	d.Stopped, d.Restored, d.Residue = firstOf(d.Stopped, share), firstOf(d.Restored, share), firstOf(d.Residue, share)
	d.Findings, d.Object = firstOf(faultsFirst(d.Findings), share), &ref
	return d, nil
}

// faultsFirst has those that are no notes before the others.
func faultsFirst(findings []record.Finding) []record.Finding {
	return slices.SortedStableFunc(slices.Values(findings), func(a, b record.Finding) int {
		switch {
		case a.Note == b.Note:
			return 0
		case b.Note:
			return -1
		}
		return 1
	})
}

// firstOf are the first of a list that have room in limit bytes.
func firstOf[T any](list []T, limit int) []T {
	size, n := 0, 0
	for ; n < len(list); n++ {
		if size += len(mustJSON(list[n])) + 1; size > limit {
			break
		}
	}
	return list[:n]
}

// Findings are all findings of a gate's last verdict, also those that its line does not hold.
func Findings(g record.Gate, load func(record.Ref) ([]byte, error)) ([]record.Finding, error) {
	if g.Details == nil {
		return g.Findings, nil
	}
	b, err := load(*g.Details)
	if err != nil {
		return nil, fmt.Errorf("read the findings: %w", err)
	}
	var all []record.Finding
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read the findings in object %s: %w", g.Details.SHA256, err)
	}
	return all, nil
}

// resultOf is the whole result of an ended rollback.
func resultOf(to string, d record.RollbackDone, load func(record.Ref) ([]byte, error)) (RollbackResult, error) {
	if d.Object == nil {
		return RollbackResult{To: to, Stopped: d.Stopped, Restored: d.Restored, Rerun: d.Rerun, Residue: d.Residue, Findings: append([]record.Finding{}, d.Findings...)}, nil
	}
	b, err := load(*d.Object)
	if err != nil {
		return RollbackResult{}, fmt.Errorf("read the rollback's result: %w", err)
	}
	var res RollbackResult
	if err := json.Unmarshal(b, &res); err != nil {
		return res, fmt.Errorf("read the rollback's result in object %s: %w", d.Object.SHA256, err)
	}
	return res, nil
}
