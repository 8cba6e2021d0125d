package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Memory is a lease store of one process, for tests of what is built on a lease.
type Memory struct {
	mu     sync.Mutex
	stored lease.Document
	fail   error
	ops    int // claims, renewals and releases so far
}

// Break makes every later operation fail with err; nil mends it.
func (m *Memory) Break(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// Operations counts claims, renewals and releases.
func (m *Memory) Operations() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// Put replaces what is stored, as a foreign writer would.
func (m *Memory) Put(d lease.Document) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = d
}

// Lease is one holder's access.
func (m *Memory) Lease(holder string, ttl, margin time.Duration) lease.Lease {
	return &memory{m, holder, ttl, margin}
}

type memory struct {
	m           *Memory
	holder      string
	ttl, margin time.Duration
}

func (l *memory) do(ctx context.Context, verb string, f func(now time.Time) error) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s lease: %w", verb, err)
	}
	l.m.ops++
	err := l.m.fail
	if err == nil {
		err = f(time.Now())
	}
	if err != nil {
		return fmt.Errorf("%s lease: %w", verb, err)
	}
	return nil
}

func (l *memory) put(epoch int64, now time.Time) lease.Term {
	l.m.stored = lease.Make(l.holder, epoch, now, l.ttl)
	return lease.Term{Epoch: epoch, Holder: l.holder, ValidUntil: now.Add(l.ttl - l.margin)}
}

func (l *memory) Claim(ctx context.Context) (t lease.Term, err error) {
	err = l.do(ctx, "claim", func(now time.Time) error {
		d := l.m.stored
		switch {
		case !d.Stored() || d.Expired(now):
			t = l.put(d.Epoch+1, now)
		case d.Holder == l.holder:
			t = l.put(d.Epoch, now)
		default:
			return d.Held()
		}
		return nil
	})
	return t, err
}

func (l *memory) Renew(ctx context.Context, old lease.Term) (t lease.Term, err error) {
	err = l.do(ctx, "renew", func(now time.Time) error {
		if !l.m.stored.Is(old) || l.m.stored.Expired(now) {
			return lease.ErrLost
		}
		t = l.put(old.Epoch, now)
		return nil
	})
	return t, err
}

func (l *memory) Release(ctx context.Context, t lease.Term) error {
	return l.do(ctx, "release", func(now time.Time) error {
		if d := l.m.stored; d.Is(t) && !d.Expired(now) {
			l.m.stored = lease.Make(d.Holder, d.Epoch, now, 0)
		}
		return nil
	})
}

func (l *memory) Look(context.Context) (lease.Document, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.fail != nil {
		return lease.Document{}, fmt.Errorf("look at lease: %w", l.m.fail)
	}
	return l.m.stored, nil
}
