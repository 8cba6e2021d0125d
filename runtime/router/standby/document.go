package standby

import (
	"bytes"
	"encoding/json"
)

// Name and version of the handoff document.
const (
	Schema  = "narwhal.handoff"
	Version = 1

	// MaxDocument bounds a handoff, in bytes: 4,000 engines, each with a lifecycle record.
	MaxDocument = 4 << 20
)

// Document is what one router of a fleet hands to the next. Members stand in the
// contract's order. Lists and maps are never null: use NewDocument.
type Document struct {
	Schema  string  `json:"schema"`
	Version int     `json:"schema_version"`
	At      float64 `json:"at"` // wall, Unix seconds
	Run     string  `json:"run"`
	Model   string  `json:"model"`
	Epoch   int64   `json:"epoch"`  // of the lease; 0 without one
	Holder  string  `json:"holder"` // of the lease; "" without one
	// Engines are ids, sorted, each once.
	Engines []string `json:"engines"`
	// Roles has one entry for each engine: prefill or decode.
	Roles   map[string]string `json:"roles"`
	Ejected []string          `json:"ejected"`
	// Sources are the engines under suspicion, each with the producers whose handoffs it
	// failed on; "" = no producer is known.
	Sources   map[string][]string `json:"inference_sources"`
	Counters  Counters            `json:"counters"`
	Reasons   Reasons             `json:"outcome_reasons"`
	Lifecycle Lifecycle           `json:"lifecycle"`
	Risk      *Risk               `json:"demand_risk"` // null = none
}

// Counters are totals since the fleet's first router, in requests.
type Counters struct {
	Offered   int64 `json:"offered"`
	Unsized   int64 `json:"unsized_offered"`
	Served    int64 `json:"served"`
	SLOMet    int64 `json:"slo_met"`
	Expired   int64 `json:"expired"`
	Invalid   int64 `json:"invalid_requests"`
	Failed    int64 `json:"failed"`
	Refused   int64 `json:"refused"`
	Rejected  int64 `json:"rejected"`
	Cancelled int64 `json:"cancelled"`
	Unserved  int64 `json:"unserved"`
}

// Reasons are the counters of four outcomes by reason. They may sum to less than the
// counter; the rest has no known reason.
type Reasons struct {
	Failed   map[string]int64 `json:"failed"`
	Rejected map[string]int64 `json:"rejected"`
	Expired  map[string]int64 `json:"expired"`
	Refused  map[string]int64 `json:"refused"`
}

// Lifecycle is what operators ordered and how far it came.
type Lifecycle struct {
	Wave    string   `json:"wave_id"` // "" = no wave
	Records []Record `json:"records"`
	// Events are objects with the members event, action and at, and others by action.
	Events []json.RawMessage `json:"events"`
	// Policy is individual or whole_wave.
	Policy string `json:"engine_restart_policy"`
	// Starts are wall times in Unix seconds.
	Starts map[string]float64 `json:"process_starts"`
}

// Record is one engine that is held out of placement. Times are wall, Unix seconds.
type Record struct {
	IID       string   `json:"iid"`
	State     string   `json:"state"`
	Requested float64  `json:"requested_at"`
	Deadline  *float64 `json:"deadline_at"`
	Restart   bool     `json:"restart_required"`
	Wave      string   `json:"wave_id"`
	OldStart  *float64 `json:"old_process_start"`
	NewStart  *float64 `json:"new_process_start"`
	Error     string   `json:"error"`
	Checks    []string `json:"checks"`
}

// Risk is evidence that demand endangers the limits.
type Risk struct {
	Kind   string           `json:"kind"`
	Age    float64          `json:"age_s"` // seconds since the newest event
	Events map[string]int64 `json:"events"`
}

// NewDocument is a document without engines, with no member null.
func NewDocument() Document {
	return Document{Schema: Schema, Version: Version, Engines: []string{}, Roles: map[string]string{}, Ejected: []string{}, Sources: map[string][]string{},
		Reasons:   Reasons{map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}},
		Lifecycle: Lifecycle{Records: []Record{}, Events: []json.RawMessage{}, Policy: "individual", Starts: map[string]float64{}}}
}

// Encode validates d and writes it as one line.
func (d Document) Encode() ([]byte, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // an event must not grow when it is passed on
	if err := enc.Encode(d); err != nil {
		return nil, malformed("cannot be written: %v", err)
	}
	if b.Len() > MaxDocument {
		return nil, malformed("more than %d bytes", MaxDocument)
	}
	return b.Bytes(), nil
}
