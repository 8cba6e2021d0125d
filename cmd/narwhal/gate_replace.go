package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// replaceData is the data of gate replace: what it will do, and with a run what became of it.
type replaceData struct {
	runStatus
	Digest  string               `json:"plan_digest"`
	Engines []string             `json:"engines"`
	Wave    bool                 `json:"wave"`
	Only    bool                 `json:"only"`
	Profile bool                 `json:"profile"`
	Resumes bool                 `json:"resumes"`
	Rounds  []gates.ReplaceRound `json:"rounds"`
	Unowned []gates.Unowned      `json:"unowned,omitempty"`
	// Back says what is taken back.
	Back   *backStatus `json:"back,omitempty"`
	Dry    bool        `json:"dry_run"`
	ran    bool
	status problem.Status
}

const defaultDrainWithin = 5 * time.Minute

func gateReplaceVerb(a *app) *cobra.Command {
	var f gateFlags
	var o gates.ReplaceOptions
	var dry bool
	var back, out string
	var only []string
	drain := defaultDrainWithin
	c := &cobra.Command{
		Use: "replace [IID...]", Short: "Replaces engines of a fleet that serves: drain, stop, launch, gates, activate, readmit", Args: cobra.ArbitraryArgs,
		Long: "Takes engines out of service, stops them, launches them as the fleet file says now, takes them through gates A to F, lets\n" +
			"the router take up their profiles, and takes them back. The router and the other engines go on. Evidence that is about\n" +
			"other engines is kept.\n\n" +
			"One engine follows the other; --wave replaces the whole fleet at once, with admission closed, and with --only the engines\n" +
			"that it names, while the others serve. What fails leaves its engine out of service; the same command, with the engines\n" +
			"or without, goes on from there.\n\n" +
			"--back takes a replacement back: the engines are replaced once more, by the launches and profiles that the record holds\n" +
			"from before it. --back=N is of the one that line N of the record began, else it is the newest that was not taken back.",
		Example: "  narwhal gate replace d1 -f fleet.cue --dry-run\n  narwhal gate replace d1 d2 -f fleet.cue --yes\n" +
			"  narwhal gate replace --wave --only p0,d0 -f fleet.cue --yes\n  narwhal gate replace --back -f fleet.cue --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if drain <= 0 {
				return problem.New(problem.Invalid, "invalid_arguments", "--drain is not positive", "give a duration like 5m")
			}
			o.Engines, o.Drain, o.PlanDigest = args, fleet.Duration(drain), f.plan
			if err := waveOf(&o, only); err != nil {
				return err
			}
			if err := wayBack(&o, back, out); err != nil {
				return err
			}
			progress := a.progress(f.verbose)
			defer progress.Close()
			return a.replaceEngines(cmd.Context(), f, o, dry, out, progress)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&o.Wave, "wave", false, "replace the whole fleet at once; nothing is admitted meanwhile")
	c.Flags().StringSliceVar(&only, "only", nil, "with --wave: the engines that are replaced at once, while the others serve")
	c.Flags().StringVar(&back, "back", "", "take back the newest replacement, or the one that this line of the record began")
	c.Flags().Lookup("back").NoOptDefVal = newestReplacement
	c.Flags().StringVarP(&out, "output", "o", "", "with --back: write the fleet document of what runs then; beside the fleet file, since references in it are relative")
	c.Flags().BoolVar(&o.Profile, "profile", false, "measure the engines although their profiles hold")
	c.Flags().DurationVar(&drain, "drain", drain, "how long an engine's requests are waited for")
	c.Flags().BoolVar(&o.Cut, "cut", false, "end requests that run longer than --drain")
	c.Flags().BoolVar(&o.BelowFloor, "below-floor", false, "take an engine although it is the last of its role, or its role is at its floor")
	c.Flags().StringVar(&f.plan, "plan", "", "digest of the plan that was approved; another one is refused")
	c.Flags().BoolVar(&f.yes, "yes", false, "approve what the plan shows")
	c.Flags().BoolVar(&dry, "dry-run", false, "show the plan and stop")
	c.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "a line for every step")
	return c
}

func (a *app) replaceEngines(ctx context.Context, f gateFlags, o gates.ReplaceOptions, dry bool, out string, progress gates.Progress) error {
	if err := a.absent(out); err != nil {
		return err
	}
	s, err := a.openSession(ctx, f.fleet, f.run, false, progress)
	if err != nil {
		return err
	}
	defer s.Close()
	p, err := s.runner.PlanReplace(ctx, o)
	if err != nil {
		return err
	}
	d := &replaceData{Digest: p.Digest, Engines: p.Engines, Wave: p.Wave, Only: p.Only, Profile: p.Profile, Resumes: p.Resumes, Rounds: p.Rounds, Unowned: p.Unowned, Back: backOf(p.Back), Dry: dry}
	d.runStatus = s.status()
	if dry {
		a.result = &result{data: d, text: d.print}
		return nil
	}
	if err := a.approveReplacement(ctx, f, d); err != nil {
		return err
	}
	s.runner.Approve = func(gates.Info, gates.Plan) error { return nil }
	fmt.Fprintf(a.err, "run %s\n", s.run)
	done, err := s.runner.Replace(ctx, p)
	d.runStatus, d.ran, d.status = s.status(), true, done.Status
	a.result = &result{status: done.Status, data: d, problems: done.Errors, artifacts: []artifact{{"record", s.dir, "updated"}}, text: d.print}
	if err != nil || done.Status != problem.Success || d.Back == nil {
		return err
	}
	return a.writeBack(d, s.runner.Fleet, out)
}

func (a *app) approveReplacement(ctx context.Context, f gateFlags, d *replaceData) error {
	if f.yes || f.plan != "" {
		return nil
	}
	return a.askToGoOn(ctx, d.print, "a replacement disrupts engines", "the replacement", "look at it with --dry-run, then give --yes or --plan with its digest")
}

func (d *replaceData) print(w io.Writer) {
	if d.ran {
		if d.status == problem.Success {
			fmt.Fprintf(w, "%s: replaced, and in service again\n", strings.Join(d.Engines, ", "))
			d.Back.print(w)
		}
		d.runStatus.print(w)
		return
	}
	verb := "replace"
	if d.Resumes {
		verb = "go on replacing"
	}
	if d.Back != nil {
		verb = map[bool]string{false: "take back", true: "go on taking back"}[d.Resumes]
	}
	fmt.Fprintf(w, "%s %s, plan %.16s\n", verb, strings.Join(d.Engines, ", "), d.Digest)
	d.Back.print(w)
	for _, u := range d.Unowned {
		fmt.Fprintf(w, "refused for %s on %s: %s\n", oneLine(u.Name), u.Host, oneLine(u.Why))
	}
	for _, r := range d.Rounds {
		fmt.Fprintf(w, "%s:\n", strings.Join(r.Engines, ", "))
		printSteps(w, "drain", r.Out)
		printSteps(w, "stop", r.Stop)
		for _, g := range r.Gates {
			printSteps(w, "gate "+g.Gate, g.Steps)
		}
		for _, e := range slices.Sorted(maps.Keys(r.Profiles)) {
			fmt.Fprintf(w, "  the profile of %s comes back, SHA-256 %.16s\n", e, r.Profiles[e])
		}
		printSteps(w, "activate, where the profiles come out other than now", r.Activate)
		printSteps(w, "readmit", r.Back)
	}
}

func printSteps(w io.Writer, stage string, steps []gates.Step) {
	if len(steps) == 0 {
		return
	}
	fmt.Fprintf(w, "  %s\n", stage)
	for _, s := range steps {
		host := s.Host
		if host == "" {
			host = "here"
		}
		fmt.Fprintf(w, "    %-26s %-10s %-8s within %-8s %s\n", s.ID, host, s.Effect, s.Limit, action(s))
	}
}
