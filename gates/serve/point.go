package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// Bounds of one rate.
const (
	drainLimit   = time.Minute     // for the router to hold no request, before and after
	requestLimit = 2 * time.Minute // of one request from when it was due
	sampleEvery  = 2 * time.Second // between two looks at the router, at least
	maxSamples   = 300             // of one rate, about
)

// Point is one rate of the trial.
type Point struct {
	Rate  float64      `json:"rate"` // requests/s
	Tag   string       `json:"tag"`  // begins every client request id
	Score bench.Report `json:"score"`
	Rows  []bench.Row  `json:"rows"`
	// IdleBefore and IdleAfter say whether the router drained; a router that does not before
	// is offered nothing.
	IdleBefore bool `json:"idle_before"`
	IdleAfter  bool `json:"idle_after"`
	// Samples are looks at the router, the first before and the last after the traffic.
	Samples      []bench.Sample `json:"samples"`
	SampleEveryS float64        `json:"sample_every_s"`
	// Begin is where the journal ended before the traffic.
	Begin Mark `json:"journal_begin"`
	// Reconnects is how often the tunnel was lost meanwhile.
	Reconnects int `json:"tunnel_reconnects"`
}

// passes says whether the next rate may follow, and why not.
func (p Point) passes(f fleet.Fleet) (ok bool, why string) {
	s := bench.Evaluate(p.Rows, bench.SLO{TTFT: f.SLO.TTFTS, TPOT: f.SLO.TPOTS})
	switch {
	case !p.IdleBefore:
		return false, "the router did not drain before it"
	case s.Offered == 0 || !(s.Attainment >= f.Deploy.Trial.Attainment):
		return false, fmt.Sprintf("%d of %d within the SLO", s.Qualified, s.Offered)
	case !p.IdleAfter:
		return false, "the router did not drain after it"
	}
	return true, ""
}

// offering is a trial in progress.
type offering struct {
	env    gates.Env
	fleet  fleet.Fleet
	way    *way
	via    *http.Transport
	router *bench.Router
	tag    string
	within time.Duration // to drain
}

// base stands for the router: every connection goes through the tunnel. A router on loopback
// answers to names of loopback alone.
const base = "http://127.0.0.1"

func newOffering(env gates.Env, w *way) *offering {
	via := w.transport()
	return &offering{env: env, fleet: env.View().Fleet, way: w, via: via, router: bench.NewRouter(base, via), tag: newTag(), within: drainLimit}
}

func (o *offering) close() { o.router.Close() }

// point offers one rate between two looks at a router that holds no request.
func (o *offering) point(ctx context.Context, rate float64, number int) (Point, error) {
	p := Point{Rate: rate, Tag: fmt.Sprintf("%s-%d", o.tag, number), Rows: []bench.Row{}}
	arrivals, err := Arrivals(o.fleet.Deploy.Trial, rate)
	if err != nil {
		return p, err
	}
	lost := o.way.lostTimes()
	length := arrivals[len(arrivals)-1].At
	every := max(sampleEvery, length/maxSamples)
	p.SampleEveryS = every.Seconds()
	if p.IdleBefore, err = o.drain(ctx, &p); err != nil || !p.IdleBefore {
		return p, err
	}
	if p.Begin, err = o.mark(ctx); err != nil {
		return p, err
	}
	o.env.Progress(fmt.Sprintf("%d requests at %.3g/s, about %s", len(arrivals), rate, length.Round(time.Second)))
	if err := o.offer(ctx, &p, arrivals, every); err != nil {
		return p, err
	}
	p.Score = bench.Evaluate(p.Rows, bench.SLO{TTFT: o.fleet.SLO.TTFTS, TPOT: o.fleet.SLO.TPOTS})
	o.env.Progress(fmt.Sprintf("%d of %d within the SLO, TTFT p95 %s", p.Score.Qualified, p.Score.Offered, millis(p.Score.TTFT.P95)))
	p.IdleAfter, err = o.drain(ctx, &p)
	p.Reconnects = o.way.lostTimes() - lost
	return p, err
}

// offer sends the requests and looks at the router meanwhile.
func (o *offering) offer(ctx context.Context, p *Point, arrivals []bench.Arrival, every time.Duration) error {
	beside, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var seen []bench.Sample
	wg.Go(func() { o.router.Watch(beside, every, func(s bench.Sample) { seen = append(seen, s) }) })
	res, err := bench.Run(ctx, bench.Plan{URL: base, Model: o.fleet.Model, Arrivals: arrivals, Timeout: requestLimit, CharsPerToken: o.fleet.Engine.CharsPerToken, Tag: p.Tag, Transport: o.via})
	stop()
	wg.Wait()
	p.Samples = append(p.Samples, seen...)
	p.Rows = res.Rows
	return err
}

// drain waits until the router holds no request, and keeps the last look at it. A router that
// cannot be read is asked again within the limit.
func (o *offering) drain(ctx context.Context, p *Point) (bool, error) {
	end := time.Now().Add(o.within)
	for {
		s, ok := o.router.Drained(ctx, time.Until(end))
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if ok || s.Error == "" || !time.Now().Before(end) {
			p.Samples = append(p.Samples, s)
			return ok, nil
		}
		pause.For(ctx, 200*time.Millisecond)
	}
}

// held says what a router holds, in words for a finding.
func held(s []bench.Sample) string {
	if len(s) == 0 {
		return "nothing was seen of it"
	}
	last := s[len(s)-1]
	if last.Error != "" {
		return clean(last.Error, 200)
	}
	var out []string
	for name, n := range last.Holds {
		out = append(out, fmt.Sprintf("%s %d", clean(name, 40), n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func millis(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("%.0f ms", *v)
}
