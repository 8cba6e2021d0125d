// Package journal writes and reads a router's journal: JSON lines, one meta line first,
// then one row for every request that was offered and one for every event.
//
// It promises that writing never waits for a disk on the request path: a full queue
// drops the row, counts it, and says so in the journal itself; only who asks for a lossless
// journal waits, and no longer than its context. A file that cannot be written costs rows
// only once the queue is full: the writer tries again, and a line is whole or not there.
// Files end by size or age and are read back in order. Reading tolerates a torn last line
// and unknown members. It refuses rows of another schema version, and a second writer of
// one journal.
//
// Times are seconds on the router's clock unless named otherwise; at_unix is wall time.
package journal

import (
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Schema and Version name the journal's rows.
const (
	Schema  = "narwhal.journal"
	Version = 1
)

// Terminals of a request.
const (
	Completed = "completed"
	Failed    = "failed"
	Refused   = "refused"
	Rejected  = "rejected"
	Expired   = "expired"
	Invalid   = "invalid"
	Cancelled = "cancelled"
)

// Token accountings.
const (
	AccountTokenIDs    = "token_ids"
	AccountUsage       = "usage" // the engine's own count at the end of the stream
	AccountUnavailable = "unavailable"
)

// Meta describes the process that wrote the rows below it.
type Meta struct {
	Schema          string    `json:"schema"`
	Version         int       `json:"schema_version"`
	Package         string    `json:"package"`
	Release         string    `json:"version"`
	Git             *string   `json:"git"`
	Source          string    `json:"source"`
	TokenAccounting string    `json:"token_accounting"`
	Admission       Admission `json:"admission"`
	// Params are what decisions were judged by, so that rows replay.
	Params model.Params `json:"params"`
	// Curves are the measured curves by engine.
	Curves map[string]profile.Curve `json:"curves,omitempty"`
	// AtUnix is the wall time of this line.
	AtUnix float64 `json:"at_unix,omitempty"`
	// Part counts the files of one process from 2; absent in the first.
	Part int `json:"part,omitempty"`
}

// Admission is the mode and margin of the run.
type Admission struct {
	Mode   string  `json:"mode"`
	Margin float64 `json:"margin"`
}

// Head starts every line but the meta line.
type Head struct {
	Schema  string `json:"schema"`
	Version int    `json:"schema_version"`
	Run     string `json:"run"`
}

// Waits are seconds queued; null for a stage that was not reached.
type Waits struct {
	Admission *float64 `json:"admission"`
	Prefill   *float64 `json:"prefill"`
	Decode    *float64 `json:"decode"`
}

// Price is what admission compared with the budget.
type Price struct {
	Attempt int     `json:"attempt"`
	Backlog float64 `json:"backlog_s"`
	Own     float64 `json:"own_prefill_s"`
	Elapsed float64 `json:"elapsed_s"`
	Handoff float64 `json:"handoff_s"`
	Price   float64 `json:"price_s"`
}

// Attempt describes one failed attempt.
type Attempt struct {
	At          float64      `json:"at"`
	Attempt     int          `json:"attempt"`
	Phase       string       `json:"phase"`
	Reason      model.Reason `json:"reason"`
	Prefill     *string      `json:"prefill_iid"`
	Decode      *string      `json:"decode_iid"`
	Type        string       `json:"error_type"`
	Message     string       `json:"error_message"`
	Status      *int         `json:"status"`
	Transient   bool         `json:"transient"`
	Output      bool         `json:"output_started"`
	Retry       bool         `json:"retry_scheduled"`
	Backoff     *float64     `json:"backoff_s"`
	RetryReason string       `json:"retry_reason"`
}

// Leg seconds.
type Legs struct {
	Prefill float64 `json:"prefill"`
	Decode  float64 `json:"decode"`
}

// CachePlacement is a placement that rested on tokens that an engine holds in its cache.
type CachePlacement struct {
	Placed     string  `json:"placed_iid"`
	Cached     int     `json:"placed_cached_tokens"`
	Sequence   *int    `json:"evidence_sequence"` // of a cache's own account; null = an estimate
	Predicted  float64 `json:"predicted_prefill_s"`
	Cold       float64 `json:"cold_prefill_s"`  // without the cached tokens
	ColdChoice *string `json:"cold_choice_iid"` // without those of any engine; null = refused
}

// Row is the terminal row of one request. Pointers are null where nothing was measured.
type Row struct {
	Head
	RID       string  `json:"rid"`
	ClientRID *string `json:"client_rid"`
	Arrived   float64 `json:"arrived"`
	AtUnix    float64 `json:"at_unix"` // wall time of the arrival

	InputLen   int  `json:"input_len"`
	InputSized bool `json:"input_sized"`
	WantedLen  int  `json:"wanted_len"`
	OutputLen  *int `json:"output_len"`

	TTFT       *float64 `json:"ttft_s"` // arrival to the end of the prefill leg
	TPOT       *float64 `json:"tpot_s"`
	FirstByte  *float64 `json:"first_byte_s"`
	DecodeTPOT *float64 `json:"decode_tpot_s"`
	QueueWait  float64  `json:"queue_wait_s"`
	QueueWaits Waits    `json:"queue_waits"`
	Price      *Price   `json:"admission_price"`
	Duration   float64  `json:"duration_s"`

	Attempts       int       `json:"attempts"`
	DecodeAttempts int       `json:"decode_attempts"`
	Failures       []Attempt `json:"attempt_failures"`
	Observed       *int      `json:"decode_tokens_observed"`
	Upstream       Legs      `json:"upstream_seconds"`
	Prefill        *string   `json:"prefill_iid"`
	Decode         *string   `json:"decode_iid"`
	Crossed        bool      `json:"crossed"`

	CachedTokens map[string]int `json:"cached_tokens"`
	// CachePlacement is of the last placement; null unless it rested on cached tokens.
	CachePlacement  *CachePlacement `json:"cache_placement"`
	TokenAccounting string          `json:"token_accounting"`

	Error     *string       `json:"error"`
	Status    *int          `json:"status"`
	ErrorType *string       `json:"error_type"`
	ErrorCode *string       `json:"error_code"`
	Reason    *model.Reason `json:"reason"`
	Terminal  string        `json:"terminal"`

	// Flags of the terminal; present only where they hold.
	Refused         bool   `json:"refused,omitempty"`
	RefusedCause    string `json:"refused_cause,omitempty"`
	Rejected        bool   `json:"rejected,omitempty"`
	ReadinessReason string `json:"readiness_reason,omitempty"`
	Expired         bool   `json:"expired,omitempty"`
	Cancelled       bool   `json:"cancelled,omitempty"`
	CancelledPhase  string `json:"cancelled_phase,omitempty"`

	// FinishReason is the engine's word; null when it said none.
	FinishReason *string `json:"finish_reason"`
	// SLOMet is the router's own judgement: completed within both targets.
	SLOMet bool `json:"slo_met"`
	// TraceID names the request's trace; absent without one.
	TraceID string `json:"trace_id,omitempty"`
	// Decision is the last placement with all its candidates and what it was made from.
	Decision json.RawMessage `json:"decision,omitempty"`
	// Earlier are the placements of attempts before.
	Earlier []json.RawMessage `json:"earlier_decisions,omitempty"`
}

// Event is a line about the fleet. Fields are flattened beside event and at. At and AtUnix
// are left out when they are not a number.
type Event struct {
	Name   string
	At     float64
	AtUnix float64
	Fields map[string]any
}
