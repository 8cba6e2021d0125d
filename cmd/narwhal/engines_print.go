package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

// orderResult is the data of what changes engines: how its targets stand now.
type orderResult struct {
	Order   string        `json:"order"`
	Router  string        `json:"router"`
	All     bool          `json:"all"`
	Ready   bool          `json:"ready_to_stop"`
	Restart bool          `json:"restart_required"`
	Serving bool          `json:"router_ready"`
	Stored  *bool         `json:"stored"` // the router's state file has the order; null = not told
	Wave    waveLine      `json:"wave"`
	Engines []orderedLine `json:"engines"`
}

// orderedLine is an engine that an order was for. Times are unix seconds, null where not known.
type orderedLine struct {
	IID      string             `json:"iid"`
	State    string             `json:"state"`
	Draining bool               `json:"draining"`
	Accepts  bool               `json:"accepts_new"`
	Ready    bool               `json:"ready_to_stop"`
	Restart  bool               `json:"restart_required"`
	InFlight lifecycle.Resident `json:"in_flight"`
	Deadline *float64           `json:"deadline_at"`
	Old      *float64           `json:"old_process_start"`
	New      *float64           `json:"new_process_start"`
	Checks   []string           `json:"checks"`
	Error    string             `json:"error"`
	Ejected  string             `json:"ejected_as,omitempty"` // cause of an ejection that stands
}

func orderOf(verb, url string, t lifecycle.Target, d lifecycle.Document) orderResult {
	o := orderResult{Order: verb, Router: url, All: t.All, Ready: t.Ready(d), Restart: t.Restart(d), Serving: d.Router.Ready, Stored: d.Stored, Wave: waveLine(d.Wave), Engines: []orderedLine{}}
	for _, id := range d.IDs() {
		if e := d.Engines[id]; t.All || id == t.IID {
			o.Engines = append(o.Engines, orderedLine{id, e.State, e.Draining, e.Accepts, e.Ready, e.Restart, e.Resident, e.Deadline, e.Old, e.New, e.Checks, e.Error, e.Cause})
		}
	}
	return o
}

func (o orderResult) print(w io.Writer) {
	for _, e := range o.Engines {
		parts := []string{orDash(e.State)}
		if e.Ejected != "" && !e.Draining {
			parts = []string{"out, ejected: " + cell(e.Ejected)}
		}
		switch {
		case e.Ready:
			parts = append(parts, "may be stopped")
		case e.Draining:
			parts = append(parts, fmt.Sprintf("in flight: %d prefill, %d decode", e.InFlight.Prefill, e.InFlight.Decode))
		}
		if e.Draining && e.Restart {
			parts = append(parts, "returns as another process only")
		}
		if e.Error != "" {
			parts = append(parts, cell(e.Error))
		}
		fmt.Fprintf(w, "%s  %s\n", cell(e.IID), strings.Join(parts, "; "))
	}
	if !o.Serving && !o.Wave.Active && slices.ContainsFunc(o.Engines, func(e orderedLine) bool { return e.Draining }) {
		fmt.Fprintln(w, "the router serves no request now: no pair of engines is left; narwhal engines list shows what is out, narwhal engines release ends this order")
	}
	if o.Stored != nil && !*o.Stored {
		fmt.Fprintln(w, "the router's state file does not have this order: a router that is started anew would not know of it; its log says why")
	}
	if o.All && o.Wave.Active {
		fmt.Fprintf(w, "the whole fleet is held; may be stopped: %s\n", yes(o.Ready))
	}
}
