package sched

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// refuse names the cause that the closest candidate failed for. A prompt refusal needs
// every candidate to fail for the prompt itself; then waiting does not help.
func (d *Decision) refuse(s model.Snapshot) {
	order := []model.Reason{model.ReasonQueue, model.ReasonTPOT, model.ReasonKVCapacity, model.ReasonSlotWait, model.ReasonPrompt}
	d.Refused = model.ReasonNoEngine
	found := -1
	for _, want := range order {
		i := best(d.Candidates, "", func(c Candidate) bool { return c.Dropped == want })
		if i >= 0 {
			d.Refused, found = want, i
			break
		}
	}
	switch d.Refused {
	case model.ReasonPrompt:
		d.RetryAfter = 0
	case model.ReasonQueue:
		d.RetryAfter = wholeSeconds(shortest(d.Candidates, model.ReasonQueue) - d.Elapsed - s.Params.Budget())
	default:
		d.RetryAfter = 1
	}
	if found >= 0 {
		c := d.Candidates[found]
		d.Parts, d.Price, d.Own = c.Parts, c.Price, c.Parts.Prefill
	}
}

func shortest(cs []Candidate, why model.Reason) float64 {
	price := math.Inf(1)
	for _, c := range cs {
		if c.Dropped == why {
			price = math.Min(price, c.Price)
		}
	}
	return price
}

// wholeSeconds rounds up to at least one second and at most an hour.
func wholeSeconds(s float64) int { return int(math.Min(3600, math.Max(1, math.Ceil(s)))) }
