package simulate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Result is the data of `narwhal simulate`. Counts are of the scored class.
type Result struct {
	Workload   string `json:"workload"`
	Offered    int    `json:"offered"`
	Arms       []Arm  `json:"arms"`
	BestStatic Mark   `json:"best_static"` // of all splits; the fewest prefill engines win a tie
	Hindsight  Mark   `json:"hindsight"`   // no policy does better
}

// Arm is what one policy did. Requests are completed or refused; qualified ones completed
// with both intervals within the promise.
type Arm struct {
	Policy     string      `json:"policy"`
	Topology   string      `json:"topology"`
	Qualified  int         `json:"qualified"`
	Attainment float64     `json:"attainment"` // qualified over offered
	Refused    int         `json:"refused"`
	Failed     int         `json:"failed,omitempty"` // lost with an engine
	TTFT       Percentiles `json:"ttft_ms"`          // of completed requests
	TPOT       Percentiles `json:"tpot_ms"`          // of those with two tokens and more
	Moves      int         `json:"moves"`
	Classes    []Class     `json:"by_class"` // all of the workload, in order of appearance

	Timeline *Timeline `json:"-"`
}

// Class is what an arm did with the requests of one class.
type Class struct {
	Class      string      `json:"class"`
	Offered    int         `json:"offered"`
	Qualified  int         `json:"qualified"`
	Attainment float64     `json:"attainment"`
	Refused    int         `json:"refused"`
	TTFT       Percentiles `json:"ttft_ms"`
}

// Mark is a line that arms are compared with.
type Mark struct {
	Policy     string  `json:"policy,omitempty"`
	Qualified  int     `json:"qualified"`
	Attainment float64 `json:"attainment"`
}

// Percentiles are milliseconds, nearest rank; null without a sample.
type Percentiles struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

// ErrConfig marks errors of what Run was asked to do.
var ErrConfig = errors.New("refuse configuration")

// Run simulates each policy once in each topology and every static split beside them. An error is that of
// the configuration, of ctx, or of a state that must not be, with seed and event number.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	c.index()
	arms, err := arms(c.Policies, c.Topologies, c.Model.Engines)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	shown := len(arms)
	for p := 1; p < c.Model.Engines; p++ {
		if s := static(p, c.Model.Engines-p); !slices.Contains(arms, s) {
			arms = append(arms, s)
		}
	}
	if c.Compare {
		shown = len(arms)
	}
	results, err := playAll(ctx, &c, arms)
	if err != nil {
		return Result{}, err
	}
	r := Result{Workload: c.Workload, Arms: results[:shown]}
	for _, a := range c.Arrivals {
		if c.scores(a) {
			r.Offered++
		}
	}
	best := -1
	for i, p := range arms {
		if p.prefill > 0 && p.topology == "" && (best < 0 || results[i].Qualified > results[best].Qualified ||
			results[i].Qualified == results[best].Qualified && p.prefill < arms[best].prefill) {
			best = i
		}
	}
	r.BestStatic = Mark{results[best].Policy, results[best].Qualified, results[best].Attainment}
	c.together = slices.ContainsFunc(arms, func(p policy) bool { return p.shape() == Aggregated })
	bound := c.hindsight()
	r.Hindsight = Mark{Qualified: bound, Attainment: float64(bound) / float64(r.Offered)}
	for _, a := range results {
		if a.Qualified > bound {
			return Result{}, fmt.Errorf("simulate %s: seed %d: %d requests qualified, the bound is %d", a.Policy, c.Seed, a.Qualified, bound)
		}
	}
	return r, nil
}

// playAll runs the arms side by side; each has a world of its own.
func playAll(ctx context.Context, c *Config, arms []policy) ([]Arm, error) {
	results, errs := make([]Arm, len(arms)), make([]error, len(arms))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, p := range arms {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w := newWorld(c, p)
			if errs[i] = w.run(ctx); errs[i] == nil {
				results[i] = w.score()
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// tally is what became of the requests of one class.
type tally struct {
	offered, refused, failed, qualified int
	ttft, tpot                          histogram
}

func (t *tally) completed(p model.Params, j *job) {
	first, gap := j.intervals()
	t.ttft.add(first)
	if j.output > 1 {
		t.tpot.add(gap)
	}
	if first <= p.TTFT && gap <= p.TPOT {
		t.qualified++
	}
}

// intervals are the time to the first token of a complete request and the mean one between its
// tokens, 0 for a single token.
func (j *job) intervals() (first, gap float64) {
	if j.output > 1 {
		gap = (j.last - j.first) / float64(j.output-1)
	}
	return j.first - j.at, gap
}

// lacked is what the controller is told of a complete request. One that was lost with an engine
// and tried again says nothing of how many engines there are.
func (j *job) lacked(p model.Params) model.Role {
	if j.tries > 0 {
		return ""
	}
	first, gap := j.intervals()
	return control.Late(p, j.prefilled-j.at, first, gap)
}

func (w *world) score() Arm {
	a := Arm{Policy: w.policy.name, Topology: w.shape, Moves: w.moves, Timeline: w.line}
	var all tally
	for i := range w.tallies {
		t, name := &w.tallies[i], w.c.classes[i]
		a.Classes = append(a.Classes, Class{name, t.offered, t.qualified, float64(t.qualified) / float64(max(1, t.offered)), t.refused, t.ttft.percentiles()})
		if w.c.Score == "" || name == w.c.Score {
			all.offered, all.refused, all.qualified, all.failed = all.offered+t.offered, all.refused+t.refused, all.qualified+t.qualified, all.failed+t.failed
			all.ttft.join(&t.ttft)
			all.tpot.join(&t.tpot)
		}
	}
	a.Qualified, a.Refused, a.Failed = all.qualified, all.refused, all.failed
	a.Attainment = float64(a.Qualified) / float64(max(1, all.offered))
	a.TTFT, a.TPOT = all.ttft.percentiles(), all.tpot.percentiles()
	return a
}
