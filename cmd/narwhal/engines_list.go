package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

func enginesListVerb(a *app) *cobra.Command {
	var f engineFlags
	c := &cobra.Command{
		Use: "list", Short: "Shows the engines: roles, requests in flight, and what keeps them out", Args: cobra.NoArgs,
		Long: "Shows the engines of a router, with their roles, the requests that they have in flight on either side, and what keeps\n" +
			"them out. PROCESS SINCE is the start of the process that the router knows, by which it tells generations apart; an\n" +
			"ejected engine has none, since the process that answers there may be another one.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.reach(cmd, a, false)
			if err != nil {
				return err
			}
			defer r.Close()
			s, err := r.State(cmd.Context())
			if err != nil {
				return r.unanswered(cmd.Context(), "list the engines", err)
			}
			l := listOf(r.url, s)
			a.result = &result{data: l, text: l.print}
			return nil
		},
	}
	f.router(c)
	return c
}

// engineList is the data of engines list.
type engineList struct {
	Router  listRouter   `json:"router"`
	Policy  string       `json:"engine_restart_policy"`
	Wave    waveLine     `json:"wave"`
	Engines []engineLine `json:"engines"`
}

type listRouter struct {
	URL      string `json:"url"`
	Controls bool   `json:"controls_fleet"`
	Ready    bool   `json:"ready"`
	Epoch    int64  `json:"epoch"`
	Holder   string `json:"holder"`
}

type waveLine struct {
	ID     string `json:"id"`
	Active bool   `json:"active"`
	Ready  bool   `json:"ready_to_stop"`
}

// engineLine is an engine of the list. Times are unix seconds, null where not known.
type engineLine struct {
	IID       string             `json:"iid"`
	Role      string             `json:"role"`
	Pinned    bool               `json:"pinned"`
	Live      bool               `json:"live"`
	Ejected   bool               `json:"ejected"`
	Accepts   bool               `json:"accepts_new"`
	State     string             `json:"state"`
	Reason    string             `json:"reason"`
	Start     *float64           `json:"process_start"`
	InFlight  lifecycle.Resident `json:"in_flight"`
	Draining  bool               `json:"draining"`
	Held      []string           `json:"held"`
	Ready     bool               `json:"ready_to_stop"`
	Restart   bool               `json:"restart_required"`
	Deadline  *float64           `json:"deadline_at"`
	ErrorText string             `json:"error"`
}

func listOf(url string, s lifecycle.State) engineList {
	l := engineList{Router: listRouter{url, s.Router.Controls, s.Router.Ready, s.Epoch, s.Holder}, Policy: s.Policy, Wave: waveLine(s.Wave), Engines: []engineLine{}}
	for _, e := range s.List {
		l.Engines = append(l.Engines, engineLine{e.IID, e.Role, e.Pinned, e.Live, e.Ejected, e.Accepts, e.State, e.Reason, e.Start, e.Resident, e.Draining, e.Held, e.Ready, e.Restart, e.Deadline, e.Error})
	}
	return l
}

func (l engineList) print(w io.Writer) {
	var rows strings.Builder
	t := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ENGINE\tROLE\tSTATE\tPREFILL\tDECODE\tMAY STOP\tPROCESS SINCE\tREASON")
	for _, e := range l.Engines {
		role := orDash(e.Role)
		if e.Pinned {
			role += ", pinned"
		}
		since := moment(e.Start)
		if e.Ejected {
			since = moment(nil)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", cell(e.IID), role, e.shown(), e.InFlight.Prefill, e.InFlight.Decode, yes(e.Ready), since, orDash(e.Reason))
	}
	_ = t.Flush()
	for line := range strings.Lines(rows.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	if l.Wave.Active {
		fmt.Fprintf(w, "the whole fleet is held; may be stopped: %s\n", yes(!slices.ContainsFunc(l.Engines, func(e engineLine) bool { return !e.Ready })))
	}
	if !l.Router.Controls {
		fmt.Fprintln(w, "this router does not control the fleet")
	}
}

// shown is the engine's lifecycle, and for an active one whether it serves.
func (e engineLine) shown() string {
	if e.State == "active" && !e.Live {
		return "out"
	}
	return orDash(e.State)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return cell(s)
}

// cell keeps a foreign text within one cell of a table.
func cell(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' || r == '\v' || r == '\f' {
			return ' '
		}
		return r
	}, s)
	const most = 160
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return string(shown([]byte(s)))
}

// moment prints unix seconds; what no clock says is a dash.
func moment(at *float64) string {
	if at == nil || *at <= 0 || *at > 1e11 {
		return "-"
	}
	return time.Unix(int64(*at), 0).UTC().Format(time.RFC3339)
}
