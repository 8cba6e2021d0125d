package watch

import "time"

// Budget is the share of an engine's time that looking at it may take.
type Budget struct {
	Percent float64
	// Saved is the longest time whose share is kept for later.
	Saved time.Duration
}

// Purse is what an engine has of its budget, in seconds, as of a moment. The zero value is that
// of an engine that was never looked at: it may be at once.
type Purse struct {
	Seconds float64   `json:"seconds"`
	At      time.Time `json:"at"`
}

// credit is what the purse holds at a time. A clock that was set back brings nothing.
func (b Budget) credit(p Purse, now time.Time) float64 {
	passed := max(now.Sub(p.At), 0)
	if p.At.IsZero() {
		passed = 0
	}
	return min(p.Seconds+passed.Seconds()*b.Percent/100, b.Saved.Seconds()*b.Percent/100)
}

// may reports whether the engine may be looked at: it owes nothing for the last time.
func (b Budget) may(p Purse, now time.Time) bool { return b.credit(p, now) >= 0 && b.Percent > 0 }

// charge takes what a look took out of the purse. It may owe then.
func (b Budget) charge(p Purse, now time.Time, took time.Duration) Purse {
	return Purse{Seconds: b.credit(p, now) - took.Seconds(), At: now}
}
