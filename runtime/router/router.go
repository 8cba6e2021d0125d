package router

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/prefix"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Router serves one fleet. Start it once, Stop it once.
type Router struct {
	set        settings
	own        *owner
	dialect    engine.Dialect
	hasher     prefix.Hasher // of prompts
	metrics    *metrics
	server     *http.Server
	listener   *clients
	bodies     *bodies
	answers    *answers
	life       context.Context // requests and probes end with it
	end        context.CancelFunc
	background sync.WaitGroup
	stopOwner  chan struct{}
	watching   context.Context // probes and the standby's loop end with it
	watch      context.CancelFunc
	stopped    sync.Once
	access     access
	running    bool                     // the owner's goroutine runs
	recovering atomic.Bool              // ejected engines of a contracted fleet are being validated
	followers  *followers               // standbys that poll this router
	stateMu    sync.Mutex               // one writer of the state file at a time, from its snapshot on
	stateFails atomic.Bool              // the state file could not be written the last time
	releasing  atomic.Bool              // reads of the peers of stopped engines are under way
	follows    atomic.Pointer[followed] // what a standby passes on; nil = nothing
	heldBy     *lease.HeldError         // who had the lease at the start
	served     chan struct{}            // closed when the listener ended
}

// New checks the configuration and builds a router that does nothing yet.
func New(c Config) (*Router, error) {
	if err := Check(c); err != nil {
		return nil, err
	}
	r := &Router{set: derive(c), stopOwner: make(chan struct{}), served: make(chan struct{}), followers: newFollowers()}
	r.dialect, r.hasher = r.set.dialect, prefix.NewHasher()
	if _, ok := r.dialect.(engine.Switcher); ok {
		r.set.switcher = func(n *node, m control.Move) { r.background.Go(func() { r.switchRole(n, m) }) }
	}
	r.set.checkPace = func(n *node) { r.background.Go(func() { r.checkPace(n) }) }
	r.set.checkProgress = func(n *node) { r.background.Go(func() { r.checkProgress(n) }) }
	var nodes []*node
	for _, e := range c.Fleet.Engines {
		row, _ := c.Profiles.Row(e.IID)
		n, err := newNode(e, row, &r.set)
		if err != nil {
			return nil, fmt.Errorf("make router: engine %s: %w", e.IID, err)
		}
		nodes = append(nodes, n)
	}
	start := time.Now()
	r.own = newOwner(&r.set, nodes, start, runID(start))
	if err := r.newAccess(); err != nil {
		return nil, fmt.Errorf("make router: %w", err)
	}
	r.bodies, r.answers = newBodies(r.set.bodyMemory()), newAnswers(r.set.answerMemory())
	r.metrics = newMetrics(r)
	r.life, r.end = context.WithCancel(context.Background())
	r.server = &http.Server{Handler: r.routes(), ReadHeaderTimeout: r.set.HTTP.HeaderTimeout, IdleTimeout: r.set.HTTP.IdleTimeout,
		MaxHeaderBytes: r.set.HTTP.MaxHeaderBytes, DisableGeneralOptionsHandler: true,
		ErrorLog: log.New(discard{}, "", 0)}
	return r, nil
}

// discard drops the server's own lines: they hold client addresses and broken requests.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func runID(t time.Time) string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%d-%s", t.Unix(), hex.EncodeToString(b[:]))
}

// Run is the id that every journal row of this router carries.
func (r *Router) Run() string { return r.own.run }

// Start opens the journal (*journal.ErrHeld while another router writes it) and the
// listener, asks every engine who it is, and serves.
// An engine that cannot be reached starts ejected and is asked again; one whose profile is
// of another generation fails the start. ctx limits the start only.
func (r *Router) Start(ctx context.Context) error {
	l, err := r.open()
	if err != nil {
		return fmt.Errorf("start router: %w", err)
	}
	r.listener = newClients(l, r.set.HTTP.MaxClients, r.set.Logger)
	r.server.ConnState, r.server.ConnContext = headState(r.listener.state), spareContext
	r.running = true
	r.watching, r.watch = context.WithCancel(r.life) // before the first request
	go r.own.loop(r.stopOwner)
	go func() {
		defer close(r.served)
		if err := r.server.Serve(heads{r.listener, r.set.HTTP.HeaderTimeout}); err != nil && !errors.Is(err, http.ErrServerClosed) {
			r.set.Logger.Error("listener ended", "error", err.Error())
		}
	}()
	if err := r.enter(ctx); err != nil {
		r.end()
		_ = r.server.Close()
		return errors.Join(fmt.Errorf("start router: %w", err), r.halt(ctx))
	}
	r.background.Go(func() { r.monitor(r.watching) })
	r.watchTenants(r.watching)
	for _, name := range Unused(r.set.Fleet) {
		r.set.Logger.Warn("setting is not acted on", "setting", name)
	}
	if r.set.Continue && r.dialect.Concurrent() {
		r.set.Logger.Warn("streams are not continued: this dialect's legs run at once", "dialect", r.dialect.Name())
	}
	says := "router serves"
	if why, _ := r.Idle(); why != "" {
		says = "router is up and does not serve: " + why
	}
	r.set.Logger.Info(says, "address", r.Addr(), "engines", len(r.own.nodes), "run", r.own.run)
	return nil
}

// open takes the journal, then the address. The journal's hold comes first, so that a second
// router of a fleet learns of the first one, and nothing is written before both are had.
func (r *Router) open() (net.Listener, error) {
	if r.set.JournalPath == "" {
		return net.Listen("tcp", r.set.Listen)
	}
	hold, err := journal.Take(r.set.JournalPath)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", r.set.Listen)
	if err != nil {
		hold.Release()
		return nil, err
	}
	r.own.journal, err = hold.Start(r.own.run, journal.Meta{Package: "narwhal", Release: r.set.Release, TokenAccounting: journal.AccountUsage,
		Admission: journal.Admission{Mode: r.mode(), Margin: r.set.Fleet.Serving.AdmissionMargin}, Params: r.set.params, Curves: r.curves()}, r.journalOptions())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// curves are what the engines were measured to do. An activation changes them: see profile_activated.
func (r *Router) curves() map[string]profile.Curve {
	out := make(map[string]profile.Curve, len(r.own.nodes))
	for _, n := range r.own.nodes {
		out[n.id] = n.curve
	}
	return out
}

func (r *Router) mode() string {
	if r.set.params.Open {
		return "open"
	}
	return "predictive"
}

// meet examines all engines at once. With a patience above zero, at a takeover, those that keep silent
// for longer start ejected once others can serve, and come back when they answer; so do those that
// may not serve: a start refuses them, a takeover leaves nobody to serve.
func (r *Router) meet(ctx context.Context, patience time.Duration) error {
	errs := make([]error, len(r.own.nodes))
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	well := make(chan model.Role, len(r.own.nodes))
	if patience > 0 {
		go hurry(asked, cancel, well, patience)
	}
	var wg sync.WaitGroup
	for i, n := range r.own.nodes {
		wg.Go(func() {
			f, err := r.set.examine(asked, n)
			cause := causeConnection
			if answered := new(engine.StatusError); errors.As(err, &answered) {
				cause = causeHealth
			}
			if err != nil && asked.Err() != nil && ctx.Err() == nil {
				r.background.Go(func() { r.reconsider(r.life, n) })
				err = silence(err, patience)
			}
			if errors.Is(err, ErrGeneration) {
				cause, errs[i] = causeGeneration, fmt.Errorf("engine %s: %w", n.id, err)
			}
			r.own.do(func() {
				if err != nil && ctx.Err() != nil {
					return // the start ends: an engine that was still being asked is not to blame
				}
				if err != nil {
					r.own.turnAway(n, cause, err)
					return
				}
				n.facts, n.known = f, true
				if errs[i] = r.own.adopt(n); errs[i] != nil && patience > 0 {
					r.own.turnAway(n, causeIdentity, errs[i])
					return
				}
				r.own.expect(n)
				well <- n.role
			})
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return errors.Join(append(errs, ctx.Err())...) // some were not examined
	}
	err := errors.Join(errs...)
	r.own.do(func() {
		if patience > 0 {
			r.own.ejectDissent()
			if slices.ContainsFunc(r.own.nodes, (*node).met) {
				err = nil
			}
		}
		for _, n := range r.own.nodes {
			if err == nil && n.met() {
				err = r.own.agrees(n, n.facts)
			}
		}
		if err == nil {
			r.own.validated = true
		}
		r.own.publish()
	})
	return err
}

// met reports whether an engine is known, and not ejected.
func (n *node) met() bool { return n.known && n.ejected == "" }

// turnAway ejects an engine that an examination keeps from serving.
func (o *owner) turnAway(n *node, cause string, err error) {
	o.set.Logger.Warn("engine is not available", "engine", n.id, "error", err.Error())
	o.eject(n, cause)
}

// ejectDissent ejects the engines that differ from most others in what must agree.
func (o *owner) ejectDissent() {
	var best *node
	most := -1
	for _, n := range o.nodes {
		alike := 0
		for _, m := range o.nodes {
			if m.met() && differ(n.id, n.facts, m.id, m.facts) == nil {
				alike++
			}
		}
		if n.met() && alike > most {
			best, most = n, alike
		}
	}
	for _, n := range o.nodes {
		if n == best || !n.met() {
			continue
		}
		if err := differ(n.id, n.facts, best.id, best.facts); err != nil {
			o.turnAway(n, causeIdentity, err)
		}
	}
}

// silence says who had not answered when the patience ended: the engine, or only who vouches for it.
func silence(err error, patience time.Duration) error {
	if errors.Is(err, ErrUnvouched) {
		return fmt.Errorf("its sidecar did not answer within %s; the engine did", patience)
	}
	return fmt.Errorf("it did not answer within %s", patience)
}

// hurry ends the wait for engines when the patience is over and one of each role is well; half as long
// again, and any one will do, which serves alone.
func hurry(ctx context.Context, cancel context.CancelFunc, well <-chan model.Role, patience time.Duration) {
	over, enough := time.After(patience), time.After(patience*3/2)
	for seen, least := map[model.Role]bool{}, 2; len(seen) < least || over != nil; {
		select {
		case role := <-well:
			seen[role] = true
		case <-over:
			over = nil
		case <-enough:
			least = 1
		case <-ctx.Done():
			return
		}
	}
	cancel()
}

// Addr is the address that is served, valid after Start.
func (r *Router) Addr() string {
	if r.listener == nil {
		return ""
	}
	return r.listener.Addr().String()
}

// Down is closed when the listener no longer accepts, after Stop or by its own failure.
func (r *Router) Down() <-chan struct{} { return r.served }

// stopExtra is what Stop may take beside the graceful limit: terminal events and the journal.
const stopExtra = 8 * time.Second

// Stop ends orderly: nothing new is admitted, open requests get the graceful limit or what
// ctx leaves, streams still open then end with a terminal event, the journal is closed.
// It is an error if the journal could not be written.
func (r *Router) Stop(ctx context.Context) error {
	var err error
	r.stopped.Do(func() { err = r.stop(ctx) })
	return err
}

func (r *Router) stop(ctx context.Context) error {
	running := 0
	r.own.do(func() {
		r.own.stopping = true
		running = r.own.n.inflight
		r.own.publish()
	})
	r.set.Logger.Info("router stops", "running", running, "grace_s", r.set.grace.Seconds())
	if r.watch != nil {
		r.watch()
	}
	r.handOver(ctx)
	r.lameDuck(ctx)
	grace, cancel := context.WithTimeout(ctx, r.set.grace)
	err := r.server.Shutdown(grace)
	cancel()
	if err != nil {
		r.own.do(func() { running = r.own.n.inflight })
		if running > 0 {
			r.set.Logger.Warn("router ends requests that did not finish in time", "requests", running)
		}
	}
	r.end()
	if err != nil {
		// The requests' contexts have ended: they write their last event and return.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		if err = r.server.Shutdown(last); err != nil {
			err = r.server.Close()
		}
		cancel()
	}
	return errors.Join(err, r.halt(ctx))
}

// lameDuck waits while new connections are still accepted and refused politely.
func (r *Router) lameDuck(ctx context.Context) {
	if r.set.HTTP.LameDuck <= 0 {
		return
	}
	t := time.NewTimer(min(r.set.HTTP.LameDuck, r.set.grace))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-r.served:
	}
}

// halt ends what runs beside the server.
func (r *Router) halt(ctx context.Context) error {
	r.background.Wait()
	close(r.stopOwner)
	<-r.own.done
	<-r.served
	for _, n := range r.own.nodes {
		n.data.Close()
		n.control.Close()
	}
	if r.own.journal == nil {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := r.own.journal.Close(last); err != nil {
		return fmt.Errorf("stop router: %w", err)
	}
	return nil
}
