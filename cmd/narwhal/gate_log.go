package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func gateLogVerb(a *app) *cobra.Command {
	var f gateFlags
	var gate, host string
	var follow bool
	c := &cobra.Command{
		Use: "log", Short: "Prints the record as readable lines", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := a.readRun(cmd, f)
			if err != nil {
				return err
			}
			if err := v.known(gate, host); err != nil {
				return err
			}
			wanted := func(ev record.Event) bool {
				return (gate == "" || strings.EqualFold(ev.Gate, gate)) && (host == "" || ev.Host == host)
			}
			if follow {
				return a.follow(cmd, v.snap, wanted)
			}
			events := []record.Event{}
			for _, ev := range v.snap.Events {
				if wanted(ev) {
					events = append(events, ev)
				}
			}
			a.result = &result{data: map[string]any{"run": v.snap.State.Run, "events": events}, text: func(w io.Writer) {
				for _, ev := range events {
					fmt.Fprintln(w, eventLine(ev))
				}
			}}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&gate, "gate", "", "this gate alone")
	c.Flags().StringVar(&host, "host", "", "this host alone")
	c.Flags().BoolVar(&follow, "follow", false, "go on with new lines until interrupted; with --format json one event a line")
	return c
}

// known refuses a gate that there is not, and a host that neither the fleet nor the record names.
func (v readOnly) known(gate, host string) error {
	var letters []string
	for _, g := range pipeline() {
		letters = append(letters, g.Info().Letter)
	}
	if gate != "" && !slices.Contains(letters, strings.ToUpper(gate)) {
		return problem.New(problem.Invalid, "unknown_gate", fmt.Sprintf("no gate %q", gate), "gates are "+strings.Join(letters, ", "))
	}
	hosts := map[string]bool{}
	for id := range v.fleet.Deploy.Hosts {
		hosts[id] = true
	}
	for _, ev := range v.snap.Events {
		if ev.Host != "" {
			hosts[clean(ev.Host)] = true
		}
	}
	if host != "" && !hosts[host] {
		return problem.New(problem.Invalid, "unknown_host", fmt.Sprintf("no host %q in the fleet or its record", host),
			"hosts are "+strings.Join(slices.Sorted(maps.Keys(hosts)), ", "))
	}
	return nil
}

// followEvery is how often a record is looked at again.
const followEvery = 250 * time.Millisecond

// follow prints events as they come. A record that breaks ends it.
func (a *app) follow(cmd *cobra.Command, snap *record.Snapshot, wanted func(record.Event) bool) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	a.result = &result{raw: []byte{}}
	for seen := int64(0); ; {
		for _, ev := range snap.Events {
			if ev.Seq <= seen {
				continue
			}
			seen = ev.Seq
			if !wanted(ev) {
				continue
			}
			line := eventLine(ev)
			if a.format == "json" {
				b, err := json.Marshal(ev)
				if err != nil {
					return err
				}
				line = string(b)
			}
			if _, a.lost = fmt.Fprintln(a.out, line); a.lost != nil {
				return nil // the exit code says why
			}
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
		next, err := record.Read(snap.Dir)
		if errors.Is(err, record.ErrNoRecord) {
			return nil
		} else if err != nil {
			return recordProblem(err)
		}
		snap = next
	}
}

// eventLine is an event for a person.
func eventLine(ev record.Event) string {
	var b map[string]any
	_ = json.Unmarshal(ev.Body, &b)
	var what []string
	for _, k := range []string{"key", "summary", "state", "status", "error", "because", "signal", "to", "how", "text", "digest"} {
		if s, ok := b[k].(string); ok && s != "" {
			if k == "digest" {
				s = fmt.Sprintf("%.12s", s)
			}
			what = append(what, s)
		}
	}
	where := ev.Step
	if where == "" {
		where = ev.Gate
	}
	if ev.Host != "" {
		where += " @" + ev.Host
	}
	return fmt.Sprintf("%5d %s %-17s %-28s %s", ev.Seq, ev.Time.Local().Format("15:04:05.000"), ev.Kind, where, strings.Join(what, " | "))
}
