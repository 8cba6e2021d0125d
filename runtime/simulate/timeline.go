package simulate

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// points is how many moments a timeline has: its memory does not grow with a workload.
const points = 240

// Timeline is what happened when in one arm. Each point stands for Step seconds; what happens
// after the last arrival stands in the last one.
type Timeline struct {
	Step float64
	// Prefill and Decode are live engines at the end of the step, Waiting the most requests
	// that waited for a prefill or were in one, Inflight the most at all.
	Prefill, Decode, Waiting, Inflight [points]int
	First                              [][points]Delay // by class, of requests that arrived then
}

// Delay sums up first-token times in seconds.
type Delay struct {
	N         int
	Sum, Most float64
}

func newTimeline(c *Config) *Timeline {
	last := c.Arrivals[len(c.Arrivals)-1].At
	return &Timeline{Step: math.Max(last, c.Interval) / points, First: make([][points]Delay, len(c.classes))}
}

func (t *Timeline) at(seconds float64) int { return min(points-1, int(seconds/t.Step)) }

func (t *Timeline) first(j *job) {
	d, v := &t.First[j.class][t.at(j.at)], j.first-j.at
	d.N++
	d.Sum += v
	d.Most = math.Max(d.Most, v)
}

func (t *Timeline) tick(w *world) {
	p, d, waiting := 0, 0, 0
	for _, e := range w.engines {
		waiting += e.waiting
		switch {
		case !e.v.Live:
		case e.v.Role == model.Prefill:
			p++
		default:
			d++
		}
	}
	// A step shorter than an interval keeps what the tick before it saw.
	to := t.at(w.now)
	for i := t.at(math.Max(0, w.now-w.c.Interval)); i <= to; i++ {
		t.Prefill[i], t.Decode[i] = p, d
		t.Waiting[i], t.Inflight[i] = max(t.Waiting[i], waiting), max(t.Inflight[i], w.inflight())
	}
}
