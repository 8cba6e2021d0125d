package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

type planData struct {
	Run    string     `json:"run"`
	Digest string     `json:"plan_digest"`
	Gates  []planGate `json:"gates"`
}

type planGate struct {
	Gate    string            `json:"gate"`
	Title   string            `json:"title"`
	State   string            `json:"state"`
	Steps   []gates.Step      `json:"steps"`
	Reuses  []record.Key      `json:"reuses"`
	Because map[string]string `json:"because"`
}

func gatePlanVerb(a *app) *cobra.Command {
	var f gateFlags
	c := &cobra.Command{
		Use: "plan [GATE]", Short: "Shows what would run, and changes nothing", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(args)
			if err != nil {
				return err
			}
			s, err := a.openSession(cmd.Context(), f.fleet, f.run, false, gates.Quiet{})
			if err != nil {
				return err
			}
			defer s.Close()
			forecast, err := s.runner.Forecast(cmd.Context(), o)
			if err != nil {
				return err
			}
			d := planData{Run: s.run, Digest: forecast.Digest, Gates: []planGate{}}
			for _, g := range forecast.Gates {
				d.Gates = append(d.Gates, planOf(g))
			}
			a.result = &result{data: d, text: d.print}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.to, "to", "", "last gate to plan")
	c.Flags().StringVar(&f.only, "only", "", "plan this gate alone")
	c.Flags().StringArrayVar(&f.again, "again", nil, "repeat this gate although it holds")
	return c
}

func planOf(g gates.GateForecast) planGate {
	p := planGate{Gate: g.Info.Letter, Title: g.Info.Title, State: g.State, Steps: g.Plan.Steps, Reuses: g.Reuses, Because: map[string]string{}}
	if p.State == "" {
		p.State = record.GatePending
	}
	if p.Steps == nil {
		p.Steps = []gates.Step{}
	}
	if p.Reuses == nil {
		p.Reuses = []record.Key{}
	}
	for k, why := range g.Needs {
		p.Because[string(k)] = why
	}
	return p
}

func (d planData) print(w io.Writer) {
	fmt.Fprintf(w, "run %s, plan %.16s\n", d.Run, d.Digest)
	for _, g := range d.Gates {
		fmt.Fprintf(w, "gate %s %s: %d steps, reuses %d pieces of evidence\n", g.Gate, g.Title, len(g.Steps), len(g.Reuses))
		var whys []string
		for _, why := range g.Because {
			if !slices.Contains(whys, why) {
				whys = append(whys, why)
			}
		}
		slices.Sort(whys)
		if len(whys) > 0 {
			fmt.Fprintf(w, "  because: %s\n", strings.Join(whys, "; "))
		}
		for _, s := range g.Steps {
			host := s.Host
			if host == "" {
				host = "here"
			}
			fmt.Fprintf(w, "  %-28s %-10s %-8s within %-8s %s\n", s.ID, host, s.Effect, s.Limit, action(s))
			if s.Undo != nil {
				fmt.Fprintf(w, "  %28s undo: %s\n", "", s.Undo.Title)
			}
		}
	}
}

// action is what a step does, in one line.
func action(s gates.Step) string {
	switch {
	case s.Argv != nil:
		return remote.Quote(s.Argv...)
	case s.Script != "":
		return fmt.Sprintf("shell script of %d lines (--format json shows it)", strings.Count(s.Script, "\n"))
	case s.File != nil:
		return fmt.Sprintf("put %s sha256 %.12s %d bytes", s.File.Path, s.File.SHA256, s.File.Bytes)
	case s.Fetch != "":
		return "read " + s.Fetch
	case s.Local != nil:
		return "here: " + s.Local.Op
	}
	return ""
}
