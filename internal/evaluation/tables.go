package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// workload is the section of one workload: all policies, the default in all topologies, classes
// and pictures.
func (e *evaluation) workload(name string) (string, error) {
	c, err := e.load(name)
	if err != nil {
		return "", err
	}
	c.Timeline = true
	r, err := e.run(name, c)
	if err != nil {
		return "", err
	}
	t := c
	t.Timeline, t.Policies, t.Topologies = false, []string{"default"}, []string{simulate.HotSwap, simulate.Aggregated, simulate.Static, simulate.ColdSwap}
	other, err := e.run(name, t)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%d requests offered, first token within %g s, %g ms between tokens. Best static split %s: %s. Hindsight bound: %s.\n\n![%s](evaluation/%s.svg)\n\n",
		name, r.Offered, c.Params.TTFT, 1000*c.Params.TPOT, r.BestStatic.Policy, percent(r.BestStatic.Attainment), percent(r.Hindsight.Attainment), name, name)
	e.pictures[name+".svg"] = simulate.Bars(r)
	b.WriteString(table(append(slices.Clone(r.Arms), other.Arms[1:]...), r))
	for i, word := range []string{"roles", "queue", "first-token"} {
		if name != "chatdoc-100" && name != "azure-x4" {
			break
		}
		file := name + "-" + word + ".svg"
		e.pictures[file] = simulate.Lines(r.Arms[0], c.Params.TTFT)[i]
		fmt.Fprintf(&b, "![%s of %s under the default policy](evaluation/%s)\n\n", word, name, file)
	}
	return b.String(), nil
}

// table has a row an arm and below it, where there are several, a row a class.
func table(arms []simulate.Arm, r simulate.Result) string {
	var b strings.Builder
	b.WriteString("| Policy | Qualified | Attainment | Refused | First token p50 / p95 / p99, ms | Moves | Below the bound |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, a := range arms {
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %s / %s / %s | %d | %.2f points |\n", label(a), a.Qualified, percent(a.Attainment), a.Refused,
			ms(a.TTFT.P50), ms(a.TTFT.P95), ms(a.TTFT.P99), a.Moves, 100*(r.Hindsight.Attainment-a.Attainment))
		for _, k := range a.Classes {
			if len(a.Classes) > 1 {
				fmt.Fprintf(&b, "| – class %s, %d offered | %d | %s | %d | %s / %s / %s | | |\n", k.Class, k.Offered, k.Qualified, percent(k.Attainment), k.Refused,
					ms(k.TTFT.P50), ms(k.TTFT.P95), ms(k.TTFT.P99))
			}
		}
	}
	return b.String() + "\n"
}

// grid is a table of attainments: a row a policy, the best static split and the bound, a
// column a run.
func grid(head string, columns []string, runs []simulate.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s |\n| --- |%s\n", head, strings.Join(columns, " | "), strings.Repeat(" ---: |", len(columns)))
	row := func(name string, of func(simulate.Result) string) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, r := range runs {
			fmt.Fprintf(&b, " %s |", of(r))
		}
		b.WriteString("\n")
	}
	for i, a := range runs[0].Arms {
		row(label(a), func(r simulate.Result) string { return percent(r.Arms[i].Attainment) })
	}
	row("best static split", func(r simulate.Result) string {
		return percent(r.BestStatic.Attainment) + " " + r.BestStatic.Policy[len("static:"):]
	})
	row("hindsight bound", func(r simulate.Result) string { return percent(r.Hindsight.Attainment) })
	return b.String() + "\n"
}

// each plays one configuration a column.
func (e *evaluation) each(head string, columns []string, of func(i int) (string, simulate.Config)) (string, []simulate.Result, error) {
	var runs []simulate.Result
	for i := range columns {
		what, c := of(i)
		r, err := e.run(what, c)
		if err != nil {
			return "", nil, err
		}
		runs = append(runs, r)
	}
	return grid(head, columns, runs), runs, nil
}
