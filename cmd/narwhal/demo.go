package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/internal/sandbox"
)

type demoFlags struct {
	hosts int
	dir   string
	keep  bool
	quick bool
}

// demoData is what the demo saw.
type demoData struct {
	Run      string               `json:"run"`
	Fleet    string               `json:"fleet"`
	Gates    []gateStatus         `json:"gates"`
	Router   routerStatus         `json:"router"`
	Traffic  traffic              `json:"traffic"`
	Replayed demoReplay           `json:"replayed"`
	Rollback gates.RollbackResult `json:"rollback"`
	Verified bool                 `json:"verified"`
	Record   string               `json:"record"`
	Report   string               `json:"report"`
	Bundle   string               `json:"bundle"`
	TookMS   int64                `json:"took_ms"`
}

func demoVerb(a *app) *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use: "demo", Short: "A sandbox fleet through all gates, traffic that shifts, a bundle, a rollback", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	c.Flags().IntVar(&f.hosts, "hosts", sandbox.DefaultHosts, "number of hosts, 2 to 16")
	c.Flags().StringVar(&f.dir, "dir", "", "folder of the sandbox and its record (default: a new one in the temporary folder)")
	c.Flags().BoolVar(&f.keep, "keep", false, "leave the fleet served and print how to reach it, until interrupted")
	c.Flags().BoolVar(&f.quick, "quick", false, "shorter traffic")
	return c
}

func (a *app) demo(ctx context.Context, f demoFlags) (err error) {
	if f.hosts < 2 || f.hosts > 16 {
		return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("%d hosts", f.hosts), "the demo takes 2 to 16 hosts")
	}
	begin := time.Now()
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "narwhal-demo-"); err != nil {
			return problem.Wrap(problem.Failed, "demo_folder", "make the demo's folder", err, "give one with --dir")
		}
	}
	if f.dir, err = filepath.Abs(f.dir); err != nil {
		return err
	}
	a.state = filepath.Join(f.dir, "state")
	a.say("narwhal demo: %d hosts on loopback, each an SSH server with its own folder, key and simulated engine", f.hosts)
	a.say("everything lies in %s\n", f.dir)
	sbx, err := startSandbox(filepath.Join(f.dir, "hosts"), f.hosts, 1, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.demoDown(sbx)) }()
	d := &demoData{Fleet: sbx.Fleet}
	if err := a.demoRun(ctx, f, sbx, d); err != nil {
		return err
	}
	d.TookMS = time.Since(begin).Milliseconds()
	a.result = &result{data: d, artifacts: []artifact{{"record", d.Record, "created"}, {"report", d.Report, "created"}, {"bundle", d.Bundle, "created"}}, text: d.print}
	return nil
}

// demoDown leaves no process behind, whatever happened before.
func (a *app) demoDown(sbx *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := sbx.Down(ctx); err != nil {
		return problem.Wrap(problem.Residue, "sandbox_residue", "stop the sandbox", err, "look at the processes with ps")
	}
	// What the hosts held is in the bundle; their copies of this binary are not worth keeping.
	if err := os.RemoveAll(filepath.Join(sbx.Dir, "hosts")); err != nil {
		return problem.Wrap(problem.Residue, "sandbox_residue", "remove the hosts' folders", err, "remove "+sbx.Dir+" by hand")
	}
	a.say("the sandbox is stopped and its hosts are removed; record, report, bundle and keys stay")
	return nil
}

func (a *app) demoRun(ctx context.Context, f demoFlags, sbx *sandbox.Sandbox, d *demoData) error {
	progress := a.progress(false)
	defer progress.Close()
	s, err := a.openSession(ctx, []string{sbx.Fleet}, "latest", false, progress)
	if err != nil {
		return err
	}
	defer s.Close()
	s.runner.Approve = func(gates.Info, gates.Plan) error { return nil }
	d.Run, d.Record = s.run, s.dir
	out, err := s.runner.Run(ctx, gates.Options{})
	if err != nil {
		return err
	}
	st := s.status()
	d.Gates, d.Router = st.Gates, st.Router
	if out.Status != problem.Success {
		return problem.Set(out.Errors)
	}
	a.say("\nall seven gates passed; now traffic that shifts from chat to documents and back")
	if d.Traffic, err = a.shiftingTraffic(ctx, s, f); err != nil {
		return err
	}
	if d.Replayed, err = a.demoReplay(ctx, s); err != nil {
		return err
	}
	if err := a.demoFiles(s, d); err != nil {
		return err
	}
	if f.keep {
		a.say("\nthe fleet is served; from another terminal: NARWHAL_STATE=%s narwhal tunnel -f %s\ninterrupt to go on with the rollback", a.state, sbx.Fleet)
		<-ctx.Done()
		ctx = context.WithoutCancel(ctx)
	}
	return a.demoBack(ctx, s, d)
}

// demoFiles writes the report and takes the bundle out of the record.
func (a *app) demoFiles(s *session, d *demoData) error {
	state := s.record.State()
	html, err := reportHTML(s.status(), state, s.record.Load)
	if err != nil {
		return err
	}
	d.Report = filepath.Join(filepath.Dir(a.state), "report.html")
	if err := os.WriteFile(d.Report, html, 0o600); err != nil {
		return problem.Wrap(problem.Failed, "report_write", "write the report", err, "free space in the demo's folder")
	}
	e, ok := state.Evidence("G/bundle")
	if !ok {
		return nil
	}
	b, err := s.record.Load(e.Ref)
	if err != nil {
		return err
	}
	d.Bundle = filepath.Join(filepath.Dir(a.state), fmt.Sprintf("bundle-%s-%s.tar.gz", s.fleet.Deploy.Name, e.Time.UTC().Format("20060102T150405Z")))
	if err := os.WriteFile(d.Bundle, b, 0o600); err != nil {
		return problem.Wrap(problem.Failed, "bundle_write", "write the bundle", err, "free space in the demo's folder")
	}
	return nil
}

// demoBack rolls back to C and verifies the whole record.
func (a *app) demoBack(ctx context.Context, s *session, d *demoData) error {
	a.say("\nrolling back to gate C: engines stay, everything after them goes")
	p, err := s.runner.PlanRollback(ctx, "C")
	if err != nil {
		return err
	}
	if d.Rollback, err = s.runner.Rollback(ctx, p); err != nil {
		return err
	}
	trust, err := s.signers(s.app)
	if err != nil {
		return err
	}
	v, err := gates.VerifyBy(s.dir, pipeline(), trust)
	if err != nil {
		return err
	}
	d.Verified = len(v.Problems) == 0
	if !d.Verified {
		return problem.New(problem.Unverified, v.Problems[0].Code, "the record does not verify: "+v.Problems[0].Message, "narwhal gate verify "+s.dir)
	}
	a.say("the record verifies: %d events, %d objects, %d seals", v.Events, v.Objects, v.Seals)
	return nil
}

// say tells a person what happens; the result goes elsewhere.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }

func (d *demoData) print(w io.Writer) {
	fmt.Fprintf(w, "\n")
	for _, g := range d.Gates {
		took := ""
		if g.Started != nil && g.Ended != nil {
			took = g.Ended.Sub(*g.Started).Round(10 * time.Millisecond).String()
		}
		fmt.Fprintf(w, "  gate %s %-10s %-7s %8s  %d pieces of evidence\n", g.Gate, g.Title, marks[g.State], took, len(g.Evidence))
	}
	d.Traffic.print(w)
	fmt.Fprintf(w, "  the journal's %d placements and %d decisions of the controller come out the same when they are made again\n", d.Replayed.Placements, d.Replayed.Evaluations)
	fmt.Fprintf(w, "  rolled back to %s: stopped %s; must run again: %s\n", d.Rollback.To, list(d.Rollback.Stopped), list(d.Rollback.Rerun))
	fmt.Fprintf(w, "\n  record  %s\n  report  %s\n  bundle  %s\n", d.Record, d.Report, d.Bundle)
	fmt.Fprintf(w, "  check the record anywhere: narwhal gate verify %s\n", d.Record)
}
