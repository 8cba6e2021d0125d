package record

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// MaxReplaced bounds the engines of one replacement.
const MaxReplaced = 4096

// ReplaceStarted begins the replacement of engines of a fleet that serves. Was holds, by
// engine, the process that ran then.
type ReplaceStarted struct {
	Engines []string          `json:"engines"`
	Was     map[string]string `json:"was"`
	// Wave replaces all at once, else one after the other. Profile measures them although
	// their profiles hold.
	// Only means that the engines of a wave are not the whole fleet.
	Wave    bool `json:"wave,omitempty"`
	Only    bool `json:"only,omitempty"`
	Profile bool `json:"profile,omitempty"`
	Plan    *Ref `json:"plan,omitempty"`
	// Back is set where it takes an earlier replacement back.
	Back *WayBack `json:"back,omitempty"`
}

// WayBack is what a replacement returns to, and from what.
type WayBack struct {
	// Of is the line of the record that began the replacement which is taken back.
	Of int64 `json:"of"`
	// Fleet is the document with the former launches.
	Fleet Ref `json:"fleet"`
	// From holds, by engine, the digest of the launch in the fleet file that is left.
	From map[string]string `json:"from"`
	// Profiles holds, by engine, the digest of the profile that comes back.
	Profiles map[string]string `json:"profiles,omitempty"`
}

// Statuses of a replacement's stage.
const (
	ReplaceRunning = "running"
	ReplaceOK      = "ok"
	ReplaceFailed  = "failed"
)

// ReplaceStep is one stage for some of the engines: once running, and once with its end.
type ReplaceStep struct {
	Engines    []string `json:"engines"`
	Stage      string   `json:"stage"`
	Status     string   `json:"status"`
	Error      string   `json:"error,omitempty"`
	DurationMS int64    `json:"duration_ms,omitempty"`
}

// ReplaceDone ends a replacement: every engine of it serves again.
type ReplaceDone struct {
	Engines []string `json:"engines"`
}

// Left are launches of a fleet file that a way back has left, by engine, until they are asked
// for again.
type Left struct {
	Launches map[string]string
	Fleet    Ref // the document of what runs in their place
}

// Replacement is a replacement in its place.
type Replacement struct {
	ReplaceStarted
	Seq  int64
	Time time.Time
	// Steps holds the newest report of each stage of the same engines, the newest last.
	Steps []ReplaceStep
}

// Last is the newest report of a stage for an engine, of any stage where stage is "".
func (r Replacement) Last(engine, stage string) (ReplaceStep, bool) {
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if s := r.Steps[i]; slices.Contains(s.Engines, engine) && (stage == "" || s.Stage == stage) {
			return s, true
		}
	}
	return ReplaceStep{}, false
}

func (s *State) replace(ev Event, body checker) {
	switch b := body.(type) {
	case *ReplaceStarted:
		s.Replacement = &Replacement{ReplaceStarted: *b, Seq: ev.Seq, Time: ev.Time}
		if b.Back == nil {
			s.ask(b.Engines)
		}
	case *ReplaceStep:
		if s.Replacement == nil {
			return
		}
		s.Replacement.Steps = slices.DeleteFunc(s.Replacement.Steps, func(o ReplaceStep) bool {
			return o.Stage == b.Stage && slices.Equal(o.Engines, b.Engines)
		})
		s.Replacement.Steps = append(s.Replacement.Steps, *b)
	case *ReplaceDone:
		if s.Replacement != nil && s.Replacement.Back != nil {
			s.leave(*s.Replacement.Back)
		}
		s.Replacement = nil
	}
}

// leave remembers what a way back has left.
func (s *State) leave(b WayBack) {
	if s.Left.Launches == nil {
		s.Left.Launches = map[string]string{}
	}
	maps.Copy(s.Left.Launches, b.From)
	s.Left.Fleet = b.Fleet
}

// ask forgets that the launches of engines were left.
func (s *State) ask(engines []string) {
	for _, e := range engines {
		delete(s.Left.Launches, e)
	}
}

func engineList(ids []string) error {
	if len(ids) == 0 || len(ids) > MaxReplaced {
		return fmt.Errorf("name engines: %d are named, want 1 to %d", len(ids), MaxReplaced)
	}
	return nil
}

func (b *ReplaceStarted) check() error {
	if err := engineList(b.Engines); err != nil {
		return err
	}
	if w := b.Back; w != nil {
		if w.Of < 1 || len(w.From) > MaxReplaced || len(w.Profiles) > MaxReplaced {
			return fmt.Errorf("name what is taken back: line %d, %d engines", w.Of, len(w.From))
		}
		if err := w.Fleet.check(); err != nil {
			return err
		}
	}
	return optional(b.Plan)
}

func (b *ReplaceStep) check() error {
	if b.Stage == "" || len(b.Stage) > 64 {
		return fmt.Errorf("name a stage: %q", clip(b.Stage))
	}
	if err := engineList(b.Engines); err != nil {
		return err
	}
	return oneOf("status", b.Status, ReplaceRunning, ReplaceOK, ReplaceFailed)
}

func (b *ReplaceDone) check() error { return engineList(b.Engines) }
