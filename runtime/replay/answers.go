package replay

import (
	"errors"
	"fmt"
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// maxEngines bounds the fleet of a decision: a placement looks at each pair of them.
const maxEngines = 4096

// answers are the residents of one decision, as far as they were asked.
type answers struct {
	occupied map[question]Answer
	slack    map[int]float64
	missing  error // the first question that nobody answered
}

type question struct {
	engine       int
	at, interval float64
}

// resident answers for one engine.
type resident struct {
	*answers
	engine int
	view   *model.EngineView
}

// snapshot builds the fleet of a decision again.
func (f *Fleet) snapshot(p model.Params, curves map[string]profile.Curve) (model.Snapshot, *answers, error) {
	s := model.Snapshot{At: f.Now, Params: p, Handoff: f.Handoff, Engines: f.Engines, Barred: f.Barred}
	a := &answers{occupied: map[question]Answer{}, slack: map[int]float64{}}
	if len(f.Engines) > maxEngines {
		return s, a, fmt.Errorf("it has %d engines, at most %d are replayed", len(f.Engines), maxEngines)
	}
	if f.Cut {
		return s, a, errors.New("what it asked of residents was not kept whole")
	}
	for i := range s.Engines {
		e := &s.Engines[i]
		c, ok := curves[e.ID]
		if !ok {
			return s, a, fmt.Errorf("the meta line has no curve of engine %q", e.ID)
		}
		e.Curve, e.Later = c, resident{a, i, e}
	}
	for _, x := range f.Asked {
		switch {
		case x.Slack == nil:
			a.occupied[question{x.Engine, x.At, x.Interval}] = x
		case x.Slack.Endless:
			a.slack[x.Engine] = math.Inf(1)
		default:
			a.slack[x.Engine] = x.Slack.Seconds
		}
	}
	return s, a, nil
}

func (r resident) miss(what string) {
	if r.missing == nil {
		r.missing = fmt.Errorf("it now asks engine %q %s, which it did not before", r.view.ID, what)
	}
}

// Occupied implements model.Later.
func (r resident) Occupied(_, at, interval float64) (requests, tokens int) {
	x, ok := r.occupied[question{r.engine, at, interval}]
	if !ok {
		r.miss(fmt.Sprintf("for its seats at %g s", at))
		return r.view.DecodeRequests, r.view.DecodeTokens
	}
	return x.Requests, x.Tokens
}

// Slack implements model.Later.
func (r resident) Slack(float64, *model.Params) float64 {
	s, ok := r.slack[r.engine]
	if !ok {
		r.miss("what its residents can bear")
	}
	return s
}
