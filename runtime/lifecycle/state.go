package lifecycle

import (
	"encoding/json"
	"slices"
	"strings"
)

// State is what narwhal.state version 1 says of a fleet's engines.
type State struct {
	Document
	Epoch  int64
	Holder string
	List   []Listed // by id
}

// Listed is one engine with its role and what keeps it from new requests.
type Listed struct {
	IID    string
	Role   string // "" where no pool has it
	Pinned bool
	Live   bool // it is neither ejected, draining nor held
	// Ejected: the router took it out by itself. Its process may be another one than that of Start.
	Ejected bool
	Reason  string
	Start   *float64 // of its process, unix seconds; nil = not known
	Held    []string // kinds of its holds by the router itself
	Engine
}

// stateDoc is the part of the document that is read.
type stateDoc struct {
	Schema  string `json:"schema"`
	Version int    `json:"schema_version"`
	HA      struct {
		Epoch  int64  `json:"epoch"`
		Holder string `json:"holder"`
	} `json:"ha"`
	Lifecycle Document            `json:"lifecycle"`
	Pools     map[string][]string `json:"pools"`
	Pinned    []string            `json:"pinned"`
	Ejected   []string            `json:"ejected"`
	Probation []string            `json:"probation"`
	Breaker   struct {
		Ejections []struct {
			IID   string `json:"iid"`
			Cause string `json:"cause"`
		} `json:"ejections"`
	} `json:"breaker"`
	Holds map[string][]struct {
		IID string `json:"iid"`
	} `json:"holds"`
}

func parseState(b []byte) (State, error) {
	var d stateDoc
	if err := json.Unmarshal(b, &d); err != nil {
		return State{}, &Strange{"the answer is no state document: " + short(err.Error())}
	}
	if err := isDocument("narwhal.state", d.Schema, d.Version); err != nil {
		return State{}, err
	}
	s := State{Document: d.Lifecycle.bounded(), Epoch: d.HA.Epoch, Holder: short(d.HA.Holder)}
	for _, id := range s.IDs() {
		s.List = append(s.List, d.listed(id, s.Engines[id]))
	}
	return s, nil
}

func (d *stateDoc) listed(id string, e Engine) Listed {
	l := Listed{IID: id, Pinned: slices.Contains(d.Pinned, id), Engine: e, Held: []string{}}
	for role, ids := range d.Pools {
		if slices.Contains(ids, id) {
			l.Role = short(role)
		}
	}
	if at, ok := d.Lifecycle.Starts[id]; ok {
		l.Start = &at
	}
	for kind, list := range d.Holds {
		for _, h := range list {
			if h.IID == id {
				l.Held = append(l.Held, short(kind))
			}
		}
	}
	slices.Sort(l.Held)
	l.Ejected = slices.Contains(d.Ejected, id)
	l.Live = !l.Ejected && !e.Draining && len(l.Held) == 0
	l.Reason = d.reason(l)
	return l
}

// reason words why an engine gets nothing new, or what is to be known of it.
func (d *stateDoc) reason(l Listed) string {
	var parts []string
	if l.Ejected {
		causes := []string{l.Cause}
		if l.Cause == "" { // a router that tells counts alone: of every cause, and not which was the last
			causes = nil
			for _, e := range d.Breaker.Ejections {
				if e.IID == l.IID && !slices.Contains(causes, e.Cause) {
					causes = append(causes, e.Cause)
				}
			}
		}
		parts = append(parts, strings.TrimSuffix("ejected: "+strings.Join(causes, " or "), ": "))
	}
	if l.Draining {
		parts = append(parts, "taken out by an order")
	}
	if len(l.Held) > 0 {
		parts = append(parts, "held after failures: "+strings.Join(l.Held, ", "))
	}
	if slices.Contains(d.Probation, l.IID) {
		parts = append(parts, "on probation")
	}
	if d.Lifecycle.Wave.Active {
		parts = append(parts, "the whole fleet is held")
	}
	if l.Error != "" {
		parts = append(parts, l.Error)
	}
	return short(strings.Join(parts, "; "))
}
