package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// benchLoad is what is offered, by the flags.
type benchLoad struct {
	Rates       []float64     `json:"rate"`
	Concurrency []int         `json:"concurrency"`
	Phases      []string      `json:"phase"`
	Requests    int           `json:"requests"`
	Duration    time.Duration `json:"duration_ns"`
	Arrivals    string        `json:"arrivals"`
	CV          float64       `json:"cv"`
	Mix         string        `json:"mix"`
	Input       int           `json:"input_tokens"`
	Output      int           `json:"output_tokens"`
	MaxInput    int           `json:"max_input"`
	MaxOutput   int           `json:"max_output"`
	Speed       float64       `json:"speed"`
	Seed        uint64        `json:"seed"`
}

func (l *benchLoad) flags(c *cobra.Command) {
	f := c.Flags()
	f.Float64SliceVar(&l.Rates, "rate", nil, "open loop: mean requests/s; of a WORKLOAD too. Repeat it for several points")
	f.IntSliceVar(&l.Concurrency, "concurrency", nil, "closed loop: requests at a time. Repeat it for several points")
	f.StringArrayVar(&l.Phases, "phase", nil, "open loop: RATE@DURATION or RATE..RATE@DURATION, with :MIX behind it where the mix changes; repeat it for phases that follow each other in one point")
	f.IntVar(&l.Requests, "requests", 0, "requests of a point (default: as many as --duration takes, else 100)")
	f.DurationVar(&l.Duration, "duration", 0, "length of a point (default: as long as --requests take)")
	f.StringVar(&l.Arrivals, "arrivals", "poisson", "how arrivals follow each other: even, poisson, gamma")
	f.Float64Var(&l.CV, "cv", 2, "gamma: standard deviation of the gaps over their mean; above 1 is burstier than poisson")
	f.StringVar(&l.Mix, "mix", "", "classes of requests, as chat=3,document=1 (default: chat)")
	f.IntVar(&l.Input, "input-tokens", 0, "input tokens of every request (default: the class's or the trace's)")
	f.IntVar(&l.Output, "output-tokens", 0, "output tokens of every request (default: the class's or the trace's)")
	f.IntVar(&l.MaxInput, "max-input", 0, "most input tokens of a request (default: no cut)")
	f.IntVar(&l.MaxOutput, "max-output", 0, "most output tokens of a request (default: no cut)")
	f.Float64Var(&l.Speed, "speed", 1, "how many times as fast a WORKLOAD is replayed")
	f.Uint64Var(&l.Seed, "seed", 1, "seed of everything that is drawn")
}

// benchClassList names the classes for help.
func benchClassList() string {
	var out []string
	for _, c := range bench.Classes() {
		out = append(out, c.Name+" ("+c.Says+")")
	}
	return strings.Join(out, ", ")
}

// someRequests is the length of a point that nobody says.
const someRequests = 100

func badLoad(says, hint string) error {
	return problem.New(problem.Invalid, "invalid_arguments", says, hint)
}

// points turns flags and workloads into what is offered.
func (l *benchLoad) points(ctx context.Context, a *app, cmd *cobra.Command, workloads []string) ([]bench.Point, error) {
	if err := l.check(cmd, workloads); err != nil {
		return nil, err
	}
	if l.Requests == 0 && l.Duration == 0 && len(workloads) == 0 && len(l.Phases) == 0 {
		l.Requests = someRequests
	}
	if len(workloads) > 0 {
		return l.replay(ctx, a, workloads)
	}
	mix, err := l.mix()
	if err != nil {
		return nil, badLoad(err.Error(), "give --mix as NAME=WEIGHT,…; narwhal bench run --help lists the classes")
	}
	if len(l.Concurrency) > 0 {
		return l.closed(mix), nil
	}
	return l.open(mix)
}

// check refuses flags that do not go together.
func (l *benchLoad) check(cmd *cobra.Command, workloads []string) error {
	kinds := 0
	for _, given := range []bool{len(workloads) > 0 || len(l.Rates) > 0, len(l.Concurrency) > 0, len(l.Phases) > 0} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return badLoad("the load is not clear", "give --rate, --concurrency, --phase or a WORKLOAD (with --rate, if you like), and one of them alone")
	}
	for _, r := range l.Rates {
		if !(r > 0 && r <= 1e5) {
			return badLoad(fmt.Sprintf("--rate is %g", r), "--rate takes numbers above 0, to 100000 requests/s")
		}
	}
	for _, n := range l.Concurrency {
		if n < 1 || n > 100000 {
			return badLoad(fmt.Sprintf("--concurrency is %d", n), "--concurrency takes 1 to 100000 requests at a time")
		}
	}
	for flag, with := range map[string]bool{
		"mix": len(workloads) == 0, "speed": len(workloads) > 0 && len(l.Rates) == 0, "arrivals": len(workloads) == 0 && len(l.Concurrency) == 0,
		"cv": l.Arrivals == "gamma", "duration": len(l.Phases) == 0,
	} {
		if cmd.Flags().Changed(flag) && !with {
			return badLoad("--"+flag+" does not go with this load", map[string]string{
				"mix":      "a WORKLOAD has its own classes; leave --mix out",
				"speed":    "--speed is for a WORKLOAD without --rate; leave it out",
				"arrivals": "--arrivals is for --rate and --phase without a WORKLOAD; leave it out",
				"cv":       "--cv is for --arrivals gamma; leave it out",
				"duration": "each --phase has its own duration; leave --duration out",
			}[flag])
		}
	}
	return nil
}

// mix is that of the flags; set lengths alone make a class of their own.
func (l *benchLoad) mix() (bench.Mix, error) {
	if l.Mix == "" && l.Input > 0 && l.Output > 0 {
		return bench.Mix{{Class: bench.Fixed(l.Input, l.Output), Weight: 1}}, nil
	}
	if l.Mix == "" {
		return bench.ParseMix("chat")
	}
	return bench.ParseMix(l.Mix)
}

// sized lays the set lengths and the cuts over what was drawn.
func (l *benchLoad) sized(arrivals []bench.Arrival) []bench.Arrival {
	for i := range arrivals {
		x := &arrivals[i]
		if l.Input > 0 {
			x.Input = l.Input
		} else if l.MaxInput > 0 {
			x.Input = min(x.Input, l.MaxInput)
		}
		if l.Output > 0 {
			x.Output = l.Output
		} else if l.MaxOutput > 0 {
			x.Output = min(x.Output, l.MaxOutput)
		}
		x.Prefix = min(x.Prefix, x.Input)
	}
	return arrivals
}

// closedMost is how many requests are drawn for a closed loop that ends by its duration.
const closedMost = 200_000

func (l *benchLoad) closed(mix bench.Mix) (out []bench.Point) {
	n := l.Requests
	if n == 0 {
		n = closedMost
	}
	for _, c := range l.Concurrency {
		out = append(out, bench.Point{Label: fmt.Sprintf("concurrency %d", c), Arrivals: l.sized(bench.Draw(mix, n, l.Seed)), Concurrency: c, Until: l.Duration})
	}
	return out
}

func (l *benchLoad) open(mix bench.Mix) ([]bench.Point, error) {
	p, err := bench.ParseProcess(l.Arrivals, l.CV)
	if err != nil {
		return nil, badLoad("--arrivals: "+err.Error(), "choose even, poisson or gamma; --cv takes 0.05 to 20")
	}
	load := bench.Load{Process: p, Requests: l.Requests, Seed: l.Seed}
	one := func(label string) (bench.Point, error) {
		arrivals, err := load.Generate()
		if err != nil {
			return bench.Point{}, badLoad(label+": "+err.Error(), "raise the rate, --duration or --requests")
		}
		return bench.Point{Label: label, Arrivals: l.sized(arrivals)}, nil
	}
	if len(l.Phases) > 0 {
		for _, text := range l.Phases {
			ph, err := bench.ParsePhase(text, mix)
			if err != nil {
				return nil, badLoad("--phase: "+err.Error(), "a phase is 10@1m, 5..20@90s, or either with a mix: 10@1m:chat=3,document=1")
			}
			load.Phases = append(load.Phases, ph)
		}
		pt, err := one("phases")
		return []bench.Point{pt}, err
	}
	var out []bench.Point
	for _, r := range l.Rates {
		load.Phases = []bench.Phase{{From: r, To: r, For: l.Duration, Mix: mix}}
		pt, err := one(fmt.Sprintf("rate %g/s", r))
		if err != nil {
			return nil, err
		}
		out = append(out, pt)
	}
	return out, nil
}

func (l *benchLoad) replay(ctx context.Context, a *app, workloads []string) ([]bench.Point, error) {
	t, err := a.readTraces(ctx, workloads)
	if err != nil {
		return nil, err
	}
	r := bench.Replay{Requests: l.Requests, For: l.Duration, Speed: l.Speed, Input: l.Input, Output: l.Output, MaxInput: l.MaxInput, MaxOutput: l.MaxOutput}
	rates, out := l.Rates, []bench.Point(nil)
	if len(rates) == 0 {
		rates = []float64{0}
	}
	for _, rate := range rates {
		if r.Rate = rate; rate > 0 {
			r.Speed = 0
		}
		arrivals, err := t.Replay(r)
		if err != nil {
			return nil, badLoad(err.Error(), "raise --duration")
		}
		label := strings.Join(workloads, "+")
		if rate > 0 {
			label += fmt.Sprintf(" at %g/s", rate)
		}
		out = append(out, bench.Point{Label: label, Arrivals: arrivals})
	}
	return out, nil
}
