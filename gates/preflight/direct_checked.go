package preflight

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Checking says what a check of engines that run asks.
type Checking struct {
	Pairs   string   // fleet.PairsMesh, fleet.PairsRing or PairsNone
	Repeats int      // handoffs of each kind of a pair
	Only    []string // engines; empty = all
	Drills  bool     // abort a request on each, and let a lease expire where the fleet file asks for it
	// Busy measures engines that have requests too.
	Busy bool
	// Store is what stands in profiles.path, nil for none; Samples are its points, nil for none.
	Store   *profile.Store
	Samples *Samples
}

// names reports whether the check is about an engine.
func (c Checking) names(iid string) bool { return len(c.Only) == 0 || slices.Contains(c.Only, iid) }

// Outcomes of one check.
const (
	CheckPassed  = "passed"
	CheckFailed  = "failed"
	CheckSkipped = "skipped"
)

// Check is one line of the answer.
type Check struct {
	Check  string `json:"check"` // engine, attestation, profile, abort, lease, handoff, profiles
	Engine string `json:"engine,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	State  string `json:"state"`
	// Says is what was seen, or why nothing was.
	Says string `json:"says,omitempty"`
	key  record.Key
}

// CheckedEngine is what an engine said of itself.
type CheckedEngine struct {
	IID        string `json:"iid"`
	URL        string `json:"url"`
	Generation string `json:"generation_digest,omitempty"`
	Load       Load   `json:"load"`
	Looked
}

// CheckedPair is what the handoffs of a pair showed.
type CheckedPair struct {
	Handed
	Repeats int `json:"repeats"`
}

// Calibration proposes a deadline of the first token from the handoffs that were timed.
type Calibration struct {
	Samples    int     `json:"samples"`
	P99        float64 `json:"p99_seconds"`
	Maximum    float64 `json:"maximum_seconds"`
	Configured float64 `json:"configured_deadline_s"` // 0 = none
	Candidate  float64 `json:"candidate_deadline_s"`
}

// Checked is the whole answer.
type Checked struct {
	Checks      []Check          `json:"checks"`
	Engines     []CheckedEngine  `json:"engines"`
	Pairs       []CheckedPair    `json:"pairs"`
	Failed      []record.Finding `json:"failed"`
	Warnings    []record.Finding `json:"warnings"`
	Skipped     []Check          `json:"skipped"`
	Calibration *Calibration     `json:"first_token_calibration"`
}

// Reached reports whether any engine answered.
func (c Checked) Reached() bool {
	return slices.ContainsFunc(c.Engines, func(e CheckedEngine) bool { return e.Failed[checkReach] == "" })
}

// settle sorts findings and gives each check its state.
func (c *Checked) settle(found []record.Finding) {
	for _, f := range found {
		if f.Note {
			c.Warnings = append(c.Warnings, f)
		} else {
			c.Failed = append(c.Failed, f)
		}
	}
	for i := range c.Checks {
		x := &c.Checks[i]
		if at := slices.IndexFunc(c.Failed, func(f record.Finding) bool { return f.Evidence == string(x.key) }); at >= 0 {
			x.fail(c.Failed[at])
		}
		if x.State == CheckSkipped {
			c.Skipped = append(c.Skipped, *x)
		}
	}
}

// fail gives a check its first reason, after what was seen.
func (c *Check) fail(f record.Finding) {
	c.State = CheckFailed
	why := f.Code + ": got " + f.Got + ", want " + f.Want
	if c.Says != "" {
		why = c.Says + "; " + why
	}
	c.Says = why
}

func calibrated(s []float64, limit float64) *Calibration {
	if len(s) == 0 {
		return nil
	}
	s = slices.Sorted(slices.Values(s))
	return &Calibration{Samples: len(s), P99: profile.Quantile(s, 0.99), Maximum: s[len(s)-1], Configured: limit, Candidate: proposed(s)}
}
