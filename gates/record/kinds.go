package record

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Kind is the closed vocabulary of events.
type Kind string

// The kinds of events; each carries the body type of the same name.
const (
	KindCreated         Kind = "run.created"
	KindResumed         Kind = "run.resumed"
	KindInterrupted     Kind = "run.interrupted"
	KindRepair          Kind = "repair"
	KindFacts           Kind = "facts"
	KindStarted         Kind = "gate.started"
	KindPlan            Kind = "plan"
	KindIntent          Kind = "intent"
	KindOutcome         Kind = "outcome"
	KindResolved        Kind = "resolved"
	KindEvidence        Kind = "evidence"
	KindStale           Kind = "stale"
	KindVerdict         Kind = "verdict"
	KindSeal            Kind = "seal"
	KindUndone          Kind = "undone"
	KindRollbackStarted Kind = "rollback.started"
	KindRollbackStep    Kind = "rollback.step"
	KindRollbackDone    Kind = "rollback.done"
	KindReplaceStarted  Kind = "replacement.started"
	KindReplaceStep     Kind = "replacement.step"
	KindReplaceDone     Kind = "replacement.done"
	KindNote            Kind = "note"
)

// checker is a body that can say what is wrong with itself.
type checker interface{ check() error }

var bodies = map[Kind]func() checker{
	KindCreated:         func() checker { return new(Created) },
	KindResumed:         func() checker { return new(Resumed) },
	KindInterrupted:     func() checker { return new(Interrupted) },
	KindRepair:          func() checker { return new(Repair) },
	KindFacts:           func() checker { return new(Facts) },
	KindStarted:         func() checker { return new(Started) },
	KindPlan:            func() checker { return new(Plan) },
	KindIntent:          func() checker { return new(Intent) },
	KindOutcome:         func() checker { return new(Outcome) },
	KindResolved:        func() checker { return new(Resolved) },
	KindEvidence:        func() checker { return new(Evidence) },
	KindStale:           func() checker { return new(Stale) },
	KindVerdict:         func() checker { return new(Verdict) },
	KindSeal:            func() checker { return new(Seal) },
	KindUndone:          func() checker { return new(Undone) },
	KindRollbackStarted: func() checker { return new(RollbackStarted) },
	KindRollbackStep:    func() checker { return new(RollbackStep) },
	KindRollbackDone:    func() checker { return new(RollbackDone) },
	KindReplaceStarted:  func() checker { return new(ReplaceStarted) },
	KindReplaceStep:     func() checker { return new(ReplaceStep) },
	KindReplaceDone:     func() checker { return new(ReplaceDone) },
	KindNote:            func() checker { return new(Note) },
}

// Kinds lists the vocabulary in no particular order.
func Kinds() []Kind {
	out := make([]Kind, 0, len(bodies))
	for k := range bodies {
		out = append(out, k)
	}
	return out
}

// decodeBody returns the typed body (a pointer). Strict refuses fields that the
// type lacks; a reader is not strict, so that a newer writer's fields pass.
func decodeBody(kind Kind, raw json.RawMessage, strict bool) (checker, error) {
	mk, ok := bodies[kind]
	if !ok {
		return nil, fmt.Errorf("read event: unknown kind %q", clip(string(kind)))
	}
	body := mk()
	dec := json.NewDecoder(bytes.NewReader(raw))
	if strict {
		dec.DisallowUnknownFields()
	}
	if len(raw) == 0 || raw[0] != '{' {
		return nil, fmt.Errorf("read body of %s: want an object", kind)
	}
	if err := dec.Decode(body); err != nil {
		return nil, fmt.Errorf("read body of %s: %w", kind, err)
	}
	if err := body.check(); err != nil {
		return nil, fmt.Errorf("read body of %s: %w", kind, err)
	}
	return body, nil
}

// Decode reads the event's body as the type of its kind, for instance *Intent.
func (e Event) Decode() (any, error) { return decodeBody(e.Kind, e.Body, false) }

// Body reads an event's body as T, which must be the type of its kind.
func Body[T any](e Event) (T, error) {
	var none T
	b, err := e.Decode()
	if err != nil {
		return none, err
	}
	p, ok := b.(*T)
	if !ok {
		return none, fmt.Errorf("read body of %s: it is a %T", e.Kind, b)
	}
	return *p, nil
}
