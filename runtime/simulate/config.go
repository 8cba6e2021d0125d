package simulate

import (
	"errors"
	"fmt"
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Arrival is one offer: seconds since the workload began, lengths in tokens. An output
// below 1 counts as 1.
type Arrival struct {
	At            float64
	Input, Output int
	Class         string
}

// Correction tunes how the decode curve follows what is observed.
type Correction struct {
	Alpha, Min, Max float64 // Alpha: what an interval of work weighs; 0 = nothing is forgotten
	MinSamples      int     // tokens of an interval
}

// Unlike is one engine that is not as its profile says.
type Unlike struct {
	Engine int     // its number, from 0
	Slow   float64 // times slower than the others; 0 = 1
	Dies   float64 // when it ends with all that it holds, in seconds; 0 = it does not
	Back   float64 // when it is there again, empty; 0 = never
}

// Config is one simulation. Run does not write into it.
type Config struct {
	Workload string
	Arrivals []Arrival // rising in time
	// Heads say what prompts share with others, by arrival; none = nothing.
	Heads    []Head
	Score    string // the class that is scored; "" = all
	Model    Model
	Slow     float64  // times that engines are slower than their profile; 0 = 1
	Policies []string // PolicyNames and "static:3P5D"; none = default
	// Topologies are those that each policy is played in; none = the policy's own.
	Topologies []string
	Relaunch   float64 // seconds that a drained engine is away when its role changes in cold-swap
	Compare    bool    // every static split becomes an arm
	Timeline   bool    // arms carry what happened when
	Unlike     []Unlike
	Trouble    Trouble
	// PrefixTokens is how many tokens of prompts that begin alike each engine keeps; 0 = none.
	PrefixTokens int
	Seed         uint64 // of the requests' names, which break ties
	Params       model.Params
	Control      control.Params
	Correction
	Interval float64 // between ticks, seconds

	classes []string // of the arrivals, in order of appearance
	class   []uint16 // of each arrival

	together bool // some arm has both phases on one engine, where no KV travels
	thorough bool // every request is looked at after every event
	Inflight int  // requests in flight above which the router turns away; 0 = no limit
}

// Defaults returns the router's settings of a fleet file that names none, for a promise in
// seconds.
func Defaults(ttft, tpot float64) Config {
	return Config{
		Slow:   1,
		Params: model.Params{TTFT: ttft, TPOT: tpot, Lend: 0.1},
		Control: control.Params{TTFT: ttft, TPOT: tpot, Lends: true, MinPrefill: 1, MinDecode: 1, Expand: 1, Shrink: 0.5,
			Cooldown: 10, Sustained: 3, Window: 120, Step: 5, Confirmations: 2, Utilization: 0.8, MinArrivals: 10,
			DemandFloor: 0.5, Margin: 0.05, EvidenceSpan: 60},
		Correction: Correction{Alpha: 0.2, Min: 0.5, Max: 2, MinSamples: 8},
		Relaunch:   120,
		Interval:   1,
		Inflight:   768,
	}
}

// maxSpan is the longest workload in seconds, 31 days: each second has a tick.
const maxSpan = 31 * 24 * 3600

// check refuses a configuration that cannot be simulated; all reasons are joined.
func (c Config) check() error {
	errs := []error{c.Model.check(), c.Trouble.check()}
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("check simulation: "+format, args...))
		}
	}
	bad(len(c.Arrivals) == 0, "there are no arrivals")
	bad(!(c.Slow > 0) || math.IsInf(c.Slow, 0), "slow is %v, want a number above 0", c.Slow)
	bad(!(c.Params.TTFT > 0 && c.Params.TPOT > 0 && c.Params.TTFT < maxSpan && c.Params.TPOT < maxSpan), "the promise must be above 0 seconds and finite")
	bad(!(c.Relaunch >= 0 && c.Relaunch < maxSpan), "the relaunch must take at least 0 seconds and be finite")
	for _, u := range c.Unlike {
		bad(u.Engine < 0 || u.Engine >= c.Model.Engines, "engine %d is not in a fleet of %d", u.Engine, c.Model.Engines)
		bad(u.Slow != 0 && !(u.Slow >= 1 && u.Slow < maxSpan) || !(u.Dies >= 0), "engine %d: it may be slower than the others and die, want slow of at least 1 and a moment of at least 0", u.Engine)
		bad(u.Back != 0 && !(u.Dies > 0 && u.Back > u.Dies && u.Back < maxSpan), "engine %d: it comes back at %v s, want after it died", u.Engine, u.Back)
	}
	bad(c.PrefixTokens < 0, "the prefix cache is below 0 tokens")
	bad(len(c.Heads) > len(c.Arrivals), "there are more heads than arrivals")
	bad(!(c.Interval > 0), "the interval must be above 0 seconds")
	bad(c.Control.MinPrefill < 1 || c.Control.MinDecode < 1 || c.Control.MinPrefill > c.Model.PrefillAtStart ||
		c.Control.MinDecode > c.Model.Engines-c.Model.PrefillAtStart, "the start split is below the floors")
	scored := 0
	for i, a := range c.Arrivals {
		if !(a.At >= 0 && a.At <= maxSpan) || a.Input < 0 || i > 0 && a.At < c.Arrivals[i-1].At {
			errs = append(errs, fmt.Errorf("check simulation: arrival %d is out of order or out of range", i))
			break
		}
		if c.scores(a) {
			scored++
		}
	}
	bad(len(c.Arrivals) > 0 && scored == 0, "no arrival has class %q", c.Score)
	return errors.Join(errs...)
}

// index numbers the classes.
func (c *Config) index() {
	numbers := map[string]uint16{}
	c.classes, c.class = nil, make([]uint16, len(c.Arrivals))
	for i, a := range c.Arrivals {
		n, ok := numbers[a.Class]
		if !ok {
			n = uint16(len(c.classes))
			numbers[a.Class] = n
			c.classes = append(c.classes, a.Class)
		}
		c.class[i] = n
	}
}

func (c *Config) classOf(arrival int) int { return int(c.class[arrival]) }

func (c Config) scores(a Arrival) bool { return c.Score == "" || a.Class == c.Score }
