package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

func benchReportVerb(a *app) *cobra.Command {
	var journal, aiperf string
	var ttft, tpot, attainment float64
	c := &cobra.Command{
		Use:   "report [RUN]",
		Short: "Scores a run again from its evidence, or a journal alone",
		Long: "Scores a run again from its evidence: a folder, an id or its beginning; the latest without one.\n" +
			"With --journal it scores what a router's journal tells, by the router's own clock.\n\n" +
			"--aiperf writes the files of AIPerf " + bench.AIPerfVersion + " (summary version " + bench.AIPerfSchema + "), a folder each point where there are several.\n" +
			"Their times count from the moment of sending, as AIPerf's do; goodput keeps the promise of the run.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if journal != "" {
				if len(args) > 0 || aiperf != "" {
					return badLoad("--journal goes with neither a RUN nor --aiperf", "leave one of them out")
				}
				r, err := bench.ScoreJournal(a.abs(journal), bench.SLO{TTFT: ttft, TPOT: tpot})
				if err != nil {
					return problem.Wrap(problem.Invalid, "bad_journal", "score --journal "+journal, err, "give the file that narwhal serve writes with --journal, and --ttft and --tpot if it tells no promise")
				}
				a.benchReported(r, attainment)
				return nil
			}
			name := "latest"
			if len(args) > 0 {
				name = args[0]
			}
			f, err := a.benchFolder(name)
			if err != nil {
				return err
			}
			if ttft > 0 {
				f.Manifest.SLO.TTFT = ttft
			}
			if tpot > 0 {
				f.Manifest.SLO.TPOT = tpot
			}
			res := a.benchReported(f.Score(), attainment)
			if aiperf != "" {
				return a.benchExport(f, a.abs(aiperf), res)
			}
			return nil
		},
	}
	c.Flags().StringVar(&journal, "journal", "", "score this journal alone")
	c.Flags().StringVar(&aiperf, "aiperf", "", "folder for the same results in AIPerf's forms")
	c.Flags().Float64Var(&ttft, "ttft", 0, "promise: seconds to the first token (default: the run's, or the journal's)")
	c.Flags().Float64Var(&tpot, "tpot", 0, "promise: seconds for each token after it (default: the run's, or the journal's)")
	c.Flags().Float64Var(&attainment, "attainment", 0, "share of all offers that must keep the promise, else exit 1 (default: no threshold)")
	return c
}

func (a *app) benchReported(r bench.RunReport, attainment float64) *result {
	res := &result{data: r, text: func(w io.Writer) { printBench(w, r) }}
	res.status, res.problems = benchVerdict(r, attainment, 0)
	a.result = res
	return res
}

func (a *app) benchExport(f *bench.Folder, dir string, res *result) error {
	for i := range f.Points {
		to := dir
		if len(f.Points) > 1 {
			to = filepath.Join(dir, fmt.Sprintf("%03d", i+1))
		}
		if err := f.WriteAIPerf(to, i); err != nil {
			return problem.Wrap(problem.Failed, "export_failed", "write AIPerf's files", err, "give --aiperf a folder that can be written")
		}
		for _, name := range bench.AIPerfFiles {
			res.artifacts = append(res.artifacts, artifact{"aiperf", filepath.Join(to, name), "created"})
		}
	}
	return nil
}
