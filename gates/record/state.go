package record

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// States of a gate beside those of a verdict.
const (
	GatePending = "pending"
	GateRunning = "running"
	GateStale   = "stale"
	GateUndone  = "undone"
)

// State is what a record says now. Maps and slices of a State that this package
// hands out belong to the caller; what their elements point to is read-only.
type State struct {
	Created
	Began time.Time // of run.created
	Seq   int64     // of the last event
	Last  time.Time // of the last event
	// Plan is the whole run's plan, zero for none.
	Plan  Plan
	Gates map[string]Gate
	// Seals holds the newest seal of each name: gate letters, and others such as "rollback".
	Seals map[string]Sealed
	// Facts holds the latest value of each fact.
	Facts map[string]string
	// Unknown holds intents without an outcome, oldest first.
	Unknown []Action
	// Done holds mutating and disrupting steps that took effect and were not
	// undone, in the order in which they ended.
	Done []Action
	// Partial holds such steps that failed or were canceled: they may have left
	// something. A later success of the same step, or an undo, removes it.
	Partial []Action
	// Rollback is the one in progress, nil for none.
	Rollback *Rollback
	// LastRollback is the one that ended last, nil for none.
	LastRollback *Rollback
	// Replacement is the one in progress, nil for none. A rollback ends it.
	Replacement *Replacement
	// Left are launches that a way back has left. A rollback forgets them.
	Left Left
	// Interrupted is set from an orderly stop until the run is resumed.
	Interrupted *Stop
	Resumes     int
	Repairs     []Repair
	// Malformed lists events that a fold could not take: an unreadable body, or
	// an intent above MaxActions. Readers refuse such a log.
	Malformed []int64

	mirrored map[string]bool // digests of all fleets, plans and seals so far
}

// Gate is the state of one gate.
type Gate struct {
	State      string
	Verdict    string // of the last verdict since the gate started, "" for none
	Findings   []Finding
	Details    *Ref // findings that did not fit a line
	Evidence   map[Key]Entry
	PlanDigest string
	Plan       Ref
	Seal       *Sealed // nil once the gate starts again
	Started    time.Time
	Ended      time.Time
}

// Entry is one piece of evidence.
type Entry struct {
	Ref     Ref
	Bonds   map[string]string
	Step    string
	Host    string
	Seq     int64
	Time    time.Time
	Stale   bool
	Because string
}

// Sealed is a seal in its place.
type Sealed struct {
	Seal
	At   int64 // seq of the seal event
	Time time.Time
}

// Action is an intent in its place, with what became of it.
type Action struct {
	Seq  int64
	Time time.Time
	Gate string
	Step string
	Host string
	Intent
	Outcome  *Outcome
	Resolved *Resolved
}

// Stop is an orderly stop.
type Stop struct {
	Signal string
	Time   time.Time
}

// Rollback is a rollback in its place.
type Rollback struct {
	To      string
	Plan    *Ref
	Seq     int64
	Started time.Time
	// Steps holds the newest report of each step, in order of first appearance.
	Steps []RollbackStep
	Done  *RollbackDone
	Ended time.Time
}

// Broken is evidence whose bound fact has another value now.
type Broken struct {
	Key  Key
	Fact string
	Was  string
	Now  string
}

// Broken lists, by key, evidence that is not yet stale and has a bond to a known
// fact with another value. One entry a key: the first fact by name.
func (s State) Broken() []Broken {
	var out []Broken
	for _, g := range s.Gates {
		for key, e := range g.Evidence {
			if b, ok := s.brokenBond(key, e); ok {
				out = append(out, b)
			}
		}
	}
	slices.SortFunc(out, func(a, b Broken) int { return compare(a.Key, b.Key) })
	return out
}

func (s State) brokenBond(key Key, e Entry) (Broken, bool) {
	if e.Stale {
		return Broken{}, false
	}
	for _, fact := range slices.Sorted(maps.Keys(e.Bonds)) {
		if now, known := s.Facts[fact]; known && now != e.Bonds[fact] {
			return Broken{Key: key, Fact: fact, Was: e.Bonds[fact], Now: now}, true
		}
	}
	return Broken{}, false
}

func compare(a, b Key) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Evidence returns the entry of a key.
func (s State) Evidence(key Key) (Entry, bool) {
	e, ok := s.Gates[key.Gate()].Evidence[key]
	return e, ok
}

// whole is the error of a state that could not take all of its events.
func (s State) whole() error {
	if len(s.Malformed) == 0 {
		return nil
	}
	return &ChainError{Line: int(s.Malformed[0]), Why: fmt.Sprintf("more than %d intents at one time", MaxActions)}
}

// clone copies everything that apply changes in place.
func (s State) clone() State {
	s.Gates = maps.Clone(s.Gates)
	for letter, g := range s.Gates {
		g.Evidence = maps.Clone(g.Evidence)
		s.Gates[letter] = g
	}
	s.Facts = maps.Clone(s.Facts)
	s.Seals = maps.Clone(s.Seals)
	s.mirrored = maps.Clone(s.mirrored)
	s.Unknown = slices.Clone(s.Unknown)
	s.Done = slices.Clone(s.Done)
	s.Partial = slices.Clone(s.Partial)
	s.Repairs = slices.Clone(s.Repairs)
	s.Malformed = slices.Clone(s.Malformed)
	s.Left.Launches = maps.Clone(s.Left.Launches)
	if s.Rollback != nil {
		r := *s.Rollback
		r.Steps = slices.Clone(r.Steps)
		s.Rollback = &r
	}
	if s.Replacement != nil {
		r := *s.Replacement
		r.Steps = slices.Clone(r.Steps)
		s.Replacement = &r
	}
	return s
}
