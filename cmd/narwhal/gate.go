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

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/gates/serve"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// gateFlags are what most gate verbs share.
type gateFlags struct {
	fleet   []string
	run     string
	to      string
	only    string
	again   []string
	plan    string
	yes     bool
	fresh   bool
	live    bool
	verbose bool
	draft   string
}

func gateVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "gate", Short: "Takes a fleet through gates A to G, looks at the record, goes back"}
	c.AddCommand(gateRunVerb(a), gatePlanVerb(a), gateStatusVerb(a), gateLogVerb(a), gateVerifyVerb(a), gateReplaceVerb(a), gateRollbackVerb(a), gateRunsVerb(a), gateDiffVerb(a), gateReportVerb(a), gateWatchVerb(a))
	return c
}

func (f *gateFlags) add(c *cobra.Command) {
	fleetFlag(c, &f.fleet)
	c.Flags().StringVar(&f.run, "run", "latest", "run id, a unique prefix of one, or latest")
}

func (f *gateFlags) options(args []string) (gates.Options, error) {
	o := gates.Options{To: strings.ToUpper(f.to), Only: strings.ToUpper(f.only), Again: map[string]bool{}, PlanDigest: f.plan}
	if len(args) == 1 {
		if f.to != "" {
			return o, problem.New(problem.Invalid, "invalid_arguments", "the last gate is given twice", "give it either as an argument or with --to")
		}
		o.To = strings.ToUpper(args[0])
	}
	switch {
	case o.Only != "" && o.To != "":
		return o, problem.New(problem.Invalid, "invalid_arguments", "--only and a last gate exclude each other", "give one of them")
	case f.fresh && f.run != "latest":
		return o, problem.New(problem.Invalid, "invalid_arguments", "--new starts a run and --run names one", "give one of them")
	}
	for _, x := range f.again {
		o.Again[strings.ToUpper(x)] = true
	}
	for _, x := range append([]string{o.To, o.Only}, slices.Collect(maps.Keys(o.Again))...) {
		if x != "" && (len(x) != 1 || x < "A" || x > "G") {
			return o, problem.New(problem.Invalid, "unknown_gate", fmt.Sprintf("no gate %q", x), "gates are A to G")
		}
	}
	return o, nil
}

func gateRunVerb(a *app) *cobra.Command {
	var f gateFlags
	c := &cobra.Command{
		Use: "run [GATE]", Short: "Runs the gates in order from the first that does not hold; again resumes", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(args)
			if err != nil {
				return err
			}
			progress := a.progress(f.verbose)
			defer progress.Close()
			if f.draft != "" {
				return a.draftFleet(cmd.Context(), f, o, progress)
			}
			s, err := a.openSession(cmd.Context(), f.fleet, f.run, f.fresh, progress)
			if err != nil {
				return err
			}
			defer s.Close()
			fmt.Fprintf(a.err, "run %s\n", s.run)
			s.runner.Approve = a.approve(cmd.Context(), f.yes)
			begin := time.Now()
			out, err := s.runner.Run(cmd.Context(), o)
			a.result = s.report(out, time.Since(begin))
			return err
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.to, "to", "", "last gate to run")
	c.Flags().StringVar(&f.only, "only", "", "run this gate alone")
	c.Flags().StringArrayVar(&f.again, "again", nil, "repeat this gate although it holds")
	c.Flags().StringVar(&f.plan, "plan", "", "digest of the plan that was approved; another one is refused")
	c.Flags().BoolVar(&f.yes, "yes", false, "approve what the plans show")
	c.Flags().BoolVar(&f.fresh, "new", false, "start a new run")
	c.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "a line for every step")
	c.Flags().StringVar(&f.draft, "draft", "", "with gate A: write a commented fleet file of what was found; the fleet file given may hold deploy.hosts alone")
	c.Flags().Lookup("draft").NoOptDefVal = defaultDraft
	return c
}

// approve asks a terminal once, takes --yes, and refuses anything else.
func (a *app) approve(ctx context.Context, yes bool) func(gates.Info, gates.Plan) error {
	asked := false
	return func(info gates.Info, p gates.Plan) error {
		if yes || asked {
			return nil
		}
		if !isTerminal(a.in) {
			return problem.New(problem.Refused, "approval_missing", fmt.Sprintf("gate %s changes hosts and nobody approved it", info.Letter),
				"look at narwhal gate plan, then give --yes")
		}
		fmt.Fprintf(a.err, "gate %s and those after it change hosts: %d steps now, narwhal gate plan shows them all. Go on? [y/N] ", info.Letter, len(p.Steps))
		yes, err := a.askYes(ctx)
		if err != nil {
			return err
		}
		if !yes {
			return problem.New(problem.Refused, "approval_missing", "the plan was not approved", "")
		}
		asked = true
		return nil
	}
}

// askToGoOn shows what would happen and asks the terminal; where there is none it refuses, with
// the hint. why says what needs approval, what names it.
func (a *app) askToGoOn(ctx context.Context, show func(io.Writer), why, what, hint string) error {
	if !isTerminal(a.in) {
		return problem.New(problem.Refused, "approval_missing", why+" and nobody approved it", hint)
	}
	show(a.err)
	fmt.Fprint(a.err, "Go on? [y/N] ")
	ok, err := a.askYes(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return problem.New(problem.Refused, "approval_missing", what+" was not approved", "")
	}
	return nil
}

// askYes waits for a line on the terminal, or for the command's end.
func (a *app) askYes(ctx context.Context) (bool, error) {
	got := make(chan string, 1)
	go func() { // ends with the process when nobody answers
		var answer string
		_, _ = fmt.Fscanln(a.in, &answer)
		got <- answer
	}()
	select {
	case answer := <-got:
		return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"), nil
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return false, context.Cause(ctx)
	}
}

// report is the result of a run.
func (s *session) report(out gates.Outcome, took time.Duration) *result {
	data := s.status()
	return &result{status: out.Status, data: data, problems: out.Errors, artifacts: []artifact{{"record", s.dir, "updated"}}, text: func(w io.Writer) {
		if out.Status == problem.Success && !out.Changed {
			fmt.Fprintf(w, "nothing to do: every gate holds (looked at in %s)\n", took.Round(time.Millisecond))
		}
		data.print(w)
		if out.Status == problem.Success {
			fmt.Fprintf(w, "record %s\n", s.dir)
		}
	}}
}

// runStatus is the data of gate run and gate status.
type runStatus struct {
	Run    string       `json:"run"`
	Fleet  string       `json:"fleet"`
	Gates  []gateStatus `json:"gates"`
	Router routerStatus `json:"router"`
	// Acceptance is what gate G hands over.
	Acceptance *serve.Acceptance `json:"acceptance,omitempty"`
	// Replacement is one that is not finished.
	Replacement *replacementStatus `json:"replacement,omitempty"`
	Dir         string             `json:"dir"`
}

type gateStatus struct {
	Gate     string           `json:"gate"`
	Title    string           `json:"title"`
	State    string           `json:"state"`
	Started  *time.Time       `json:"started"`
	Ended    *time.Time       `json:"ended"`
	Because  string           `json:"because,omitempty"`
	Findings []record.Finding `json:"findings"`
	Evidence []evidenceStatus `json:"evidence"`
	Seal     string           `json:"seal,omitempty"`
}

type evidenceStatus struct {
	Key     string `json:"key"`
	SHA256  string `json:"sha256"`
	Media   string `json:"media"`
	Bytes   int64  `json:"bytes"`
	Stale   bool   `json:"stale,omitempty"`
	Because string `json:"because,omitempty"`
}

type routerStatus struct {
	URL    string `json:"url"`
	Tunnel string `json:"tunnel"`
}

// status reads the state of the run; stale marks what the inputs of now withdraw.
func (s *session) status() runStatus {
	return statusOf(s.fleet.Deploy.Name, s.run, s.dir, s.record.State(), s.runner.Stale(), s.fleet.Deploy.Router.Listen, s.record.Load)
}

func statusOf(name, run, dir string, state record.State, stale map[record.Key]string, listen string, load func(record.Ref) ([]byte, error)) runStatus {
	out := runStatus{Run: run, Fleet: name, Dir: dir, Gates: []gateStatus{}}
	for _, g := range pipeline() {
		info := g.Info()
		st := state.Gates[info.Letter]
		gs := gateStatus{Gate: info.Letter, Title: info.Title, State: st.State, Findings: st.Findings, Evidence: []evidenceStatus{}}
		if all, err := gates.Findings(st, load); err == nil {
			gs.Findings = all
		} else {
			gs.Because = fmt.Sprintf("only the first %d findings can be read: %v; narwhal gate verify says what does not hold", len(st.Findings), err)
		}
		if gs.State == "" {
			gs.State = record.GatePending
		}
		if gs.Findings == nil {
			gs.Findings = []record.Finding{}
		}
		if !st.Started.IsZero() {
			gs.Started = &st.Started
		}
		if !st.Ended.IsZero() {
			gs.Ended = &st.Ended
		}
		for _, k := range slices.Sorted(maps.Keys(st.Evidence)) {
			e := st.Evidence[k]
			es := evidenceStatus{Key: string(k), SHA256: e.Ref.SHA256, Media: e.Ref.Media, Bytes: e.Ref.Bytes, Stale: e.Stale, Because: e.Because}
			if why := stale[k]; why != "" {
				es.Stale, es.Because = true, why
			}
			gs.Evidence = append(gs.Evidence, es)
		}
		for k, why := range stale {
			if k.Gate() == info.Letter && gs.State == record.VerdictPassed {
				gs.State, gs.Because = record.GateStale, why
			}
		}
		if st.Seal != nil {
			gs.Seal = st.Seal.Ref.SHA256
		}
		out.Gates = append(out.Gates, gs)
	}
	out.Replacement = replacementOf(state)
	if g := state.Gates["G"]; g.State == record.VerdictPassed {
		out.Router = routerStatus{URL: "http://" + listen, Tunnel: "narwhal tunnel"}
	}
	return out.accepted(state, load)
}

func (r runStatus) print(w io.Writer) { r.show(w, false) }

// printAll is print with the findings of each gate's last verdict.
func (r runStatus) printAll(w io.Writer) { r.show(w, true) }

func (r runStatus) show(w io.Writer, findings bool) {
	fmt.Fprintf(w, "run %s of fleet %s\n", r.Run, r.Fleet)
	for _, g := range r.Gates {
		when := ""
		if g.Ended != nil {
			when = g.Ended.Local().Format("15:04:05")
		}
		fmt.Fprintf(w, "  %s %-10s %-13s %-9s %d pieces of evidence", g.Gate, g.Title, g.State, when, len(g.Evidence))
		if g.Because != "" {
			fmt.Fprintf(w, "; %s", g.Because)
		}
		fmt.Fprintln(w)
		if findings {
			printFindings(w, g.Findings)
		}
	}
	r.Replacement.print(w)
	for _, line := range acceptanceLines(r.Acceptance) {
		fmt.Fprintf(w, "    %s\n", line)
	}
	if r.Router.URL != "" {
		fmt.Fprintf(w, "router %s on its host; %s opens it here\n", r.Router.URL, r.Router.Tunnel)
	}
}
