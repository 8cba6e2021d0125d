package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease/conformance"
)

const (
	ttl    = 5 * time.Second
	margin = time.Second
	every  = time.Second
)

func keep(t *testing.T, m *conformance.Memory) (*lease.Keeper, lease.Lease) {
	t.Helper()
	l := m.Lease("a", ttl, margin)
	term, err := l.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease.Keep(l, term, every), l
}

func TestKeeperRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(conformance.Memory)
		k, _ := keep(t, m)
		for range 60 {
			time.Sleep(every)
			if !k.Valid() || k.Err() != nil {
				t.Fatalf("lost: %v", k.Err())
			}
		}
		if err := k.Release(t.Context()); err != nil || k.Valid() || k.Err() != nil {
			t.Fatalf("release: %v, valid %v, %v", err, k.Valid(), k.Err())
		}
		if term, err := m.Lease("b", ttl, margin).Claim(t.Context()); err != nil || term.Epoch != 2 {
			t.Errorf("after release: %+v, %v", term, err)
		}
	})
}

// TestKeeperTriesAgain: what does not take the lease away costs nothing while the term lasts.
func TestKeeperTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(conformance.Memory)
		l := m.Lease("a", ttl, margin)
		term, err := l.Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var told []error
		k := lease.Keep(l, term, every, func(err error) { told = append(told, err) })
		cause := errors.New("disk is full")
		m.Break(cause)
		time.Sleep(ttl - margin - every)
		m.Break(nil)
		time.Sleep(10 * ttl)
		if !k.Valid() || k.Err() != nil || k.Term().Epoch != 1 {
			t.Errorf("valid %v, %v, %+v", k.Valid(), k.Err(), k.Term())
		}
		k.Stop(nil)
		<-k.Done()
		if len(told) != 1 || !errors.Is(told[0], cause) {
			t.Errorf("told %v", told)
		}
	})
}

// TestKeeperGivesUpForGood: failures to the end of validity end it, even if the store comes back.
func TestKeeperGivesUpForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(conformance.Memory)
		k, _ := keep(t, m)
		cause := errors.New("disk is full")
		m.Break(cause)
		<-k.Lost()
		if !errors.Is(k.Err(), cause) || k.Valid() {
			t.Errorf("lost by %v, valid %v", k.Err(), k.Valid())
		}
		m.Break(nil)
		before := m.Operations()
		<-k.Done()
		time.Sleep(time.Hour)
		if m.Operations() != before || k.Valid() {
			t.Error("renewed after a failure")
		}
	})
}

func TestKeeperLosesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(conformance.Memory)
		k, _ := keep(t, m)
		m.Put(lease.Make("b", 2, time.Now(), ttl))
		<-k.Lost()
		if !errors.Is(k.Err(), lease.ErrLost) {
			t.Errorf("lost by %v", k.Err())
		}
		<-k.Done()
	})
}

// TestStoppedKeeperLetsTheLeaseRunOut is the degraded router.
func TestStoppedKeeperLetsTheLeaseRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(conformance.Memory)
		k, _ := keep(t, m)
		degraded := errors.New("5 degraded passes")
		k.Stop(degraded)
		k.Stop(nil)
		<-k.Lost()
		<-k.Done()
		if k.Valid() || !errors.Is(k.Err(), degraded) {
			t.Errorf("valid %v, %v", k.Valid(), k.Err())
		}
		b := m.Lease("b", ttl, margin)
		var held *lease.HeldError
		if _, err := b.Claim(t.Context()); !errors.As(err, &held) {
			t.Errorf("claim before expiry: %v", err)
		}
		time.Sleep(ttl)
		if _, err := b.Claim(t.Context()); err != nil {
			t.Errorf("claim after expiry: %v", err)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Errorf("late release: %v", err)
		}
	})
}

// hanging is a store whose renewals hang until the context ends, or longer.
type hanging struct {
	lease.Lease
	until chan struct{}
}

func (h hanging) Renew(ctx context.Context, t lease.Term) (lease.Term, error) {
	if h.until != nil {
		<-h.until
		return h.Lease.Renew(context.WithoutCancel(ctx), t)
	}
	<-ctx.Done()
	return lease.Term{}, ctx.Err()
}

func TestHangingRenewalEndsWithValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(conformance.Memory).Lease("a", ttl, margin)
		term, err := l.Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k := lease.Keep(hanging{Lease: l}, term, every)
		time.Sleep(ttl - margin - time.Nanosecond)
		synctest.Wait()
		if !k.Valid() {
			t.Error("invalid too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if k.Valid() || !errors.Is(k.Err(), context.DeadlineExceeded) {
			t.Errorf("valid %v, %v", k.Valid(), k.Err())
		}
		<-k.Done()
	})
}

// TestLateRenewalIsNoRenewal: an answer after the end of validity does not revive a term
// that was seen as over.
func TestLateRenewalIsNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(conformance.Memory).Lease("a", ttl, margin)
		term, err := l.Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h := hanging{l, make(chan struct{})}
		k := lease.Keep(h, term, every)
		time.Sleep(ttl - margin/2)
		if k.Valid() {
			t.Error("valid beyond its time")
		}
		close(h.until)
		<-k.Lost()
		if k.Valid() || !errors.Is(k.Err(), lease.ErrLost) {
			t.Errorf("valid %v, %v", k.Valid(), k.Err())
		}
		<-k.Done()
	})
}

func BenchmarkValid(b *testing.B) {
	l := new(conformance.Memory).Lease("a", time.Hour, margin)
	term, err := l.Claim(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	k := lease.Keep(l, term, time.Minute)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if !k.Valid() {
				b.Error("invalid")
			}
		}
	})
	_ = k.Release(b.Context())
}
