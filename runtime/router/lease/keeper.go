package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
)

// ErrStopped is the loss of a term whose holder chose to renew no more.
var ErrStopped = errors.New("renewal was stopped")

// Keeper renews one term until it is lost or it is told to stop. A renewal that fails for
// another reason is tried again while the term is valid. It then never renews again: a new
// term needs a new claim and a new Keeper.
type Keeper struct {
	lease    Lease
	interval time.Duration
	fails    []func(error)
	term     atomic.Pointer[Term] // nil = over
	last     atomic.Pointer[Term] // the newest term, also when over
	stop     context.CancelFunc
	once     sync.Once
	why      error // set before lost is closed
	lost     chan struct{}
	done     chan struct{}
}

// Keep starts renewing t every interval. The caller ends it with Stop or Release. fails, which
// may be left out, is told of a renewal that fails and is tried again, once each.
func Keep(l Lease, t Term, interval time.Duration, fails ...func(error)) *Keeper {
	ctx, cancel := context.WithCancel(context.Background())
	k := &Keeper{lease: l, interval: interval, fails: fails, stop: cancel, lost: make(chan struct{}), done: make(chan struct{})}
	k.term.Store(&t)
	k.last.Store(&t)
	go k.loop(ctx, &t)
	return k
}

// Valid reports whether the holder may serve now. It reads one atomic and the clock.
func (k *Keeper) Valid() bool {
	t := k.term.Load()
	return t != nil && t.Valid(time.Now())
}

// Term is the newest term, also after it was lost.
func (k *Keeper) Term() Term { return *k.last.Load() }

// Lost is closed once, when the term is over before Release: a renewal failed, validity
// ran out, or Stop was called. Valid is false before that.
func (k *Keeper) Lost() <-chan struct{} { return k.lost }

// Err says why the term was lost; nil before.
func (k *Keeper) Err() error {
	select {
	case <-k.lost:
		return k.why
	default:
		return nil
	}
}

// Stop ends local validity and renewal, as a degraded router does; reason becomes Err,
// nil ErrStopped. The stored lease runs out by itself, or Release ends it.
func (k *Keeper) Stop(reason error) {
	if reason == nil {
		reason = ErrStopped
	}
	k.lose(reason)
	k.stop()
}

// Release ends local validity, then renewal, then the stored lease. Nothing is admitted
// any more when it is called; streams may go on, they need no lease.
func (k *Keeper) Release(ctx context.Context) error {
	k.term.Store(nil)
	k.stop()
	select {
	case <-k.done:
	case <-ctx.Done():
		return fmt.Errorf("release lease: %w", ctx.Err())
	}
	return k.lease.Release(ctx, k.Term())
}

// Done is closed when nothing of the Keeper runs any more.
func (k *Keeper) Done() <-chan struct{} { return k.done }

func (k *Keeper) lose(reason error) {
	k.once.Do(func() {
		k.term.Store(nil)
		k.why = reason
		close(k.lost)
	})
}

func (k *Keeper) loop(ctx context.Context, t *Term) {
	defer close(k.done)
	tick := time.NewTicker(k.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		next, err := k.renew(ctx, *t)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			k.lose(err)
			return
		}
		k.last.Store(&next)
		if !k.term.CompareAndSwap(t, &next) {
			return // ended meanwhile
		}
		t = &next
	}
}

// renewPause is between the attempts of one renewal.
const renewPause = 50 * time.Millisecond

// renew gives up when validity does.
func (k *Keeper) renew(ctx context.Context, t Term) (Term, error) {
	ctx, cancel := context.WithDeadline(ctx, t.ValidUntil)
	defer cancel()
	next, err := k.lease.Renew(ctx, t)
	if err != nil && !errors.Is(err, ErrLost) && ctx.Err() == nil {
		for _, tell := range k.fails {
			tell(err)
		}
	}
	for cause := err; err != nil; next, err = k.lease.Renew(ctx, t) {
		if ctx.Err() == nil {
			cause = err
		}
		if errors.Is(err, ErrLost) {
			return Term{}, err
		}
		if !pause.For(ctx, renewPause) {
			return Term{}, cause
		}
	}
	if !t.Valid(time.Now()) || !next.Valid(time.Now()) {
		return Term{}, fmt.Errorf("renew lease: took longer than local validity: %w", ErrLost)
	}
	return next, nil
}
