package gates

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// View is what a gate sees when it plans or judges: inputs, evidence and facts.
// It is a value; nothing in it changes under a gate's hands.
type View struct {
	Fleet   fleet.Fleet
	Run     string
	Release Release
	// Holder identifies the operator's state folder.
	Holder string
	// Facts are the latest known values, by name; see invalidation.go.
	Facts map[string]string
	// needs holds the evidence to make, with the reason.
	needs map[record.Key]string
	state record.State
	load  func(record.Ref) ([]byte, error)
}

// Wants reports whether the plan must make the evidence.
func (v View) Wants(k record.Key) bool {
	_, ok := v.needs[k]
	return ok
}

// Because says why the plan must make the evidence, "" when it need not.
func (v View) Because(k record.Key) string { return v.needs[k] }

// Has reports whether fresh evidence is there.
func (v View) Has(k record.Key) bool {
	e, ok := v.entry(k)
	return ok && !e.Stale
}

func (v View) entry(k record.Key) (record.Entry, bool) {
	if len(k) == 0 {
		return record.Entry{}, false
	}
	e, ok := v.state.Gates[string(k[0])].Evidence[k]
	return e, ok
}

// Evidence returns the bytes of fresh evidence whose digest still holds.
func (v View) Evidence(k record.Key) ([]byte, error) {
	e, ok := v.entry(k)
	if !ok {
		return nil, fmt.Errorf("read evidence %s: not recorded", k)
	}
	if e.Stale {
		return nil, fmt.Errorf("read evidence %s: stale, %s", k, e.Because)
	}
	return v.load(e.Ref)
}

// Decode reads fresh JSON evidence into v.
func (v View) Decode(k record.Key, to any) error {
	b, err := v.Evidence(k)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("read evidence %s: %w", k, err)
	}
	return nil
}

// Digest returns the digest of fresh evidence, "" when there is none.
func (v View) Digest(k record.Key) string {
	if e, ok := v.entry(k); ok && !e.Stale {
		return e.Ref.SHA256
	}
	return ""
}

// Taken returns when fresh evidence was recorded.
func (v View) Taken(k record.Key) (time.Time, bool) {
	e, ok := v.entry(k)
	return e.Time, ok && !e.Stale
}

// Bound is the value of a fact that evidence, fresh or stale, is bound to; "" for none.
func (v View) Bound(k record.Key, fact string) string {
	e, _ := v.entry(k)
	return e.Bonds[fact]
}

// Current reports whether fresh evidence was made since the gate, which was cut off, was
// started: it need not be made again with what rests on it.
func (v View) Current(k record.Key) bool {
	e, ok := v.entry(k)
	g := v.state.Gates[k.Gate()]
	return ok && !e.Stale && g.State == record.GateRunning && !e.Time.Before(g.Started)
}
