package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// blocked is the state of an engine whose identity or validation failed.
const blocked = "blocked"

// Document is narwhal.lifecycle version 1, as far as it is used.
type Document struct {
	Policy  string             `json:"engine_restart_policy"`
	Starts  map[string]float64 `json:"process_starts"` // unix seconds
	Router  Router             `json:"router"`
	Wave    Wave               `json:"wave"`
	Engines map[string]Engine  `json:"engines"`
	Error   string             `json:"error"`
	// Stored says whether the router's state file has the order that this answers; nil where it is not told.
	Stored *bool `json:"-"`
}

// Router says what the router may do.
type Router struct {
	Controls bool `json:"controls_fleet"`
	Ready    bool `json:"ready"`
}

// Wave is a hold of the whole fleet.
type Wave struct {
	ID     string `json:"id"`
	Active bool   `json:"active"`
	Ready  bool   `json:"ready_to_stop"`
}

// Resident counts the requests of an engine on each side.
type Resident struct {
	Prefill int `json:"prefill"`
	Decode  int `json:"decode"`
}

// Engine is the lifecycle of one engine. Times are unix seconds, nil where not known.
type Engine struct {
	State    string   `json:"state"`
	Draining bool     `json:"draining"`
	Accepts  bool     `json:"accepts_new"`
	Ready    bool     `json:"ready_to_stop"`
	Resident Resident `json:"resident"`
	Deadline *float64 `json:"deadline_at"`
	Restart  bool     `json:"restart_required"`
	Wave     string   `json:"wave_id"`
	Old      *float64 `json:"old_process_start"`
	New      *float64 `json:"new_process_start"`
	Checks   []string `json:"checks"`
	Error    string   `json:"error"`
	Cause    string   `json:"ejected_as"` // of an ejection that stands, "" where it is not told
}

// tried reports whether a return after a drain has failed, so that the engine holds nothing.
func (e Engine) tried() bool {
	return e.Draining && e.State == blocked && e.Old != nil && e.Resident == (Resident{})
}

// IDs are the engines of a document, sorted.
func (d Document) IDs() []string { return slices.Sorted(maps.Keys(d.Engines)) }

func parseDocument(b []byte) (Document, error) {
	var in struct {
		Schema  string `json:"schema"`
		Version int    `json:"schema_version"`
		Document
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return Document{}, &Strange{"the answer is no lifecycle document: " + short(err.Error())}
	}
	if err := isDocument("narwhal.lifecycle", in.Schema, in.Version); err != nil {
		return Document{}, err
	}
	return in.bounded(), nil
}

// isDocument refuses another document than the wanted one in version 1.
func isDocument(want, schema string, version int) error {
	switch {
	case schema != want:
		return &Strange{fmt.Sprintf("the answer is no %s document", want)}
	case version != 1:
		return &Strange{fmt.Sprintf("the answer is %s version %d; version 1 is understood", want, version)}
	}
	return nil
}

// bounded cuts the texts that are repeated to people.
func (d Document) bounded() Document {
	for id, e := range d.Engines {
		e.State, e.Error, e.Cause = short(e.State), short(e.Error), short(e.Cause)
		e.Ready = e.Ready || e.tried()
		if e.Checks == nil {
			e.Checks = []string{}
		}
		d.Engines[id] = e
	}
	return d
}
