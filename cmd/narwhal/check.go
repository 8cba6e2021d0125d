package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

type checkFlags struct {
	fleet    []string
	pairs    string
	repeats  int
	only     []string
	drills   bool
	yes      bool
	profiles string
}

func checkVerb(a *app) *cobra.Command {
	var f checkFlags
	c := &cobra.Command{
		Use: "check", Short: "Preflight of engines that run: gate F's checks without hosts and without a record", Args: cobra.NoArgs,
		Long: "Asks the engines of a fleet straight over HTTP, from this machine: what each says of itself, which must be equal\n" +
			"on all; whether its sidecar attests its process, where it names one; whether its row of the profile store is of\n" +
			"the live process; and handoffs of directed pairs, whose tokens are compared with the same prompt unsplit.\n\n" +
			"Each engine that is measured gets a few prompts of up to the longest length of deploy.profile (4096 tokens), and\n" +
			"each pair four split requests and two unsplit ones. An engine whose own metrics tell of requests is asked and not measured: what is\n" +
			"left out is told, and the exit code is 3. --yes measures it beside them. --pairs none hands nothing over.\n\n" +
			"Exit 0: all passed. 1: a check said no. 2: bad input. 3: something was skipped. 4: no engine can be reached.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.check(cmd, f) },
	}
	fleetFlag(c, &f.fleet)
	c.Flags().StringVar(&f.pairs, "pairs", fleet.PairsMesh, "directed pairs that hand over: ring (each engine once to the next), mesh (every pair that the roles of an SGLang fleet allow) or none")
	c.Flags().IntVar(&f.repeats, "repeats", 1, "how often each pair is asked")
	c.Flags().StringArrayVar(&f.only, "only", nil, "check this engine and the pairs it is part of; repeat for several (default: all)")
	c.Flags().BoolVar(&f.drills, "drills", false, "also abort a request on each engine, and let a handoff expire where deploy.profile.lease_drill is set")
	c.Flags().StringVar(&f.profiles, "profiles", "", "profile store (default: profiles.path of the fleet)")
	c.Flags().BoolVar(&f.yes, "yes", false, "measure engines that have requests too")
	return c
}

func (a *app) check(cmd *cobra.Command, f checkFlags) error {
	ctx := cmd.Context()
	d, _, err := a.direct(ctx, f.fleet)
	if err != nil {
		return err
	}
	if err := known(d.Fleet, f.only); err != nil {
		return err
	}
	if _, err := preflight.PairsOf(d.Fleet, f.pairs); err != nil {
		return problem.Wrap(problem.Invalid, "invalid_arguments", "read --pairs", err, "--pairs ring, mesh or none")
	}
	if err := a.needsKey(d.Fleet); err != nil {
		return err
	}
	q := preflight.Checking{Pairs: f.pairs, Repeats: f.repeats, Only: f.only, Drills: f.drills, Busy: f.yes}
	if f.profiles != "" {
		d.Fleet.Profiles.Path = f.profiles
	}
	path := d.Fleet.Profiles.Path
	store, err := readProfiles(ctx, path)
	switch {
	case absent(err) && f.profiles == "":
	case err != nil:
		return err
	default:
		q.Store = &store
		if q.Samples, err = readSamples(ctx, samplesBeside(path)); err != nil && !absent(err) {
			fmt.Fprintf(a.err, "narwhal: the points beside the profiles are left aside: %s\n", oneLine(err.Error()))
		}
	}
	lines := a.progress(false)
	d.Step = follow(lines)
	got, err := d.Check(ctx, q)
	lines.Close()
	if err != nil {
		return err
	}
	a.result = checkResult(got)
	return nil
}

// checkResult is failed where something does not hold, degraded where something was left out.
func checkResult(c preflight.Checked) *result {
	r := &result{status: problem.Success, data: c, text: func(w io.Writer) { printCheck(w, c) }}
	switch {
	case !c.Reached():
		r.status = problem.Failed
	case len(c.Failed) > 0:
		r.status = problem.FailedGate
	case len(c.Skipped) > 0:
		r.status = problem.Degraded
		var why []string
		for _, s := range c.Skipped {
			why = append(why, subject(s)+": "+s.Says)
		}
		r.problems = []*problem.Problem{problem.New(r.status, "checks_skipped", fmt.Sprintf("%d of %d checks were skipped: %s", len(c.Skipped), len(c.Checks), strings.Join(why, "; ")), skippedHint(c))}
	}
	for _, f := range c.Failed {
		r.problems = append(r.problems, problemOf(r.status, f))
	}
	return r
}
