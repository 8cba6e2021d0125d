package simulate

import "github.com/narwhal-fleet/narwhal/runtime/model"

// lexical is a cost of two parts in order, and whether the engine keeps the promise.
type lexical struct {
	other, own float64
	within     bool
}

// before compares two engines: those within the promise first. Equal ones keep the order of
// their names.
func (a lexical) before(b lexical) bool {
	switch {
	case a.within != b.within:
		return a.within
	case a.other != b.other:
		return a.other < b.other
	}
	return a.own < b.own
}

// lexPrefill picks the engine for a prompt: least decode work on it, then least prefill work.
// It returns an index, -1 without an engine.
func (f *fleet) lexPrefill(input int) int {
	return f.least(model.Prefill, nil, func(e *engine) lexical {
		wait, _ := e.queued(f.now)
		work := wait + e.v.Prefill(input)
		_, tokens := e.resident(f.now)
		return lexical{float64(tokens), work, work <= f.snap.Params.TTFT}
	})
}

// lexDecode picks the engine for an answer: least prefill work on it, then the most room below
// the tokens that keep the promise. Not the engine that has just prefilled it while there is
// another.
func (f *fleet) lexDecode(input int, producer *engine) int {
	cost := func(e *engine) lexical {
		requests, tokens := e.resident(f.now)
		over := float64(tokens+input) - mostTokens(e.v, f.snap.Params.TPOT, requests+1)
		_, queued := e.queued(f.now)
		return lexical{float64(queued), over, over <= 0}
	}
	if i := f.least(model.Decode, producer, cost); i >= 0 {
		return i
	}
	return f.least(model.Decode, nil, cost)
}

// settled is where a request decodes, chosen when its prefill has ended.
func (f *fleet) settled(j *job) *engine {
	if i := f.lexDecode(j.input, j.p); i >= 0 {
		return f.engines[i]
	}
	return j.d
}

// least is the live engine of a role, or of the other role without one, with the least cost.
func (f *fleet) least(role model.Role, but *engine, cost func(*engine) lexical) int {
	for _, r := range []model.Role{role, role.Other()} {
		found, best, any := -1, lexical{}, false
		for i, e := range f.engines {
			if !e.v.Live || e.v.Role != r {
				continue
			}
			any = true
			if e == but {
				continue
			}
			if c := cost(e); found < 0 || c.before(best) {
				found, best = i, c
			}
		}
		if any {
			return found
		}
	}
	return -1
}

// mostTokens is how many a batch of so many requests may hold to keep the promise.
func mostTokens(e *model.EngineView, tpot float64, requests int) float64 {
	c := &e.Curve
	room := tpot - c.Intercept - float64(c.RequestSlope*float64(requests))
	most := float64(c.MaxKVTokens)
	switch {
	case requests > c.MaxRequests || room < 0:
		return 0
	case c.Slope > 0:
		return min(most, room/c.Slope)
	}
	return most
}

// queued is the predicted prefill that an engine has, and the tokens of its prompts.
func (e *engine) queued(now float64) (seconds float64, tokens int) {
	if e.window != nil {
		return e.window.queued(now)
	}
	return e.whole, e.waitIn
}

// resident is what decodes on an engine or waits to: requests and tokens, without those that
// are still in prefill elsewhere.
func (e *engine) resident(now float64) (requests, tokens int) {
	if e.window != nil {
		return e.window.resident(now)
	}
	r := len(e.batch)
	return e.live, e.joinIn + e.tokens + (e.stepsBy(now)-e.steps)*r
}
