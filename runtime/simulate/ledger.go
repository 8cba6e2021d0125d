package simulate

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// ledger is what a router knows of an engine: what it gave it and what came back. The
// rules are those of the router's own inventory.
type ledger struct {
	id        string
	role      model.Role
	roleSince float64
	curve     profile.Curve

	prefilling  []*job
	prefillFree float64
	pending     []*job // placed for decode here, prefilling elsewhere
	decoding    []*job

	ratios  [64]float64 // observed over predicted prefill, a ring
	ratioN  int
	risk    float64
	gap     float64
	kappa   float64
	touched bool // prefill or residency changed in the open interval
	made    int  // tokens
	before  int  // tokens at the start of the interval
}

func (l *ledger) view(now float64) model.EngineView {
	v := model.EngineView{ID: l.id, Role: l.role, Live: true, Curve: l.curve, Risk: l.risk, PrefillFree: l.prefillFree,
		PrefillRequests: len(l.prefilling), DecodeRequests: len(l.pending) + len(l.decoding), Correction: l.kappa, Gap: l.gap, RoleSince: l.roleSince}
	behind := 0.0
	for i, j := range l.prefilling {
		if i > 0 {
			behind += j.own
		}
	}
	v.PrefillFree = max(v.PrefillFree, now+behind)
	v.Residents = make([]model.Resident, 0, v.DecodeRequests)
	for _, j := range l.decoding {
		v.Residents = append(v.Residents, model.Resident{Tokens: j.input + j.made, Remaining: max(1, j.output-j.made)})
	}
	for _, j := range l.pending {
		v.Residents = append(v.Residents, model.Resident{Ready: j.placed + j.queue + j.own, Tokens: j.input, Remaining: max(1, j.output)})
	}
	for _, r := range v.Residents {
		v.DecodeTokens += r.Tokens
		v.DecodeRemaining += r.Remaining
	}
	return v
}

// reserve notes a placement on both of its engines.
func reserve(j *job, now float64) {
	j.p.prefilling = append(j.p.prefilling, j)
	j.p.prefillFree = max(j.p.prefillFree, now) + j.own
	j.p.touched = true
	j.d.pending = append(j.d.pending, j)
}

// prefillEnded takes a request off the prefill side and starts its decode side.
func prefillEnded(j *job, now float64) {
	p := &j.p.ledger
	p.prefilling = without(p.prefilling, j)
	p.touched = true
	left := 0.0
	for _, x := range p.prefilling {
		left += x.own
	}
	p.prefillFree = now + left
	if j.queue+j.own > 0 {
		p.observe((now - j.placed) / (j.queue + j.own))
	}
	j.d.pending = without(j.d.pending, j)
	j.d.decoding = append(j.d.decoding, j)
	j.d.touched = true
}

// without removes j; a job that is missing leaves the list alone and is found by check.
func without(list []*job, j *job) []*job {
	i := slices.Index(list, j)
	if i < 0 {
		return list
	}
	return slices.Delete(list, i, i+1)
}

// observe keeps the 80th percentile of the last 64 ratios as the engine's risk.
func (l *ledger) observe(ratio float64) {
	l.ratios[l.ratioN%len(l.ratios)] = ratio
	l.ratioN++
	if l.ratioN < 8 {
		return
	}
	held := l.ratios
	sorted := held[:min(l.ratioN, len(held))]
	slices.Sort(sorted)
	l.risk = min(2, max(1, profile.Quantile(sorted, 0.8)))
}

// roll closes a monitoring interval of dt seconds.
func (l *ledger) roll(dt float64, c Correction) {
	made := l.made - l.before
	l.before = l.made
	kv := 0
	for _, j := range l.decoding {
		kv += j.input + j.made
	}
	disturbed := l.touched || len(l.prefilling) > 0
	l.touched = false
	requests := len(l.decoding)
	if requests == 0 || made <= 0 {
		return
	}
	l.gap = dt * float64(requests) / float64(made)
	if disturbed || made < c.MinSamples || c.Alpha <= 0 {
		return
	}
	if predicted := l.curve.Interval(requests, kv); predicted > 0 {
		l.kappa += c.Alpha * (min(c.Max, max(c.Min, l.gap/predicted)) - l.kappa)
	}
}
