package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

type rollbackData struct {
	Run string `json:"run"`
	gates.RollbackResult
	Plan []gates.UndoStep `json:"plan"`
	// Unowned are processes for which it is refused.
	Unowned []gates.Unowned `json:"unowned,omitempty"`
	Dry     bool            `json:"dry_run"`
}

func gateRollbackVerb(a *app) *cobra.Command {
	var f gateFlags
	var dry bool
	c := &cobra.Command{
		Use: "rollback --to GATE", Short: "Returns the fleet to the recorded state after a gate", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := a.progress(true)
			defer progress.Close()
			s, err := a.openSession(cmd.Context(), f.fleet, f.run, false, progress)
			if err != nil {
				return err
			}
			defer s.Close()
			p, err := s.runner.PlanRollback(cmd.Context(), strings.ToUpper(f.to))
			if err != nil {
				return err
			}
			d := rollbackData{Run: s.run, Plan: p.Steps, Dry: dry, RollbackResult: gates.RollbackResult{To: p.To, Rerun: p.Rerun, Stopped: []string{}, Restored: []string{}, Residue: []string{}, Findings: []record.Finding{}}, Unowned: p.Unowned}
			if d.Plan == nil {
				d.Plan = []gates.UndoStep{}
			}
			if dry {
				a.result = &result{data: d, text: d.print}
				return nil
			}
			if err := a.approveRollback(cmd.Context(), f.yes, d); err != nil {
				return err
			}
			s.runner.Approve = func(gates.Info, gates.Plan) error { return nil }
			d.RollbackResult, err = s.runner.Rollback(cmd.Context(), p)
			a.result = &result{data: d, text: d.print, status: problem.Success}
			if err == nil {
				a.result.problems = d.problems()
			}
			if len(a.result.problems) > 0 {
				a.result.status = problem.Residue
			}
			return err
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.to, "to", "", "gate whose state to return to")
	c.Flags().BoolVar(&f.yes, "yes", false, "approve what the plan shows")
	c.Flags().BoolVar(&dry, "dry-run", false, "show the plan and stop")
	_ = c.MarkFlagRequired("to")
	return c
}

// problems are what it left other than the record says.
func (d rollbackData) problems() (out []*problem.Problem) {
	for _, r := range d.Residue {
		out = append(out, problem.New(problem.Residue, "residue", r, "look at that host, then run the same rollback again"))
	}
	for _, f := range d.Findings {
		if f.Note {
			continue
		}
		p := problem.New(problem.Residue, f.Code, f.Message, f.Hint)
		p.Host, p.Engine, p.Evidence, p.Want, p.Got = f.Host, f.Engine, f.Evidence, f.Want, f.Got
		out = append(out, p)
	}
	return out
}

func (a *app) approveRollback(ctx context.Context, yes bool, d rollbackData) error {
	if yes {
		return nil
	}
	return a.askToGoOn(ctx, d.print, "a rollback changes hosts", "the rollback", "look at it with --dry-run, then give --yes")
}

func (d rollbackData) print(w io.Writer) {
	for _, u := range d.Unowned {
		fmt.Fprintf(w, "refused for %s on %s: %s\n", oneLine(u.Name), u.Host, oneLine(u.Why))
	}
	if len(d.Stopped)+len(d.Restored)+len(d.Residue)+len(d.Findings) == 0 {
		fmt.Fprintf(w, "to gate %s, newest first:\n", d.To)
		for _, s := range d.Plan {
			fmt.Fprintf(w, "  %-30s on %s, within %s\n", s.Title, s.Host, s.Limit)
		}
	} else {
		fmt.Fprintf(w, "back at gate %s\n  stopped:  %s\n", d.To, list(d.Stopped))
		fmt.Fprintf(w, "  restored: %s\n", list(d.Restored))
	}
	fmt.Fprintf(w, "  must run again: %s\n", list(d.Rerun))
	for _, r := range d.Residue {
		fmt.Fprintf(w, "  left behind: %s\n", r)
	}
	for _, f := range d.Findings {
		fmt.Fprintf(w, "  %s: %s\n", f.Code, oneLine(f.Message))
	}
}

func list(items []string) string {
	if len(items) == 0 {
		return "nothing"
	}
	return strings.Join(items, ", ")
}
