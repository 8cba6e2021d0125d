package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Created opens a record.
type Created struct {
	Run       string `json:"run"`
	FleetName string `json:"fleet_name"`
	Fleet     Ref    `json:"fleet"` // the frozen fleet document, mirrored at fleet.json
	Release   string `json:"release,omitempty"`
	Operator  string `json:"operator,omitempty"`
	Version   string `json:"version,omitempty"`
}

// Resumed says that a process took the run up again.
type Resumed struct {
	PID int    `json:"pid"`
	By  string `json:"by,omitempty"`
}

// Interrupted says that a process stopped in order.
type Interrupted struct {
	Signal string `json:"signal"`
}

// Repair says that a torn last line was cut off; its bytes stay in a file.
type Repair struct {
	DroppedBytes  int64  `json:"dropped_bytes"`
	DroppedSHA256 string `json:"dropped_sha256"`
	File          string `json:"file"` // torn-<seq>.bin
}

// Facts are observed values, by name. An empty value says "looked, and absent".
type Facts struct {
	Values map[string]string `json:"values"`
}

// Started says that a gate is being worked on.
type Started struct{}

// Plan is what a gate will do. An event without a gate is the whole run's plan,
// mirrored at plan.json.
type Plan struct {
	Digest string `json:"digest"`
	Object Ref    `json:"object"`
	Steps  int    `json:"steps"`
}

// Effects of a step.
const (
	EffectObserve = "observe"
	EffectMutate  = "mutate"
	EffectDisrupt = "disrupt"
)

// Intent is written before a step starts. Undo is the gate's own JSON object;
// anything large in it is a Ref.
type Intent struct {
	Argv    []string        `json:"argv,omitempty"`
	Summary string          `json:"summary,omitempty"`
	Effect  string          `json:"effect"`
	Undo    json.RawMessage `json:"undo,omitempty"`
}

// Statuses of an outcome.
const (
	StatusOK       = "ok"
	StatusFailed   = "failed"
	StatusCanceled = "canceled"
)

// Outcome ends an intent. Intent is the seq of the intent it ends; 0 means the
// newest open one of the same gate, step and host.
type Outcome struct {
	Intent     int64  `json:"intent,omitempty"`
	Status     string `json:"status"`
	Error      string `json:"error,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Exit       *int   `json:"exit,omitempty"`
	Output     *Ref   `json:"output,omitempty"`
}

// Results of observing an unknown intent again.
const (
	ResolvedDone    = "done"
	ResolvedUndone  = "undone"
	ResolvedUnclear = "unclear"
)

// Resolved says what a second look at an unknown intent found. Intent as in Outcome.
type Resolved struct {
	Intent int64  `json:"intent,omitempty"`
	Status string `json:"status"`
	How    string `json:"how"`
}

// Evidence is a stored observation and the facts that keep it valid.
type Evidence struct {
	Key   Key               `json:"key"`
	Ref   Ref               `json:"ref"`
	Bonds map[string]string `json:"bonds,omitempty"`
}

// Stale withdraws evidence.
type Stale struct {
	Key     Key    `json:"key"`
	Because string `json:"because"`
}

// States of a verdict.
const (
	VerdictPassed       = "passed"
	VerdictFailed       = "failed"
	VerdictInconclusive = "inconclusive"
)

// Verdict is a gate's decision. A long list of findings goes into an object.
type Verdict struct {
	State    string    `json:"state"`
	Findings []Finding `json:"findings,omitempty"`
	Object   *Ref      `json:"object,omitempty"`
	// Expects names the object with the keys of the evidence that the gate asks for: a JSON array,
	// sorted by bytes, each once. nil where the writer did not say.
	Expects *Ref `json:"expects,omitempty"`
}

// Seal says that the digest of line Seq was signed; the Sigstore bundle is Ref,
// mirrored at seals/<gate>.sigstore.json.
type Seal struct {
	Ref    Ref    `json:"ref"`
	Seq    int64  `json:"seq"`
	Digest string `json:"digest"`
}

// Undone says that a step (by id, in the event's gate), a piece of evidence, or
// with neither the whole gate, no longer holds. Intent as in Outcome.
type Undone struct {
	Key    Key    `json:"key,omitempty"`
	Step   string `json:"step,omitempty"`
	Intent int64  `json:"intent,omitempty"`
	How    string `json:"how,omitempty"`
}

// RollbackStarted opens a rollback to the state after gate To.
type RollbackStarted struct {
	To   string `json:"to"`
	Plan *Ref   `json:"plan,omitempty"`
}

// Statuses of a rollback step.
const (
	RollbackRunning = "running"
	RollbackOK      = "ok"
	RollbackFailed  = "failed"
	RollbackSkipped = "skipped"
)

// RollbackStep is one undo: once running, before it starts, and once with its
// end. With status ok it takes the intent with seq Intent out of Done.
type RollbackStep struct {
	ID      string `json:"id"`
	Intent  int64  `json:"intent,omitempty"`
	Summary string `json:"summary,omitempty"`
	Status  string `json:"status"`
	Error   string `json:"error,omitempty"`
	// Unsure says that an attempt that did not end may have had its effect.
	Unsure     bool  `json:"unsure,omitempty"`
	DurationMS int64 `json:"duration_ms,omitempty"`
	Output     *Ref  `json:"output,omitempty"`
}

// RollbackDone ends a rollback. Rerun lists the gates that must run again.
type RollbackDone struct {
	Stopped  []string `json:"stopped"`
	Restored []string `json:"restored"`
	Rerun    []string `json:"rerun"`
	Residue  []string `json:"residue"`
	// Findings are what the live look at the end found other than the record says.
	Findings []Finding `json:"findings,omitempty"`
	// Object is the whole result where a line does not hold it. The lists above, but Rerun, have
	// the first of each then.
	Object *Ref `json:"object,omitempty"`
}

// Note is free text for a person. It changes no state.
type Note struct {
	Text   string            `json:"text"`
	Values map[string]string `json:"values,omitempty"`
	Object *Ref              `json:"object,omitempty"`
}

func (b *Created) check() error {
	if b.Run == "" || b.FleetName == "" {
		return fmt.Errorf("name run and fleet: one is empty")
	}
	return b.Fleet.check()
}
func (b *Resumed) check() error     { return nil }
func (b *Interrupted) check() error { return nil }
func (b *Repair) check() error {
	if b.DroppedBytes < 0 || !isDigest(b.DroppedSHA256) {
		return fmt.Errorf("read repair: bad length or digest")
	}
	return nil
}
func (b *Facts) check() error   { return nil }
func (b *Started) check() error { return nil }
func (b *Plan) check() error    { return b.Object.check() }
func (b *Intent) check() error {
	if len(b.Undo) > 0 && b.Undo[0] != '{' && string(b.Undo) != "null" {
		return fmt.Errorf("read undo: want an object")
	}
	return oneOf("effect", b.Effect, EffectObserve, EffectMutate, EffectDisrupt)
}
func (b *Outcome) check() error {
	if err := optional(b.Output); err != nil {
		return err
	}
	return oneOf("status", b.Status, StatusOK, StatusFailed, StatusCanceled)
}
func (b *Resolved) check() error {
	return oneOf("status", b.Status, ResolvedDone, ResolvedUndone, ResolvedUnclear)
}
func (b *Evidence) check() error {
	if err := b.Key.check(); err != nil {
		return err
	}
	return b.Ref.check()
}
func (b *Stale) check() error { return b.Key.check() }
func (b *Verdict) check() error {
	if err := cmp.Or(optional(b.Object), optional(b.Expects)); err != nil {
		return err
	}
	return oneOf("state", b.State, VerdictPassed, VerdictFailed, VerdictInconclusive)
}
func (b *Seal) check() error {
	if b.Seq < 1 || !isDigest(b.Digest) {
		return fmt.Errorf("read seal: bad seq or digest")
	}
	return b.Ref.check()
}
func (b *Undone) check() error {
	if b.Key != "" {
		return b.Key.check()
	}
	return nil
}
func (b *RollbackStarted) check() error { return optional(b.Plan) }
func (b *RollbackStep) check() error {
	if err := optional(b.Output); err != nil {
		return err
	}
	return oneOf("status", b.Status, RollbackRunning, RollbackOK, RollbackFailed, RollbackSkipped)
}
func (b *RollbackDone) check() error { return optional(b.Object) }
func (b *Note) check() error         { return optional(b.Object) }

func optional(r *Ref) error {
	if r == nil {
		return nil
	}
	return r.check()
}

func oneOf(field, got string, want ...string) error {
	if !slices.Contains(want, got) {
		return fmt.Errorf("read %s: %q is none of %v", field, clip(got), want)
	}
	return nil
}
