package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

type rollbackData struct {
	Run string `json:"run"`
	gates.RollbackResult
	Plan []gates.UndoStep `json:"plan"`
	Dry  bool             `json:"dry_run"`
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
			d := rollbackData{Run: s.run, Plan: p.Steps, Dry: dry, RollbackResult: gates.RollbackResult{To: p.To, Rerun: p.Rerun, Stopped: []string{}, Restored: []string{}, Residue: []string{}}}
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
			if len(d.Residue) > 0 && err == nil {
				a.result.status = problem.Residue
				for _, r := range d.Residue {
					a.result.problems = append(a.result.problems, problem.New(problem.Residue, "residue", r, "look at that host, then run the same rollback again"))
				}
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

func (a *app) approveRollback(ctx context.Context, yes bool, d rollbackData) error {
	if yes {
		return nil
	}
	if !isTerminal(a.in) {
		return problem.New(problem.Refused, "approval_missing", "a rollback changes hosts and nobody approved it", "look at it with --dry-run, then give --yes")
	}
	d.print(a.err)
	fmt.Fprint(a.err, "Go on? [y/N] ")
	ok, err := a.askYes(ctx)
	if err != nil {
		return err
	}
	if !ok {
		return problem.New(problem.Refused, "approval_missing", "the rollback was not approved", "")
	}
	return nil
}

func (d rollbackData) print(w io.Writer) {
	if len(d.Stopped)+len(d.Restored)+len(d.Residue) == 0 {
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
}

func list(items []string) string {
	if len(items) == 0 {
		return "nothing"
	}
	return strings.Join(items, ", ")
}
