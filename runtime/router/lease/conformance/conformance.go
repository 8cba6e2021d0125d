// Package conformance is the suite that every lease store passes, and a store in memory
// for tests of what is built on a lease.
//
// It promises that a passing store gives one holder at a time, epochs that only grow,
// local validity that ends before the stored expiry, and a stale holder nothing. It
// refuses to judge speed, and starts no store itself.
package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Target is a store with a way to reach it.
type Target struct {
	// Store makes an empty store and returns how a holder gets to it.
	Store func(t *testing.T) func(holder string, ttl, margin time.Duration) lease.Lease
	TTL   time.Duration
	// Margin is the safety margin.
	Margin time.Duration
	// Bubble runs each case in a bubble of testing/synctest, where waiting costs nothing.
	Bubble bool
	// Expire returns when the lease of a term has expired. Nil lets the bubble's clock run.
	Expire func(t *testing.T, l lease.Lease, term lease.Term)
}

type suite struct {
	Target
	open func(holder string) lease.Lease
}

// Run runs the suite.
func Run(t *testing.T, target Target) {
	if target.Expire == nil {
		target.Expire = func(_ *testing.T, _ lease.Lease, _ lease.Term) { time.Sleep(target.TTL) }
	}
	for name, f := range map[string]func(*suite, *testing.T){
		"first claim": (*suite).first, "one of many": (*suite).many, "expiry": (*suite).expiry, "stale renewal": (*suite).stale,
		"release": (*suite).release, "epochs grow": (*suite).epochs, "validity": (*suite).validity, "ended context": (*suite).ended,
	} {
		run := func(t *testing.T) {
			at := target.Store(t)
			f(&suite{target, func(holder string) lease.Lease { return at(holder, target.TTL, target.Margin) }}, t)
		}
		t.Run(name, func(t *testing.T) {
			if target.Bubble {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (s *suite) first(t *testing.T) {
	a := s.open("a")
	if d := must(a.Look(t.Context()))(t); d != (lease.Document{}) {
		t.Fatalf("an empty store shows %+v", d)
	}
	term := must(a.Claim(t.Context()))(t)
	if term.Epoch != 1 || term.Holder != "a" || !term.Valid(time.Now()) {
		t.Fatalf("claimed %+v", term)
	}
	d := must(s.open("b").Look(t.Context()))(t)
	if !d.Is(term) || d.Expired(time.Now()) {
		t.Errorf("stored %+v", d)
	}
	again := must(a.Claim(t.Context()))(t)
	if again.Epoch != 1 {
		t.Errorf("a second claim of the holder has epoch %d", again.Epoch)
	}
	if next := must(a.Renew(t.Context(), again))(t); next.Epoch != 1 || next.ValidUntil.Before(again.ValidUntil) {
		t.Errorf("renewed %+v to %+v", again, next)
	}
	_, err := s.open("b").Claim(t.Context())
	var held *lease.HeldError
	if !errors.As(err, &held) || held.Holder != "a" || held.Epoch != 1 || !held.ExpiresAt.After(time.Now()) {
		t.Errorf("claim of another: %v", err)
	}
}

// many lets 50 holders claim at once, twice.
func (s *suite) many(t *testing.T) {
	for epoch := int64(1); epoch <= 2; epoch++ {
		var won sync.Map
		var wg sync.WaitGroup
		for i := range 50 {
			l := s.open("holder-" + string(rune('a'+i%26)) + string(rune('a'+i/26)))
			wg.Go(func() {
				term, err := l.Claim(t.Context())
				var held *lease.HeldError
				if err == nil {
					won.Store(l, term)
				} else if !errors.As(err, &held) {
					t.Errorf("claim: %v", err)
				}
			})
		}
		wg.Wait()
		count := 0
		won.Range(func(l, term any) bool {
			count++
			if term.(lease.Term).Epoch != epoch {
				t.Errorf("won epoch %d, want %d", term.(lease.Term).Epoch, epoch)
			}
			if err := l.(lease.Lease).Release(t.Context(), term.(lease.Term)); err != nil {
				t.Error(err)
			}
			return true
		})
		if count != 1 {
			t.Fatalf("%d holders of epoch %d", count, epoch)
		}
	}
}

func (s *suite) expiry(t *testing.T) {
	a, b := s.open("a"), s.open("b")
	first := must(a.Claim(t.Context()))(t)
	s.Expire(t, a, first)
	if _, err := a.Renew(t.Context(), first); !errors.Is(err, lease.ErrLost) {
		t.Errorf("renewed an expired term: %v", err)
	}
	second := must(b.Claim(t.Context()))(t)
	if second.Epoch != 2 || second.Holder != "b" {
		t.Errorf("claimed %+v", second)
	}
}

func (s *suite) stale(t *testing.T) {
	a, b := s.open("a"), s.open("b")
	old := must(a.Claim(t.Context()))(t)
	s.Expire(t, a, old)
	now := must(b.Claim(t.Context()))(t)
	for _, wrong := range []lease.Term{old, {Epoch: now.Epoch, Holder: "a"}, {Epoch: now.Epoch + 1, Holder: "a"}} {
		if _, err := a.Renew(t.Context(), wrong); !errors.Is(err, lease.ErrLost) {
			t.Errorf("renewed %+v: %v", wrong, err)
		}
		if err := a.Release(t.Context(), wrong); err != nil {
			t.Errorf("release of a stale term: %v", err)
		}
	}
	if d := must(a.Look(t.Context()))(t); !d.Is(now) || d.Expired(time.Now()) {
		t.Errorf("the stale holder changed the lease to %+v", d)
	}
	if _, err := b.Renew(t.Context(), now); err != nil {
		t.Errorf("the holder cannot renew: %v", err)
	}
}

func (s *suite) release(t *testing.T) {
	a, b := s.open("a"), s.open("b")
	first := must(a.Claim(t.Context()))(t)
	for range 2 {
		if err := a.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	if d := must(a.Look(t.Context()))(t); d.Stored() && !d.Expired(time.Now()) {
		t.Errorf("after release %+v is stored", d)
	}
	if _, err := a.Renew(t.Context(), first); !errors.Is(err, lease.ErrLost) {
		t.Errorf("renewed a released term: %v", err)
	}
	if second := must(b.Claim(t.Context()))(t); second.Epoch != 2 {
		t.Errorf("claimed %+v", second)
	}
}

func (s *suite) epochs(t *testing.T) {
	last := int64(0)
	for i := range 6 {
		l := s.open([]string{"a", "b", "c"}[i%3])
		term := must(l.Claim(t.Context()))(t)
		if term.Epoch != last+1 {
			t.Fatalf("epoch %d after %d", term.Epoch, last)
		}
		last = term.Epoch
		if i%2 == 0 {
			s.Expire(t, l, term)
		} else if err := l.Release(t.Context(), term); err != nil {
			t.Fatal(err)
		}
	}
}

// validity compares with what others read: the stored expiry.
func (s *suite) validity(t *testing.T) {
	a := s.open("a")
	before := time.Now()
	term := must(a.Claim(t.Context()))(t)
	for range 2 {
		stored := must(a.Look(t.Context()))(t).Held().ExpiresAt
		if gap := stored.Sub(term.ValidUntil); gap < s.Margin-time.Millisecond {
			t.Errorf("validity ends %v before the stored expiry, want %v", gap, s.Margin)
		}
		if term.ValidUntil.Sub(before) < s.TTL-s.Margin {
			t.Errorf("validity lasts %v", term.ValidUntil.Sub(before))
		}
		before = time.Now()
		term = must(a.Renew(t.Context(), term))(t)
	}
}

func (s *suite) ended(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := s.open("a")
	if _, err := a.Claim(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("claim: %v", err)
	}
	if term := must(a.Claim(t.Context()))(t); term.Epoch < 1 {
		t.Errorf("claimed %+v", term)
	}
}
