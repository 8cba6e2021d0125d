package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// HA is how several routers share a fleet. The zero value is one router alone.
type HA struct {
	// Lease, if not nil, must be held to admit anything. The caller closes it after Stop.
	Lease lease.Lease
	Renew time.Duration // between renewals; 0 = lease.DefaultRenew
	// Standby.Primary, if not "", makes this router wait for that one to go. It needs Lease.
	Standby standby.Options
	// StatePath keeps the handoff document of this router, written every interval; "" keeps
	// none. Resume restores it at the start.
	StatePath string
	Resume    bool
	// GuardEnds, if not nil, tells how often the guard of the lease has ended.
	GuardEnds func() int
}

func (h HA) waits() bool { return h.Standby.Primary != "" }

func (h HA) check() error {
	switch {
	case h.waits() && h.Lease == nil:
		return errors.New("check router: a standby needs a lease")
	case h.Resume && h.StatePath == "":
		return errors.New("check router: resuming needs a state file")
	}
	return nil
}

// releaseLimit bounds giving a lease back.
const releaseLimit = 2 * time.Second

var errDegraded = errors.New("monitoring is degraded")

// enter brings the router to where it may admit: at once without a lease, after a claim with
// one, later as a standby. A lease that another router holds fences this one until nobody has
// taken the lease for a while, see reclaim.
func (r *Router) enter(ctx context.Context) error {
	h := r.set.HA
	if h.Resume {
		if err := r.resume(); err != nil {
			return err
		}
	}
	switch {
	case h.waits():
		return r.follow()
	case h.Lease == nil:
		return r.meet(ctx, 0)
	}
	term, err := h.Lease.Claim(ctx)
	if err != nil {
		var held *lease.HeldError
		if !errors.As(err, &held) {
			return err // a lease that cannot be read or written fences everybody for good
		}
		why := standby.BlockedBy(held)
		r.set.Logger.Error("router is fenced", "reason", why, "error", err.Error())
		r.heldBy = held
		r.Block(why)
		r.background.Go(func() { r.reclaim(time.Until(held.ExpiresAt)) })
		return nil
	}
	k := r.keep(term)
	if err := r.meet(ctx, 0); err != nil {
		return errors.Join(err, k.Release(ctx))
	}
	r.Open(k)
	return nil
}

// keep renews a term and tells of renewals that fail.
func (r *Router) keep(t lease.Term) *lease.Keeper {
	return lease.Keep(r.set.HA.Lease, t, r.set.renew(), r.renewalFails)
}

func (r *Router) renewalFails(err error) {
	r.set.Logger.Warn("lease cannot be renewed: it is tried again until the claim ends", "error", err.Error())
}

func (s *settings) renew() time.Duration {
	if s.HA.Renew <= 0 {
		return lease.DefaultRenew
	}
	return s.HA.Renew
}

// Idle says why the router does not admit now, "" when it does, and who held the lease when
// this router asked for it at its start, nil = nobody else.
func (r *Router) Idle() (why string, held *lease.HeldError) {
	return r.own.view.Load().reason(), r.heldBy
}

// Reclaims is when a router that held fences asks for the lease again, should nobody have it.
func (r *Router) Reclaims(held *lease.HeldError) time.Time {
	return held.ExpiresAt.Add(standby.Unwanted * r.set.renew())
}

// follow starts the standby's loop.
func (r *Router) follow() error {
	o := r.set.HA.Standby
	o.Logger, o.Renew, o.Fails = r.set.Logger, r.set.renew(), r.renewalFails
	s, err := standby.New(o, r.set.HA.Lease, r)
	if err != nil {
		return err
	}
	r.own.do(func() {
		r.own.waits = true
		r.own.publish()
	})
	r.background.Go(func() {
		if err := s.Run(r.watching); err != nil && r.watching.Err() == nil {
			r.set.Logger.Error("standby has ended", "error", err.Error())
		}
	})
	return nil
}

// Block shows why the router does not admit; "" = nothing of the lease stands in its way.
func (r *Router) Block(reason string) {
	r.own.do(func() {
		r.own.fenced = reason
		r.own.publish()
	})
}

// Open begins to admit under a lease and watches it from then on.
func (r *Router) Open(k *lease.Keeper) {
	r.own.do(func() {
		r.own.keeper, r.own.waits, r.own.fenced = k, false, ""
		r.own.publish()
	})
	r.follows.Store(nil)
	r.set.Logger.Info("router holds the lease", "epoch", k.Term().Epoch, "holder", k.Term().Holder)
	r.background.Go(func() {
		select {
		case <-k.Lost():
		case <-k.Done():
			return
		}
		r.set.Logger.Error("lease is lost", "error", k.Err().Error())
		r.own.do(func() {
			r.own.waits, r.own.fenced = true, standby.BlockRenewal
			r.own.publish()
		})
		// Nothing is admitted any more: what is left of the lease is a standby's.
		ctx, cancel := context.WithTimeout(r.life, releaseLimit)
		_ = k.Release(ctx)
		cancel()
		r.reclaim(0)
	})
}

// reclaim waits for a lease that nobody wants, from the end of the present claim on, and serves
// under it. What the last holder held out of placement this router cannot know; without it
// nobody would serve at all.
func (r *Router) reclaim(held time.Duration) {
	wait := max(0, held) + standby.Unwanted*r.set.renew()
	for r.watchLease(wait) {
		wait = standby.Unwanted * r.set.renew()
		degraded := false
		r.own.do(func() { degraded = r.own.degraded != "" })
		if degraded {
			continue
		}
		term, err := r.set.HA.Lease.Claim(r.watching)
		if err != nil {
			wait = r.unclaimed(err, wait)
			continue
		}
		k := r.keep(term)
		if err := r.meet(r.watching, 0); err != nil {
			r.set.Logger.Error("lease is given back", "error", errors.Join(err, r.giveBackLease(k)).Error())
			continue
		}
		if r.watching.Err() != nil {
			_ = r.giveBackLease(k)
			return
		}
		r.set.Logger.Warn("lease that nobody took is claimed again", "epoch", term.Epoch)
		r.Open(k)
		return
	}
}

// watchLease looks at the lease for a while, once a renewal, so that this router's own claim comes
// after every epoch that was given meanwhile although the lease is lost. False when the router ends.
func (r *Router) watchLease(while time.Duration) bool {
	every := r.set.renew()
	for ; while > every; while -= every {
		if !pause.For(r.watching, every) {
			return false
		}
		ctx, cancel := context.WithTimeout(r.watching, every)
		_, _ = r.set.HA.Lease.Look(ctx) // the claim tells what is wrong
		cancel()
	}
	return pause.For(r.watching, while)
}

// unclaimed shows why a fenced router could not claim, and returns when it tries again: after
// a holder's time and the usual pause, at the pace of renewals where no document names one.
func (r *Router) unclaimed(err error, next time.Duration) time.Duration {
	why := standby.BlockUnavailable(err)
	var by *lease.HeldError
	if errors.As(err, &by) {
		why, next = standby.BlockedBy(by), max(0, time.Until(by.ExpiresAt))+next
		if d, err := r.set.HA.Lease.Look(r.watching); err == nil && !d.Stored() {
			next = r.set.renew()
		}
	}
	var before string
	r.own.do(func() { before = r.own.fenced })
	if why != before && r.watching.Err() == nil {
		r.set.Logger.Error("router is fenced", "reason", why)
		r.Block(why)
	}
	return next
}

func (r *Router) giveBackLease(k *lease.Keeper) error {
	ctx, cancel := context.WithTimeout(r.life, releaseLimit)
	defer cancel()
	return k.Release(ctx)
}

// takeoverPatience is for how long a takeover waits for engines that do not answer.
const takeoverPatience = 500 * time.Millisecond

// Verify asks every engine who it is, as at a start, and waits for none that others can stand in
// for. Engines that restart together only are all waited for: one that is out holds the fleet.
func (r *Router) Verify(ctx context.Context) error {
	if r.set.wholeWave() {
		return r.meet(ctx, 0)
	}
	return r.meet(ctx, takeoverPatience)
}

// handOver gives the lease back as soon as nothing is admitted any more, so that a standby
// serves while this router finishes its streams.
func (r *Router) handOver(ctx context.Context) {
	var k *lease.Keeper
	r.own.do(func() { k = r.own.keeper })
	if k == nil {
		return
	}
	r.saveState()
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	if err := k.Release(ctx); err != nil && !errors.Is(err, lease.ErrLost) {
		r.set.Logger.Warn("release lease", "error", err.Error())
	}
}

// controls reports whether this router may decide over the fleet.
func (p *published) controls() bool {
	return !p.waits && p.fenced == "" && (p.keeper == nil || p.keeper.Valid())
}

func (p *published) term() (epoch int64, holder string) {
	if p.keeper == nil {
		return p.epoch, p.holder
	}
	t := p.keeper.Term()
	return t.Epoch, t.Holder
}

// degrade counts a monitoring pass; failed names the first stage that broke, "" for none.
func (o *owner) degrade(failed string) {
	o.failedStage(failed)
	if failed == "" {
		o.badPasses = 0
		if o.degraded != "" {
			o.degraded = ""
			o.publish()
			o.event("monitoring_recovered", o.now(), map[string]any{})
		}
		return
	}
	o.badPasses++
	o.n.stageFailures[failed]++
	o.event("monitoring_stage_failure", o.now(), map[string]any{"stage": failed, "class": "panic", "consecutive": o.badPasses})
	if o.badPasses < max(1, o.set.Fleet.Controller.MonitorFailureLimit) || o.degraded != "" {
		return
	}
	o.degraded = failed + " panic"
	if o.keeper != nil {
		o.keeper.Stop(errDegraded) // a standby must be able to claim
	}
	o.publish()
	o.event("monitoring_degraded", o.now(), map[string]any{"stage": failed, "class": "panic", "core_consecutive": o.badPasses})
}

// stage runs one part of a monitoring pass. A panic in it is counted instead of ending the
// process: requests go on.
func (o *owner) stage(name string, failed *string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			o.set.Logger.Error("monitoring stage failed", "stage", name, "error", fmt.Sprint(p))
			if *failed == "" {
				*failed = name
			}
		}
	}()
	f()
}
