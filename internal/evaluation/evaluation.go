package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// evaluation is the page in the making.
type evaluation struct {
	ctx      context.Context
	root     string
	pictures map[string][]byte
	say      func(string)
	behind   []string // where the router's own policy is behind another by more than a point
}

// sections of the page in order.
func (e *evaluation) sections() []func() (string, error) {
	var out []func() (string, error)
	for _, n := range names {
		out = append(out, func() (string, error) { return e.workload(n) })
	}
	return append(out, e.published, e.rebuilt, e.speeds, e.seeds, e.traces, e.robust, e.prefixes, e.waves)
}

func (e *evaluation) page() (string, error) {
	var body strings.Builder
	for _, s := range e.sections() {
		text, err := s()
		if err != nil {
			return "", err
		}
		body.WriteString(text)
	}
	list := "Nowhere on this page.\n"
	if len(e.behind) > 0 {
		list = "| Run | Policy ahead | By |\n| --- | --- | --- |\n" + strings.Join(e.behind, "")
	}
	return intro + "\n## Where the default policy is behind\n\nRuns in which another arm of this page, or the best static split, is ahead of the router's own policy by more than a point.\n\n" +
		list + "\n" + body.String(), nil
}

// run simulates every policy and notes where the router's own is behind.
func (e *evaluation) run(what string, c simulate.Config) (simulate.Result, error) {
	e.say(what)
	if len(c.Policies) == 0 {
		c.Policies = simulate.PolicyNames()
	}
	r, err := simulate.Run(e.ctx, c)
	if err != nil {
		return r, fmt.Errorf("%s: %w", what, err)
	}
	own := r.Arms[slices.IndexFunc(r.Arms, func(a simulate.Arm) bool { return a.Policy == "default" && a.Topology == simulate.HotSwap })].Attainment
	ahead := func(name string, share float64) {
		if share > own+0.01 {
			e.behind = append(e.behind, fmt.Sprintf("| %s | %s | %.2f points (%s, default %s) |\n", what, name, 100*(share-own), percent(share), percent(own)))
		}
	}
	for _, a := range r.Arms {
		ahead(label(a), a.Attainment)
	}
	ahead(r.BestStatic.Policy, r.BestStatic.Attainment)
	return r, nil
}

func label(a simulate.Arm) string {
	if a.Topology == simulate.HotSwap || a.Policy == "queue-depth" && a.Topology == simulate.Static {
		return a.Policy
	}
	return a.Policy + ", " + a.Topology
}

func percent(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }

func ms(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f", *v)
}
