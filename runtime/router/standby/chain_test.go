package standby

import (
	"errors"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// between makes the router that the standby follows a standby itself, which passes on documents
// that are so old.
func between(age string) func(*world) {
	return func(w *world) {
		w.control.Store(false)
		w.age = age
	}
}

// A standby of a standby is content with what that one passes on, and takes it as old as it is.
func TestFollowsAStandby(t *testing.T) {
	inBubble(t, between("2.5"), func(w *world) {
		w.after(5*time.Minute, "store")
		if age := time.Since(w.stored); age < 2500*time.Millisecond || age > 3*time.Second {
			t.Errorf("the document is %v old", age)
		}
	})
}

// Both routers before it die together: it serves at once.
func TestChainLosesTwo(t *testing.T) {
	inBubble(t, between("0.1"), func(w *world) {
		w.stopRenewing()
		w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
		w.kill()
		gap, err := w.end()
		if err != nil || gap > 20*time.Millisecond || w.opened.Term().Epoch != 2 {
			t.Errorf("opened after %v: %v", gap, err)
		}
		w.after(0, "store", "apply", "verify", "open")
	})
}

// Only the one between dies: the holder serves on. When it dies too the last document still counts.
func TestChainLosesTheMiddle(t *testing.T) {
	inBubble(t, between("0.1"), func(w *world) {
		w.kill()
		w.after(10*time.Second, "store", "block "+BlockHeld)
		w.stopRenewing()
		w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
		if gap, err := w.end(); err != nil || gap > 2*DefaultInterval {
			t.Errorf("opened after %v: %v", gap, err)
		}
	})
}

// When the holder gives the lease back, the standby between has the first claim.
func TestChainKeepsItsOrder(t *testing.T) {
	inBubble(t, between("0.1"), func(w *world) {
		if err := w.keeper.Release(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		w.after(DefaultInterval*2, "store")
		if gap, err := w.end(); err != nil || gap > DefaultMisses*DefaultInterval {
			t.Errorf("opened after %v: %v", gap, err)
		}
	})
}

// What a standby says of an age is not believed blindly, and too old a document is none.
func TestPassedOnTooOld(t *testing.T) {
	for _, age := range []string{"-1", "NaN", "1e99", "a while", "31"} {
		inBubble(t, between(age), func(w *world) {
			w.stopRenewing()
			w.kill()
			time.Sleep(ttl)
			if w.opened != nil {
				t.Errorf("opened with a document that is %q seconds old", age)
			}
		})
	}
}

// A primary of another fleet is told while it lives, and nothing is claimed after its end, so that
// a standby that fits may.
func TestPrimaryOfAnotherFleet(t *testing.T) {
	inBubble(t, func(w *world) { w.fits = errors.New(`handoff is of model "b"`) }, func(w *world) {
		w.after(0, `block the primary is of another fleet: handoff is of model "b"`)
		w.stopRenewing()
		w.store.Put(lease.Make("router-a:0", 1, time.Now(), 0))
		w.kill()
		before := w.store.Operations()
		w.after(time.Minute, `block the primary is of another fleet: handoff is of model "b"`)
		if d, _ := w.own.Look(w.t.Context()); d.Epoch != 1 || w.store.Operations() > before+1 {
			t.Errorf("claimed: %+v", d)
		}
	})
}

// It waits as any standby once the primary is of its fleet.
func TestPrimaryIsOfThisFleetAgain(t *testing.T) {
	inBubble(t, func(w *world) { w.fits = errors.New("another") }, func(w *world) {
		w.mu.Lock()
		w.fits = nil
		w.mu.Unlock()
		w.after(time.Minute, "block the primary is of another fleet: another", "store", "block ", "store")
	})
}
