package serve

import (
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// judgeRates wants every rate of the fleet file offered, in order, and passed. The rates after
// one that did not pass need not have been offered: they are named beside it.
func judgeRates(v gates.View, t Trial) (out []record.Finding) {
	host := v.Fleet.Deploy.Router.Host
	add := func(code, want, got, hint, more string) {
		out = append(out, record.Finding{Code: code, Host: host, Want: want, Got: got, Evidence: string(trialKey), Hint: hint, Message: fmt.Sprintf("got %s, want %s%s", got, want, more)})
	}
	const again = "narwhal gate run --again G"
	if want, got := planned(v.Fleet, t), t.offered(); len(want) == 0 || !slices.Equal(want, got) {
		add("trial-incomplete", list(want), list(got), "give deploy.trial at least one rate, then "+again, "")
	}
	_, highest := t.carried(v.Fleet)
	passing := "; no rate passed"
	if highest > 0 {
		passing = fmt.Sprintf("; the highest passing rate is %g/s", highest)
	}
	slo := bench.SLO{TTFT: v.Fleet.SLO.TTFTS, TPOT: v.Fleet.SLO.TPOTS}
	for i, p := range t.Points {
		s := bench.Evaluate(p.Rows, slo)
		when := fmt.Sprintf("before %g/s", p.Rate)
		switch {
		case !p.IdleBefore:
		case !p.IdleAfter:
			when = fmt.Sprintf("after %g/s", p.Rate)
		default:
			when = ""
		}
		if p.IdleBefore && (s.Offered == 0 || !(s.Attainment >= v.Fleet.Deploy.Trial.Attainment)) {
			add("attainment", fmt.Sprintf("%.1f%% of offered requests within the SLO at %g/s", 100*v.Fleet.Deploy.Trial.Attainment, p.Rate),
				fmt.Sprintf("%.1f%% (%d of %d, %d refused, %d failed%s)", 100*s.Attainment, s.Qualified, s.Offered, s.Refused, s.Failed, commonest(p.Rows)),
				"lower deploy.trial.rates, relax slo, or add engines", passing)
		}
		if when != "" {
			hint := "keep other clients away for the trial; requests that nobody ends hold the router: see residents in /narwhal/state, then "
			if n := len(p.Samples); n > 0 && p.Samples[n-1].Error != "" {
				hint = "the router does not tell its state: see router.log in its host's run folder, then "
			}
			add("not-drained", fmt.Sprintf("a router that holds no request %s, within %v", when, drainLimit), held(p.Samples), hint+again, passing)
		}
		if p.Reconnects > 0 {
			add("trial-tunnel", fmt.Sprintf("a tunnel that holds for all of %g/s", p.Rate), fmt.Sprintf("%d reconnects", p.Reconnects),
				"requests were lost with the tunnel and nothing was reconciled: see the network between here and the router's host, then "+again, "")
		}
		if ok, _ := p.passes(v.Fleet); !ok && i < len(t.Points)-1 {
			add("trial-order", fmt.Sprintf("no rate after %g/s, which did not pass", p.Rate), fmt.Sprintf("%g/s", t.Points[i+1].Rate), again, "")
		}
	}
	inside := 0
	for _, p := range t.Points {
		inside += p.Reconnects
	}
	if t.Reconnects > inside {
		add("trial-tunnel", "a tunnel that holds for all of the trial", fmt.Sprintf("%d reconnects between rates", t.Reconnects-inside), again+" offers the trial anew", "")
	}
	for _, rate := range t.NotRun {
		out = append(out, record.Finding{Code: "rate-not-run", Note: true, Host: host, Evidence: string(trialKey), Want: fmt.Sprintf("%g/s offered", rate), Got: "not run",
			Message: fmt.Sprintf("%g/s was not offered, since the rate before it did not pass%s", rate, passing), Hint: "mend what the finding beside this says, then " + again})
	}
	return out
}

// planned says what the fleet's trial offers at each rate, up to one that did not pass.
func planned(f fleet.Fleet, t Trial) []string {
	var out []string
	rates := f.Deploy.Trial.Rates
	for i, rate := range rates {
		if i > 0 && i == len(t.Points) && slices.Equal(rates[i:], t.NotRun) {
			if ok, _ := t.Points[i-1].passes(f); !ok {
				return append(out, fmt.Sprintf("%d rates not run", len(t.NotRun)))
			}
		}
		arrivals, err := Arrivals(f.Deploy.Trial, rate)
		switch {
		case err != nil:
			out = append(out, err.Error())
		case i < len(t.Points) && !t.Points[i].IdleBefore:
			out = append(out, fmt.Sprintf("none at %g/s", rate))
		default:
			out = append(out, fmt.Sprintf("%d requests at %g/s", len(arrivals), rate))
		}
	}
	return out
}

// offered says what was offered at each rate.
func (t Trial) offered() []string {
	var out []string
	for _, p := range t.Points {
		if !p.IdleBefore && len(p.Rows) == 0 {
			out = append(out, fmt.Sprintf("none at %g/s", p.Rate))
			continue
		}
		out = append(out, fmt.Sprintf("%d requests at %g/s", len(p.Rows), p.Rate))
	}
	if n := len(t.NotRun); n > 0 {
		out = append(out, fmt.Sprintf("%d rates not run", n))
	}
	return out
}
