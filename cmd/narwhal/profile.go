package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

type profileFlags struct {
	fleet     []string
	out       string
	only      []string
	refit     string
	merge     []string
	overwrite bool
	yes       bool

	prefillLens, decodeLens, concurrency []int
	prefillRepeats, decodeTokens         int
	budget                               time.Duration
}

func profileVerb(a *app) *cobra.Command {
	var f profileFlags
	c := &cobra.Command{
		Use: "profile", Short: "Measures engines that run, and fits the curves that the router reads",
		Long: "Sweeps each engine over HTTP from this machine, as gate F does: prompts of several lengths alone, and cohorts that\n" +
			"decode together; one engine a device at a time. Fits a curve through the points and writes the profile store\n" +
			"(narwhal serve --profiles), each row bound to the live process, with the points beside it in STORE.samples.json.\n" +
			"The largest measured cohort and its tokens bound what the router lets an engine decode at once.\n\n" +
			"An engine whose points follow no curve gets no row, and the reason is told (exit 1). One that fails or restarts\n" +
			"meanwhile gets none either (exit 4); those that were measured are kept. Engines with requests are refused\n" +
			"without --yes: the sweep and they would slow each other down.\n\n" +
			"--refit FILE fits the points of a samples file anew and asks no engine. --merge FILE FILE... puts stores, with\n" +
			"the points beside them, or samples files together: points of one engine are fitted together.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && len(f.merge) == 0 {
				return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("narwhal profile takes no %q", args[0]), "-f FLEET names the fleet, --merge FILE FILE... what to put together")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.merge = append(f.merge, args...)
			return a.profile(cmd, f)
		},
	}
	fleetFlag(c, &f.fleet)
	c.Flags().StringVar(&f.out, "out", "", "profile store to write (default: profiles.path of the fleet)")
	c.Flags().StringArrayVar(&f.only, "only", nil, "measure or refit this engine and keep the rows of the others; repeat for several (default: all)")
	c.Flags().BoolVar(&f.overwrite, "overwrite", false, "replace a profile store that exists")
	c.Flags().StringVar(&f.refit, "refit", "", "fit the points of this samples file; no engine is asked")
	c.Flags().StringArrayVar(&f.merge, "merge", nil, "put these stores or samples files together; no engine is asked")
	c.Flags().IntSliceVar(&f.prefillLens, "prefill-lens", nil, "prompt lengths in tokens (default: deploy.profile, or 256,512,1024,2048,4096)")
	c.Flags().IntVar(&f.prefillRepeats, "prefill-repeats", 0, "least samples of a prompt length (default: deploy.profile, or 3)")
	c.Flags().IntSliceVar(&f.decodeLens, "decode-input-lens", nil, "prompt lengths of cohorts in tokens (default: deploy.profile, or 256,1024)")
	c.Flags().IntSliceVar(&f.concurrency, "decode-concurrency", nil, "cohort sizes in requests (default: deploy.profile, or 1,2,4,8)")
	c.Flags().IntVar(&f.decodeTokens, "decode-tokens", 0, "tokens that each request of a cohort generates (default: deploy.profile, or 32)")
	c.Flags().DurationVar(&f.budget, "sweep-budget", 0, "time for repeats of one engine's sweep (default: deploy.profile, or 2m)")
	c.Flags().BoolVar(&f.yes, "yes", false, "measure engines that have requests too")
	return c
}

// sweepFlags change what is measured.
var sweepFlags = []string{"prefill-lens", "prefill-repeats", "decode-input-lens", "decode-concurrency", "decode-tokens", "sweep-budget"}

func (a *app) profile(cmd *cobra.Command, f profileFlags) error {
	ctx := cmd.Context()
	if err := f.valid(cmd.Flags().Changed); err != nil {
		return err
	}
	d, l, err := a.direct(ctx, f.fleet)
	if err != nil {
		return err
	}
	if err := known(d.Fleet, f.only); err != nil {
		return err
	}
	if err := f.points(&d.Fleet.Deploy.Profile); err != nil {
		return err
	}
	if f.asks() {
		if err := a.needsKey(d.Fleet); err != nil {
			return err
		}
		d.AsLive(ctx)
	}
	out, err := a.claimStore(ctx, f, l.fleet)
	if err != nil {
		return err
	}
	defer out.hold.Release()
	p, err := a.profiled(ctx, f, d)
	if err != nil {
		return err
	}
	return a.writeProfiles(f, d.Fleet, out, p)
}

// asks reports whether engines are measured.
func (f profileFlags) asks() bool { return f.refit == "" && len(f.merge) == 0 }

// valid refuses flags that say two things.
func (f profileFlags) valid(given func(string) bool) error {
	bad := func(message, hint string) error {
		return problem.New(problem.Invalid, "invalid_arguments", message, hint)
	}
	switch {
	case f.refit != "" && len(f.merge) > 0:
		return bad("--refit and --merge are both given", "--merge fits what it puts together")
	case len(f.merge) == 1:
		return bad("--merge names one file", "--merge FILE FILE... puts two or more together; --refit FILE fits one anew")
	case len(f.merge) > 0 && len(f.only) > 0:
		return bad("--merge and --only are both given", "--merge takes all engines of its files")
	}
	for _, name := range sweepFlags {
		if !f.asks() && given(name) {
			return bad("--"+name+" is given, and no engine is measured", "leave it out, or leave --refit and --merge out")
		}
	}
	return nil
}

const mostTokens = 10_000_000

// points puts what the flags say in place of what the fleet file says.
func (f profileFlags) points(to *fleet.Profiling) error {
	for _, x := range []struct {
		name  string
		v     []int
		least int
		to    *[]int
	}{{"prefill-lens", f.prefillLens, 3, &to.PrefillTokens}, {"decode-input-lens", f.decodeLens, 2, &to.DecodeTokens}, {"decode-concurrency", f.concurrency, 2, &to.DecodeRequests}} {
		if x.v == nil {
			continue
		}
		v := slices.Compact(slices.Sorted(slices.Values(x.v)))
		if len(v) < x.least || v[0] < 1 || v[len(v)-1] > mostTokens {
			return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("--%s is %v", x.name, x.v), fmt.Sprintf("a curve needs %d different values or more, from 1 to %d", x.least, mostTokens))
		}
		*x.to = v
	}
	if f.prefillRepeats > 0 {
		to.PrefillRepeats = f.prefillRepeats
	}
	if f.decodeTokens > 0 {
		to.OutputTokens = f.decodeTokens
	}
	if f.budget > 0 {
		to.Budget = fleet.Duration(f.budget)
	}
	return nil
}

// profiled is what is to be fitted, measured or read.
func (a *app) profiled(ctx context.Context, f profileFlags, d *preflight.Direct) (preflight.Profiling, error) {
	switch {
	case f.refit != "":
		s, err := readSamples(ctx, a.abs(f.refit))
		if err != nil {
			return preflight.Profiling{}, problem.Wrap(problem.Invalid, "samples_unreadable", "read the points of --refit", err, "--refit takes the samples file that narwhal profile writes beside a store")
		}
		p, err := preflight.Refit(d.Fleet, *s, f.only)
		if err != nil {
			return p, problem.Wrap(problem.Invalid, "samples_unfit", "refit "+f.refit, err, "name the samples file of this fleet")
		}
		return p, nil
	case len(f.merge) > 0:
		sources, err := a.mergeSources(ctx, f.merge)
		if err != nil {
			return preflight.Profiling{}, err
		}
		p, err := preflight.Merge(d.Fleet.Model, sources)
		if err != nil {
			return p, problem.Wrap(problem.Invalid, "merge_impossible", "put the profiles together", err, "leave one of the files out, or measure the engine again: narwhal profile -f FLEET --only IID")
		}
		return p, nil
	}
	return a.measureEngines(ctx, f, d)
}

func (a *app) measureEngines(ctx context.Context, f profileFlags, d *preflight.Direct) (preflight.Profiling, error) {
	var busy []string
	asked := d.Measures(f.only)
	loads := d.Loads(ctx, asked)
	for _, e := range asked {
		if l := loads[e]; l.Busy() {
			busy = append(busy, fmt.Sprintf("%s has %v", e, l))
		}
	}
	if len(busy) > 0 && !f.yes {
		return preflight.Profiling{}, problem.New(problem.Refused, "engine_busy", "engines have requests: "+strings.Join(busy, ", "), "drain them (narwhal engines drain IID) or wait until they are idle; --yes measures them all the same, and the curves are of both loads")
	}
	for _, b := range busy {
		fmt.Fprintf(a.err, "narwhal: warning: %s, and is measured beside them\n", oneLine(b))
	}
	lines := a.progress(true)
	d.Step = follow(lines)
	p, err := d.Measure(ctx, f.only)
	lines.Close()
	return p, err
}

func printProfiles(w io.Writer, d profileData) {
	for _, e := range d.Engines {
		state := "fitted"
		if e.Row == nil {
			state = "REFUSED"
		}
		fmt.Fprintf(w, "%-8s %s: %d prefill and %d decode samples in %d rounds (%s); mean error of prefill %.1f %%, of decode %.1f %%, leave-one-out %.1f %%\n", state, oneLine(e.IID), e.Prefill, e.Decode, e.Rounds, oneLine(e.Ended),
			100*e.Report.Prefill.MAPE, 100*e.Report.Decode.MAPE, 100*e.Report.DecodeCV)
		if r := e.Row; r != nil {
			fmt.Fprintf(w, "         prefill of n tokens %.3g·n² + %.3g·n + %.3g s, to %d tokens; interval of r requests with k tokens %.3g·k + %.3g·r + %.3g s, to %d requests and %d tokens\n", r.TTFTA, r.TTFTB, r.TTFTC, r.Curve().PrefillMax,
				r.TPOTSlope, r.TPOTRequestSlope, r.TPOTIntercept, r.DecodeMaxRequests, r.DecodeMaxKVTokens)
			printNotes(w, e.Findings)
		}
	}
	if len(d.Kept) > 0 {
		fmt.Fprintf(w, "kept     %s\n", oneLine(strings.Join(d.Kept, ", ")))
	}
	if d.Store != "" {
		fmt.Fprintf(w, "%s\n", d.Store)
	}
}
