package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

func benchVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Offers load, scores it against the promise and keeps the evidence"}
	c.AddCommand(benchRunVerb(a), benchReportVerb(a), benchCompareVerb(a))
	return c
}

// benchRuns is the folder in which runs lie that were given no other.
func (a *app) benchRuns() (string, error) {
	state, err := a.stateDir()
	return filepath.Join(state, "bench"), err
}

// benchFolder finds a run: a folder, an id, the beginning of one, or latest.
func (a *app) benchFolder(name string) (*bench.Folder, error) {
	dir, err := a.benchDir(name)
	if err != nil {
		return nil, err
	}
	f, err := bench.ReadFolder(dir)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "bad_bench_run", "read the run", err, "give the folder that narwhal bench run printed")
	}
	return f, nil
}

func (a *app) benchDir(name string) (string, error) {
	if info, err := os.Stat(a.abs(name)); name != "" && name != "latest" && err == nil && info.IsDir() {
		return a.abs(name), nil
	}
	runs, err := a.benchRuns()
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(runs)
	if err != nil && !os.IsNotExist(err) {
		return "", problem.Wrap(problem.Invalid, "bad_bench_run", "list the runs", err, "check the folder, or give a run's own")
	}
	var found []string
	for _, e := range entries {
		if e.IsDir() && (name == "latest" || strings.HasPrefix(e.Name(), name)) {
			found = append(found, e.Name())
		}
	}
	slices.Sort(found)
	switch {
	case len(found) == 0:
		return "", problem.New(problem.Invalid, "no_bench_run", fmt.Sprintf("no run %q in %s", name, runs), "narwhal bench run makes one; give its id or its folder")
	case len(found) > 1 && name != "latest" && found[0] != name:
		return "", problem.New(problem.Invalid, "ambiguous_bench_run", fmt.Sprintf("%d runs begin with %q", len(found), name), "give more of the id: "+strings.Join(found[:min(len(found), 5)], ", "))
	case name == "latest":
		return filepath.Join(runs, found[len(found)-1]), nil
	}
	return filepath.Join(runs, found[0]), nil
}

// verdict is what a report says beside its numbers, as problems and a status.
func benchVerdict(r bench.RunReport, want, maxLag float64) (problem.Status, []*problem.Problem) {
	var out []*problem.Problem
	status := problem.Success
	switch r.State {
	case bench.StateDied:
		out = append(out, problem.New(problem.Degraded, "run_died", "the run died: its process ended without an end of the run", "what it recorded is scored; run the same command again for a whole run"))
	case bench.StatePartial:
		out = append(out, problem.New(problem.Degraded, "run_partial", "the run was ended before its end: "+cmp.Or(r.Because, "no reason is recorded"), "what it offered is scored; run the same command again for a whole run"))
	case bench.StateRunning:
		out = append(out, problem.New(problem.Degraded, "run_running", "the run goes on", "report again when it has ended"))
	}
	for _, d := range r.Diagnostics {
		where := ""
		if d.Point != "" {
			where = d.Point + ": "
		}
		m := fmt.Sprintf("%s%s (%d)", where, d.Message, d.Count)
		if len(d.Samples) > 0 {
			m += ", for example " + d.Samples[0]
		}
		out = append(out, problem.New(problem.Degraded, d.Code, m, d.Hint))
	}
	if len(out) > 0 {
		status = problem.Degraded
	}
	if want > 0 && !(r.Attainment >= want) {
		status = problem.FailedGate
		out = append(out, problem.New(problem.FailedGate, "attainment_missed", fmt.Sprintf("attainment is %.2f %%, %.2f %% are wanted", 100*r.Attainment, 100*want), "lower the load, relax the promise, or add engines"))
	}
	if maxLag > 0 && r.MaxLag > 1000*maxLag {
		status = problem.FailedGate
		out = append(out, problem.New(problem.FailedGate, "lag_exceeded", fmt.Sprintf("the load generator was up to %.1f ms late, %.1f ms are allowed", r.MaxLag, 1000*maxLag), "give it more CPUs or a machine of its own, or split the load over two"))
	}
	return status, out
}

func printBench(w io.Writer, r bench.RunReport) {
	if r.Run != "" {
		fmt.Fprintf(w, "run %s, %s\n", r.Run, r.State)
	}
	fmt.Fprintf(w, "promise: first token within %g s of the scheduled moment, %g ms for each token after it\n\n", r.SLO.TTFT, 1000*r.SLO.TPOT)
	fmt.Fprintf(w, "%-26s %8s %9s %9s %11s %8s %7s  %-22s %-22s %s\n", "", "offered", "completed", "qualified", "attainment", "refused", "failed", "first token p50/95/99", "interval p50/95/99", "latest send")
	line := func(name string, s bench.Score) {
		fmt.Fprintf(w, "%-26s %8d %9d %9d %9.2f %% %8d %7d  %-22s %-22s %.1f ms\n", name, s.Offered, s.Completed, s.Qualified, 100*s.Attainment, s.Refused, s.Failed,
			benchTriple(s.TTFT, 0), benchTriple(s.TPOT, 1), s.MaxLag)
	}
	group := func(name string, rep bench.Report) {
		line(name, rep.Score)
		if len(rep.ByClass) > 1 {
			for _, c := range rep.ByClass {
				line("  "+c.Class, c.Score)
			}
		}
	}
	for _, p := range r.Points {
		name := p.Label
		if p.State != bench.StateComplete {
			name += " (" + p.State + ")"
		}
		group(name, p.Report)
	}
	if len(r.Points) != 1 {
		group("all", r.Report)
	}
	for _, p := range r.Points {
		fmt.Fprintf(w, "\n%s: %.3g requests/s offered, %.3g/s qualified, %.4g output tokens/s, in %.1f s; sent late by %s", p.Label, p.OfferedRate, p.QualifiedRate, p.TokenRate, p.ElapsedS, benchTriple(p.Lag, 2))
		if p.Planned > p.Offered {
			fmt.Fprintf(w, "; %d of %d planned", p.Offered, p.Planned)
		}
	}
	if len(r.Points) > 0 {
		fmt.Fprintln(w)
	}
	for _, u := range r.Unchecked {
		fmt.Fprintf(w, "not checked: %s\n", u)
	}
	if len(r.Diagnostics) == 0 && len(r.Unchecked) == 0 {
		fmt.Fprintln(w, "client rows, journal and counters agree")
	}
	if r.Run != "" {
		fmt.Fprintf(w, "evidence: %s\n", r.Dir)
	}
}

func benchTriple(p bench.Percentiles, digits int) string {
	one := func(v *float64) string {
		if v == nil {
			return "–"
		}
		return fmt.Sprintf("%.*f", digits, *v)
	}
	return one(p.P50) + "/" + one(p.P95) + "/" + one(p.P99) + " ms"
}
