package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

func benchCompareVerb(a *app) *cobra.Command {
	var strict bool
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Sets run B beside run A, in pairs of the same request, with confidence intervals",
		Long: "Sets run B beside run A, by A's promise. Where both offered the same load and seed, each request is compared with\n" +
			"itself, which shows smaller differences. A difference whose interval holds zero is said not to be distinguishable.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var both [2]*bench.Folder
			for i, name := range args {
				f, err := a.benchFolder(name)
				if err != nil {
					return err
				}
				both[i] = f
			}
			d, err := bench.Compare(both[0], both[1])
			if err != nil {
				return problem.Wrap(problem.Invalid, "not_comparable", "compare "+args[0]+" and "+args[1], err, "narwhal bench report tells what a run holds")
			}
			a.result = &result{data: d, text: func(w io.Writer) { printComparison(w, d) }}
			if strict && d.All.Verdict == bench.Worse {
				return problem.New(problem.FailedGate, "attainment_worse", fmt.Sprintf("%s attains less than %s, by %s points", d.B, d.A, points(d.All.Attainment)), "narwhal bench report "+d.B+" tells where it was lost")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&strict, "fail-if-worse", false, "exit 1 when B attains less than A, distinguishably")
	return c
}

func printComparison(w io.Writer, c bench.Comparison) {
	fmt.Fprintf(w, "A %s\nB %s\npromise: first token within %g s, %g ms for each token after it\n\n", c.A, c.B, c.SLO.TTFT, 1000*c.SLO.TPOT)
	fmt.Fprintf(w, "%-26s %-7s %15s %15s  %-28s %-28s %-28s %-26s %s\n", "", "", "A qualified", "B qualified", "attainment, points", "first token mean, ms", "first token p95, ms", "interval mean, ms", "B is")
	line := func(d bench.Difference) {
		how := "apart"
		if d.Paired {
			how = "pairs"
		}
		fmt.Fprintf(w, "%-26s %-7s %15s %15s  %-28s %-28s %-28s %-26s %s\n", d.Of, how, fmt.Sprintf("%d/%d", d.QualifiedA, d.OfferedA), fmt.Sprintf("%d/%d", d.QualifiedB, d.OfferedB),
			points(d.Attainment), between(d.TTFTMean, 1), between(d.TTFTP95, 1), between(d.TPOTMean, 2), d.Verdict)
	}
	line(c.All)
	if len(c.ByClass) > 1 {
		for _, d := range c.ByClass {
			line(d)
		}
	}
	if len(c.ByPoint) > 1 {
		for _, d := range c.ByPoint {
			line(d)
		}
	}
	fmt.Fprintln(w)
	for _, s := range c.Cautions {
		fmt.Fprintf(w, "note: %s\n", s)
	}
	fmt.Fprintf(w, "method: %s\n", c.Method)
}

func points(i *bench.Interval) string {
	if i == nil {
		return "–"
	}
	return between(&bench.Interval{Value: 100 * i.Value, Low: 100 * i.Low, High: 100 * i.High}, 2)
}

func between(i *bench.Interval, digits int) string {
	if i == nil {
		return "–"
	}
	return fmt.Sprintf("%+.*f (%+.*f to %+.*f)", digits, i.Value, digits, i.Low, digits, i.High)
}
