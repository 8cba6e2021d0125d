package simulate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// chooser is a policy at work in one world. It decides from the fleet that it is shown and
// what it was told before, and changes neither; equal calls in equal order have equal answers.
type chooser interface {
	// arrived, ended and expect keep the books of demand.
	arrived(at float64, input, wanted, cached int)
	ended(input, wanted, output int)
	expect(input, wanted int) int
	// missed is told of a request that was refused or late for want of engines of a role.
	missed(at float64, lack model.Role)
	// place gives a request its engines, or none to refuse it.
	place(f *fleet, r *model.Request) placement
	// tick is asked once an interval for the roles to change.
	tick(f *fleet) []control.Move
}

// late is a chooser that settles where a request decodes when its prefill has ended.
type late interface {
	settle(f *fleet, j *job) *engine
}

// placement is where a request goes, with its predicted prefill and the wait before that.
type placement struct {
	p, d       *engine
	own, queue float64
}

// fleet is what a policy sees: the router's snapshot and its ledger of each engine.
type fleet struct {
	engines []*engine
	snap    model.Snapshot
	now     float64
	handoff float64 // mean from the prefill's end to the first token, of the last interval; 0 = none

	sum, n float64 // of the interval in work
}

func (f *fleet) engine(id string) *engine {
	for _, e := range f.engines {
		if e.v.ID == id {
			return e
		}
	}
	return nil
}

// Topologies.
const (
	Aggregated = "aggregated" // every engine serves both phases of its requests
	Static     = "static"     // the split at the start stays
	ColdSwap   = "cold-swap"  // an engine that changes its role drains and is launched anew
	HotSwap    = "hot-swap"   // a role is a label
)

// kind is what a policy needs of the world.
type kind struct {
	learns  bool // the router's learned corrections and risk are in its snapshot
	bounded bool // the router's limit of requests in flight holds
	lends   bool // decode engines lend time to prefills
	still   bool // it never moves a role
	mixes   bool // it can serve both phases on one engine
	chunk   int  // its engines prefill in chunks of so many tokens, beside decoding; 0 = whole prompts, first
	build   func(c *Config, b book) chooser
}

// kinds are the policies by their names of the command line; static splits have a form of
// their own.
var kinds = map[string]kind{
	"default":       {learns: true, bounded: true, lends: true, mixes: true, build: newStanding},
	"reactive-fifo": {bounded: true, build: newReactive},
	"queue-depth":   {still: true, mixes: true, build: newShortest},
	"utilisation":   {learns: true, bounded: true, build: newUtilisation},
	"planner":       {learns: true, bounded: true, build: newPlanner},
	"arrow":         {chunk: arrowChunk, build: newArrow},
}

// PolicyNames are the names of all policies but the static splits, the router's own first.
func PolicyNames() []string {
	return []string{"default", "reactive-fifo", "arrow", "planner", "utilisation", "queue-depth"}
}

// policy is one arm: a parsed name and a topology.
type policy struct {
	name     string
	prefill  int    // of a static split; 0 = the model's
	topology string // "" = the policy's own
}

func static(p, d int) policy { return policy{name: fmt.Sprintf("static:%dP%dD", p, d), prefill: p} }

func (p policy) kind() kind {
	if p.prefill > 0 {
		k := kinds["default"]
		k.still, k.mixes = true, false
		return k
	}
	return kinds[p.name]
}

// shape is the arm's topology.
func (p policy) shape() string {
	switch {
	case p.topology != "":
		return p.topology
	case p.kind().still:
		return Static
	}
	return HotSwap
}

// moves reports whether the arm's roles move.
func (p policy) moves() bool { return p.shape() == HotSwap || p.shape() == ColdSwap }

// within reports whether the policy has a form in a topology.
func (p policy) within(topology string) bool {
	k := p.kind()
	switch topology {
	case Aggregated:
		return k.mixes
	case Static:
		return true
	}
	return !k.still
}

var splitForm = regexp.MustCompile(`^static:([0-9]{1,3})[pP]([0-9]{1,3})[dD]$`)

func parsePolicy(name string, engines int) (policy, error) {
	if _, ok := kinds[name]; ok {
		return policy{name: name}, nil
	}
	m := splitForm.FindStringSubmatch(name)
	if m == nil {
		return policy{}, fmt.Errorf("read policy: %q is unknown; there are %s and static:xPyD", name, strings.Join(PolicyNames(), ", "))
	}
	p, _ := strconv.Atoi(m[1])
	d, _ := strconv.Atoi(m[2])
	if p < 1 || d < 1 || p+d != engines {
		return policy{}, fmt.Errorf("read policy: %s does not split %d engines into at least one of each role", name, engines)
	}
	return static(p, d), nil
}

// arms are the policies in the topologies that are asked for, without repetition. Each policy
// must have a form in one of them.
func arms(policies, topologies []string, engines int) (out []policy, err error) {
	if len(policies) == 0 {
		policies = []string{"default"}
	}
	for _, t := range topologies {
		if !slices.Contains([]string{Aggregated, Static, ColdSwap, HotSwap}, t) {
			return nil, fmt.Errorf("read topology: %q is unknown; there are %s, %s, %s and %s", t, Aggregated, Static, ColdSwap, HotSwap)
		}
	}
	var errs []error
	for _, name := range policies {
		p, err := parsePolicy(name, engines)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found := len(topologies) == 0
		if found && !slices.Contains(out, p) {
			out = append(out, p)
		}
		for _, t := range topologies {
			a := p
			if !p.within(t) {
				continue
			}
			if found = true; t != p.shape() {
				a.topology = t
			}
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("read topology: policy %s has no form in %s", name, strings.Join(topologies, ", ")))
		}
	}
	return out, errors.Join(errs...)
}

// book is what every policy knows of demand.
type book struct{ ctl control.State }

func (b *book) arrived(at float64, input, wanted, cached int) {
	b.ctl, _ = control.Step(b.ctl, control.Arrival{At: at, Input: input, Wanted: wanted, Cached: cached})
}

func (b *book) ended(input, wanted, output int) {
	b.ctl, _ = control.Step(b.ctl, control.Outcome{Input: input, Wanted: wanted, Output: output})
}

func (b *book) missed(at float64, lack model.Role) {
	b.ctl, _ = control.Step(b.ctl, control.Miss{At: at, Lack: lack})
}

func (b *book) expect(input, wanted int) int { return b.ctl.Expect(input, wanted) }

// tick asks the controller.
func (b *book) tick(f *fleet) (moves []control.Move) {
	var actions []control.Action
	b.ctl, actions = control.Step(b.ctl, control.Tick{Snapshot: f.snap})
	for _, a := range actions {
		if m, ok := a.(control.Move); ok {
			moves = append(moves, m)
		}
	}
	return moves
}
