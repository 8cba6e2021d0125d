package replay

import (
	"math"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// Fleet is a snapshot as the journal keeps it: without the curves and the parameters, which the
// meta line has, and with what was said of residents in place of the residents.
type Fleet struct {
	Now     float64            `json:"now"`
	Handoff float64            `json:"handoff_s"`
	Engines []model.EngineView `json:"engines"`
	Barred  []model.Edge       `json:"barred,omitempty"`
	Asked   []Answer           `json:"asked,omitempty"`
	// Cut means that more was asked than is kept.
	Cut bool `json:"asked_cut,omitempty"`
}

// Answer is what one engine said of its residents: how many seats and tokens they take at a
// moment, at a pace, or how long they can bear a prefill.
type Answer struct {
	Engine   int     `json:"engine"` // in the order of the fleet
	At       float64 `json:"at,omitempty"`
	Interval float64 `json:"interval_s,omitempty"`
	Requests int     `json:"requests,omitempty"`
	Tokens   int     `json:"tokens,omitempty"`
	Slack    *Slack  `json:"slack,omitempty"` // nil = it is about seats and tokens
}

// Slack is how long residents can bear a prefill.
type Slack struct {
	Seconds float64 `json:"s"`
	Endless bool    `json:"endless,omitempty"` // nobody is there
}

// Placement is what a placement was made from.
type Placement struct {
	Fleet
	// First is the attempt that is judged by the promise; later ones are only placed.
	First   bool          `json:"first"`
	Request model.Request `json:"request"`
}

// Decision is a placement as the journal keeps it.
type Decision struct {
	sched.Decision
	Inputs *Placement `json:"inputs,omitempty"`
}

// Evaluation is what a decision of the controller was made from.
type Evaluation struct {
	Fleet
	State control.State `json:"state"`
}

// maxAsked bounds the answers that are kept of one decision.
const maxAsked = 4096

// Notes collect what decisions ask of residents. They are reused: what Fleet returns is a copy.
// The zero value is ready; one goroutine uses it at a time.
type Notes struct {
	engines []witness
	asked   []Answer
	cut     bool
}

// Watch puts itself between a snapshot's engines and their residents until the next Watch.
func (n *Notes) Watch(s *model.Snapshot) {
	n.asked, n.cut = n.asked[:0], false
	n.engines = slices.Grow(n.engines[:0], len(s.Engines))[:len(s.Engines)]
	for i := range s.Engines {
		if e := &s.Engines[i]; e.Later != nil {
			n.engines[i] = witness{n, i, e.Later}
			e.Later = &n.engines[i]
		}
	}
}

// Fleet returns the snapshot with what was asked since it is watched.
func (n *Notes) Fleet(s *model.Snapshot) Fleet {
	f := Fleet{Now: s.At, Handoff: s.Handoff, Engines: slices.Clone(s.Engines), Barred: slices.Clone(s.Barred), Asked: slices.Clone(n.asked), Cut: n.cut}
	for i := range f.Engines {
		f.Engines[i].Later = nil
	}
	return f
}

func (n *Notes) note(a Answer) {
	if len(n.asked) >= maxAsked {
		n.cut = true
		return
	}
	n.asked = append(n.asked, a)
}

// witness notes what one engine says of its residents.
type witness struct {
	notes *Notes
	index int
	of    model.Later
}

// Occupied implements model.Later.
func (w *witness) Occupied(now, at, interval float64) (requests, tokens int) {
	requests, tokens = w.of.Occupied(now, at, interval)
	w.notes.note(Answer{Engine: w.index, At: at, Interval: interval, Requests: requests, Tokens: tokens})
	return requests, tokens
}

// Slack implements model.Later.
func (w *witness) Slack(now float64, p *model.Params) float64 {
	s := w.of.Slack(now, p)
	told := &Slack{Seconds: s}
	if math.IsInf(s, 1) {
		*told = Slack{Endless: true}
	}
	w.notes.note(Answer{Engine: w.index, Slack: told})
	return s
}
