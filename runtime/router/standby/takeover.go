package standby

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// takeover claims, restores, verifies and opens. held means that the claim was refused
// only because the lease is held. The error is ctx's.
func (s *Standby) takeover(ctx context.Context) (opened, held bool, err error) {
	if s.doc == nil && s.blocked != "" {
		return false, false, ctx.Err() // refused before, and nothing newer came
	}
	if time.Now().Before(s.resume) {
		return false, false, ctx.Err()
	}
	if !s.fresh() || s.past {
		if !s.past {
			s.stale()
		}
		if s.doc == nil || !s.unwanted(ctx) {
			return false, false, ctx.Err()
		}
		s.o.Logger.Warn("nobody serves: the standby goes on with a handoff that is not the last one", "epoch", s.doc.Epoch)
		s.received, s.past = time.Now(), false
	}
	term, err := s.claim(ctx)
	if err != nil {
		var other *lease.HeldError
		if held = errors.As(err, &other); held {
			s.overtaken(other)
			s.block(BlockedBy(other))
		} else if reason := BlockUnavailable(err); ctx.Err() == nil && reason != s.blocked {
			s.o.Logger.Error("standby cannot take over", "why", reason)
			s.block(reason)
		}
		return false, held, ctx.Err()
	}
	k := lease.Keep(s.lease, term, s.o.Renew, s.o.Fails)
	if reason := s.prepare(ctx, k); reason != "" {
		s.giveBack(k, reason)
		return false, false, ctx.Err()
	}
	s.block("")
	s.o.Logger.Info("standby takes over", "epoch", term.Epoch, "after", time.Since(s.sign).String())
	s.local.Open(k)
	return true, false, nil
}

// stale shows, and tells once, that there is no handoff to go on with.
func (s *Standby) stale() {
	if s.blocked != BlockNoFresh {
		s.o.Logger.Error("standby cannot take over: "+BlockNoFresh+"; serve --resume starts a router from a state file", "follows", s.o.Primary, "seen", s.doc != nil)
	}
	s.block(BlockNoFresh)
}

// unwanted reports whether nobody is seen to have had the lease for a while.
func (s *Standby) unwanted(ctx context.Context) bool {
	d, err := s.look(ctx)
	now := time.Now()
	switch {
	case err != nil || d.Stored() && !d.Expired(now):
		s.free = time.Time{}
	case s.free.IsZero():
		s.free = now
	}
	return !s.free.IsZero() && now.Sub(s.free) >= Unwanted*s.o.Renew
}

// overtaken tells once of a router that serves after the one which this standby follows.
func (s *Standby) overtaken(by *lease.HeldError) {
	if s.doc == nil || by.Damaged != nil || by.Holder == s.doc.Holder || by.Holder == s.told {
		return
	}
	s.told = by.Holder
	s.o.Logger.Warn("another router serves now, which this standby does not follow: start it again as the standby of that one", "holder", by.Holder, "epoch", by.Epoch, "follows", s.o.Primary)
}

func (s *Standby) fresh() bool { return s.doc != nil && time.Since(s.received) <= s.o.MaxAge }

// claim has one interval, so that a store that hangs does not stop the probes.
func (s *Standby) claim(ctx context.Context) (lease.Term, error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.o.Interval, time.Second))
	defer cancel()
	return s.lease.Claim(ctx)
}

// prepare brings the local router to where it may open, or says why not.
func (s *Standby) prepare(ctx context.Context, k *lease.Keeper) string {
	epoch := k.Term().Epoch
	after := s.follows
	s.follows = epoch // the next claim after giving this one back
	if epoch != after+1 {
		s.past = true // another router came in between and knows more
		return BlockEpoch(s.doc.Epoch, epoch)
	}
	if !s.fresh() {
		return BlockNoDoc
	}
	if err := whileHeld(ctx, k, func(ctx context.Context) error { return s.local.Apply(ctx, *s.doc) }); err != nil {
		if !k.Valid() {
			return BlockApplying
		}
		if ctx.Err() == nil {
			s.doc = nil // it would be refused again
		}
		return err.Error()
	}
	if !k.Valid() {
		return BlockApplying
	}
	err := whileHeld(ctx, k, s.local.Verify)
	switch {
	case !k.Valid():
		return BlockVerify
	case ctx.Err() != nil:
		return BlockBroken
	case err != nil:
		return err.Error()
	}
	return ""
}

// whileHeld runs f with a context that ends with the lease.
func whileHeld(ctx context.Context, k *lease.Keeper, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-k.Lost():
			cancel()
		case <-ctx.Done():
		}
	})
	err := f(ctx)
	cancel()
	wg.Wait()
	return err
}

// giveBack ends a takeover that failed after its claim.
func (s *Standby) giveBack(k *lease.Keeper, reason string) {
	s.block(reason)
	s.pause = min(max(2*s.pause, s.o.Interval), longestPause)
	s.resume = time.Now().Add(s.pause)
	s.o.Logger.Error("takeover failed", "epoch", k.Term().Epoch, "why", reason)
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if err := k.Release(ctx); err != nil {
		s.o.Logger.Warn("release lease", "error", err.Error())
	}
}
