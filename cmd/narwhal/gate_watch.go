package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/gates/watch"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

type watchFlags struct {
	gateFlags
	budget  float64
	every   time.Duration
	overdue time.Duration
	rounds  int
}

type watchData struct {
	Run      string           `json:"run"`
	Rounds   int              `json:"rounds"`
	Looked   int              `json:"looked"`
	Pairs    int              `json:"pairs"`
	Engines  int              `json:"engines"`
	Findings []record.Finding `json:"findings"`
	Journal  string           `json:"journal"`
}

func gateWatchVerb(a *app) *cobra.Command {
	var f watchFlags
	c := &cobra.Command{
		Use: "watch", Short: "Keeps verifying a served fleet: a pair and an engine in turn, while they are idle", Args: cobra.NoArgs,
		Long: "Each round hands a prompt over between one directed pair of engines, compares the tokens with an unsplit\n" +
			"run, and has one engine's sidecar sign over a new nonce. Engines with requests, and such as used up their\n" +
			"budget, have no turn; who waited longest has the next one, over restarts of the command too. What it finds\n" +
			"stands in a journal beside the run's record, which it does not change.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.gateWatch(cmd, f) },
	}
	f.add(c)
	c.Flags().Float64Var(&f.budget, "budget", 1, "share of each engine's time that looking may take, in percent")
	c.Flags().DurationVar(&f.every, "every", 30*time.Second, "time between two rounds")
	c.Flags().DurationVar(&f.overdue, "overdue", 24*time.Hour, "note what was not found to hold for this long; 0 for never")
	c.Flags().IntVar(&f.rounds, "rounds", 0, "end after so many rounds; 0 goes on until it is interrupted")
	return c
}

// savedBudget is the longest idle time whose share of the budget is kept.
const savedBudget = 6 * time.Hour

func (a *app) gateWatch(cmd *cobra.Command, f watchFlags) error {
	if !(f.budget > 0 && f.budget <= 100) || f.every <= 0 || f.rounds < 0 || f.overdue < 0 {
		return problem.New(problem.Invalid, "invalid_arguments", "a budget, a time or a number of rounds is out of range", "--budget is above 0 and at most 100 percent, --every above 0")
	}
	ctx := cmd.Context()
	v, err := a.readRun(cmd, f.gateFlags)
	if err != nil {
		return err
	}
	if g := v.snap.State.Gates["F"]; g.State != record.VerdictPassed {
		return problem.New(problem.Refused, "gate_f_missing", "gate F of run "+filepath.Base(v.snap.Dir)+" has not passed, so nothing says what to expect", "narwhal gate run takes the fleet through its gates")
	}
	view, err := gates.ViewAt(v.snap.State, v.snap.Load)
	if err != nil {
		return problem.Wrap(problem.Failed, "record_unreadable", "read the record", err, "narwhal gate verify names what does not hold")
	}
	run := filepath.Base(v.snap.Dir)
	dir, lock, err := v.watchFolder()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	jumps := remote.NewJumps()
	defer func() { _ = jumps.Close() }()
	s := &session{loaded: v.loaded, app: a, jumps: jumps}
	probes := &watch.OnHosts{View: view, Connect: s.connect(watch.Permit(view.Fleet)), Secret: v.secret(a)}
	defer probes.Close()
	w := &watch.Watch{Engines: view.Fleet.EngineIDs(), Probes: probes, Budget: watch.Budget{Percent: f.budget, Saved: savedBudget}, Overdue: f.overdue,
		Book: filepath.Join(dir, run+".json"), Journal: filepath.Join(dir, run+".jsonl")}
	d := watchData{Run: run, Findings: []record.Finding{}, Journal: w.Journal}
	if err := w.Run(ctx, run, f.rounds, f.every, func(r watch.Round) { _ = lock.Renew(time.Now()); d.add(r); tellRound(a.err, r) }); err != nil {
		return problem.Wrap(problem.Failed, "watch_state", "keep watch", err, "look at "+dir+"; without its file "+run+".json the rotation starts anew")
	}
	a.result = d.result()
	return nil
}

// watchFolder is the folder of the books, held by one command at a time.
func (v readOnly) watchFolder() (string, *record.Lock, error) {
	base, err := record.FleetDir(v.state, v.fleet.Deploy.Name)
	if err == nil {
		err = os.MkdirAll(filepath.Join(base, "watch"), 0o700)
	}
	if err != nil {
		return "", nil, problem.Wrap(problem.Failed, "state_unwritable", "open the state folder", err, "check that the state folder can be written")
	}
	dir := filepath.Join(base, "watch")
	lock, err := record.Acquire(filepath.Join(dir, "lock"), record.Self(v.fleet.Deploy.Name), v.fleet.Deploy.Limits.LockTTL.D())
	var held *record.LockedError
	if errors.As(err, &held) {
		return "", nil, problem.New(problem.Locked, "watch_locked", "another watch holds this fleet: "+held.Error(), "one watch is enough: its journal is in "+dir)
	} else if err != nil {
		return "", nil, problem.Wrap(problem.Failed, "state_unwritable", "lock the watch", err, "check that the state folder can be written")
	}
	return dir, lock, nil
}

func (d *watchData) add(r watch.Round) {
	d.Rounds++
	if r.Looked() {
		d.Looked++
	}
	if r.Pair != nil {
		d.Pairs++
	}
	if r.Engine != "" {
		d.Engines++
	}
	d.Findings = append(d.Findings, r.Findings...)
	if n := len(d.Findings) - maxWatchFindings; n > 0 {
		d.Findings = d.Findings[n:]
	}
}

// maxWatchFindings are kept for the result, the last; the journal has all.
const maxWatchFindings = 1000

func tellRound(w io.Writer, r watch.Round) {
	text := "nothing could have a turn"
	if r.Pair != nil {
		text = fmt.Sprintf("handoff %s → %s in %d ms", r.Pair.From, r.Pair.To, r.PairMS)
	}
	if r.Engine != "" {
		text += fmt.Sprintf(", %s attested in %d ms", r.Engine, r.AskedMS)
	}
	fmt.Fprintf(w, "round %d: %s; %d busy, %d without budget\n", r.Round, text, len(r.Busy), len(r.Spent))
	for _, f := range r.Findings {
		fmt.Fprintf(w, "  %s: %s\n", f.Code, f.Message)
	}
}

// result is failed where something does not hold, degraded where nothing could be looked at.
func (d watchData) result() *result {
	r := &result{status: problem.Success, data: d, artifacts: []artifact{{"journal", d.Journal, "updated"}}}
	told := map[string]bool{}
	for _, f := range d.Findings {
		if f.Note || told[f.Code+f.Engine] {
			continue
		}
		told[f.Code+f.Engine] = true
		r.status = problem.FailedGate
		r.problems = append(r.problems, &problem.Problem{Status: problem.FailedGate, Code: f.Code, Message: f.Message, Hint: f.Hint, Host: f.Host, Engine: f.Engine, Got: f.Got, Want: f.Want})
	}
	if r.status == problem.Success && d.Looked == 0 {
		r.status = problem.Degraded
		r.problems = append(r.problems, problem.New(problem.Degraded, "watch_idle", fmt.Sprintf("nothing had a turn in %d rounds", d.Rounds), "its engines are busy or their budget is spent: let it go on, or raise --budget"))
	}
	r.text = func(w io.Writer) {
		fmt.Fprintf(w, "run %s: %d rounds, %d handoffs, %d statements, %d findings\n%s\n", d.Run, d.Rounds, d.Pairs, d.Engines, len(d.Findings), d.Journal)
	}
	return r
}
