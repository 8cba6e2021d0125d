package router

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/drift"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// owner holds the inventory and every counter. Only its goroutine touches them: others
// hand it a function with do. view is the immutable summary for everyone else.
type owner struct {
	set     *settings
	journal *journal.Writer // nil without a journal
	start   time.Time
	run     string
	ops     chan op
	done    chan struct{} // closed when the goroutine ended
	view    atomic.Pointer[published]

	nodes      []*node
	views      []model.EngineView // of the last snapshot
	scratch    sched.Scratch
	cold       sched.Scratch // of decisions that are only told
	notes      replay.Notes  // of what a decision asks, for the journal
	cached     []int         // of the last request, by engine
	ctl        control.State
	n          counters
	flips      []*flip
	refusedBy  []refusedFlip
	last       *control.Decision
	decisions  map[string]int
	moves      map[string]int
	edges      map[edge]*strain // those that failed lately, or are barred
	budget     budget
	drifts     drift.State
	passAt     float64 // of the last look at drift
	handoff    float64 // smoothed transfer delay, seconds
	wave       string  // id of a fleet-wide hold; "" = none
	required   string  // why the whole fleet must restart together; "" = it need not
	recovery   string  // id of the validation of a fleet of which nothing serves; "" = none
	stopping   bool
	validated  bool
	waits      bool   // as a standby, or after a lost lease
	fenced     string // failover block; "" = none
	keeper     *lease.Keeper
	tenants    *tenant.Limiter
	queue      queue
	degraded   string // stage and class that keep breaking; "" = none
	badPasses  int
	aggregated bool // engines without a role serve whole requests only
	lifeEvents []json.RawMessage
}

type op struct {
	f    func()
	done chan struct{}
}

// published is what the request path and the probes read without asking the owner.
type published struct {
	live       int
	engines    int
	lacks      string // which leg no live engine may take
	blocked    string // lifecycle hold
	stopping   bool
	valid      bool
	waits      bool
	fenced     string
	degraded   string
	aggregated bool
	keeper     *lease.Keeper // nil without a lease
	epoch      int64         // as configured, without a keeper
	holder     string
}

type flip struct {
	At      float64  `json:"at"`
	IID     string   `json:"iid"`
	To      string   `json:"to"`
	By      string   `json:"by"`
	Prefill int      `json:"prefill_inflight"`
	Decode  int      `json:"decode_inflight"`
	Drained *float64 `json:"drained_s"`
}

type refusedFlip struct {
	At  float64 `json:"at"`
	To  string  `json:"to"`
	Why string  `json:"why"`
}

func newOwner(set *settings, nodes []*node, start time.Time, run string) *owner {
	o := &owner{set: set, start: start, run: run, nodes: nodes, ops: make(chan op), done: make(chan struct{}),
		edges: map[edge]*strain{}, decisions: map[string]int{}, moves: map[string]int{}, n: newCounters(),
		budget: newBudget(set.Fleet.Serving.RetryBudget, set.Fleet.Serving.RetryReplenish), drifts: drift.New(set.drift())}
	o.ctl = control.New(set.control, 0)
	o.publish()
	return o
}

// now is the router clock: seconds since it was made, monotonic.
func (o *owner) now() float64 { return time.Since(o.start).Seconds() }

func (o *owner) unix(at float64) float64 {
	return float64(o.start.UnixMicro())/1e6 + at
}

// loop runs until stop is closed.
func (o *owner) loop(stop <-chan struct{}) {
	defer close(o.done)
	for {
		select {
		case x := <-o.ops:
			x.f()
			close(x.done)
		case <-stop:
			return
		}
	}
}

// do runs f in the owner's goroutine and waits for it; false after the owner ended.
func (o *owner) do(f func()) bool {
	x := op{f, make(chan struct{})}
	select {
	case o.ops <- x:
		<-x.done
		return true
	case <-o.done:
		return false
	}
}

// beatLimit is how long a probe waits for the owner, whose steps take microseconds.
const beatLimit = time.Second

// ask is do with a limit, for probes: false when the owner did not come to f, or did not
// end it, in time. f may then still run, so nothing that it writes may be read.
func (o *owner) ask(limit time.Duration, f func()) bool {
	x := op{f, make(chan struct{})}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case o.ops <- x:
	case <-o.done:
		return false
	case <-late.C:
		return false
	}
	select {
	case <-x.done:
		return true
	case <-late.C:
		return false
	}
}

// stuck reports whether the owner lives and does not answer.
func (o *owner) stuck() bool {
	if o.ask(beatLimit, func() {}) {
		return false
	}
	select {
	case <-o.done:
		return false
	default:
		return true
	}
}

func (o *owner) publish() {
	p := &published{engines: len(o.nodes), stopping: o.stopping, valid: o.validated, waits: o.waits, fenced: o.fenced, degraded: o.degraded, aggregated: o.aggregated,
		keeper: o.keeper, epoch: o.set.Epoch, holder: o.set.Holder}
	var prefill, decode bool
	for _, n := range o.nodes {
		if !n.live() {
			continue
		}
		p.live++
		prefill, decode = prefill || o.may(n, model.Prefill), decode || o.may(n, model.Decode)
	}
	switch {
	case !prefill:
		p.lacks = "no available engine may prefill"
	case !decode:
		p.lacks = "no available engine may decode"
	}
	switch {
	case o.wave != "":
		p.blocked = "whole-wave drain " + o.wave
	case o.recovery != "":
		p.blocked = "whole-wave recovery " + o.recovery
	case o.required != "":
		p.blocked = "whole-wave restart required: " + o.required
	}
	o.view.Store(p)
}

// reason says why the router is not ready; "" = it is.
func (p *published) reason() string { return cmp.Or(p.refuses(), p.lacks) }

// refuses says why the router takes no request at all; "" = it does. Where an engine lacks for one
// of the legs, requests that are not split are still served.
func (p *published) refuses() string {
	switch {
	case p.stopping:
		return "shutting down"
	case p.fenced != "":
		return p.fenced
	case p.blocked != "":
		return p.blocked
	case p.degraded != "":
		return "monitoring degraded: " + p.degraded
	case p.waits:
		return "shadowing"
	case p.keeper != nil && !p.keeper.Valid():
		return "lease expired"
	case !p.valid:
		return "engine identity validation pending"
	case p.live == 0:
		return "no available engines"
	}
	return ""
}

// snapshot is the fleet now. It stands until the owner's next snapshot.
func (o *owner) snapshot(now float64) model.Snapshot {
	o.views = slices.Grow(o.views[:0], len(o.nodes))[:len(o.nodes)]
	for i, n := range o.nodes {
		o.views[i] = n.viewAt(now)
		if n.probation {
			o.views[i].Penalty = o.set.Fleet.Recovery.Health.ProbationPenaltyS
		}
	}
	return model.Snapshot{At: now, Params: o.set.params, Handoff: o.handoff, Engines: o.views, Barred: o.barred()}
}

func (o *owner) node(id string) *node {
	i := slices.IndexFunc(o.nodes, func(n *node) bool { return n.id == id })
	if i < 0 {
		return nil
	}
	return o.nodes[i]
}

// context is the most tokens that some engine of the fleet holds for one request, live or
// not; 0 while an engine has not told its limit.
func (o *owner) context() int {
	most := 0
	for _, n := range o.nodes {
		if !n.known || n.facts.context == 0 {
			return 0
		}
		most = max(most, n.facts.context)
	}
	return most
}

// capacity is the most tokens that the KV cache of an engine has, 0 when one is not known.
func (o *owner) capacity() int {
	most := 0
	for _, n := range o.nodes {
		if n.curve.KVCapacity <= 0 {
			return 0
		}
		most = max(most, n.curve.KVCapacity)
	}
	return most
}

// room is the most tokens that the engine may hold at once, as far as its profile tells; 0 = not told.
func (n *node) room() int { return max(n.curve.KVCapacity, n.curve.TokenLimit()) }

// room is the most tokens that an engine may hold at once, as far as its profile tells; 0 when
// none does.
func (o *owner) room() int {
	most := 0
	for _, n := range o.nodes {
		most = max(most, n.room())
	}
	return most
}

// place decides and, when placed, reserves both engines in the same step.
func (o *owner) place(r model.Request, first bool, now float64) (replay.Decision, *claim) {
	snap := o.snapshot(now)
	if o.journal != nil {
		o.notes.Watch(&snap)
	}
	var d replay.Decision
	if first {
		d.Decision = sched.Admit(&snap, &r, now, &o.scratch)
	} else {
		d.Decision = sched.Place(&snap, &r, now, &o.scratch)
	}
	if o.journal != nil {
		d.Inputs = &replay.Placement{Fleet: o.notes.Fleet(&snap), First: first, Request: r}
		d.Inputs.Request.Cached = slices.Clone(r.Cached)
	}
	if !d.Placed {
		return d, nil
	}
	if d.OverBudget {
		o.n.unserved++
	}
	rested := o.rested(&d.Decision, &snap, r, now, first)
	l := &claim{p: o.node(d.Prefill), d: o.node(d.Decode), own: d.Own, input: r.Input, expected: max(1, r.Expected), sequences: r.Seats(), arrived: r.Arrived, at: now, queue: d.Parts.Queue}
	l.work = l.own / l.p.prefillKappa
	l.cached, l.cachedD, l.told, l.rested = d.Cached, d.CachedDecode, -1, rested
	l.lifeP, l.lifeD = l.p.cacheLife, l.d.cacheLife
	l.meet = l.p.facts.meet
	l.blockSize, l.ttl = l.p.facts.blockSize, o.set.leaseOf(l.p)
	l.p.settle(now, o.memory())
	l.p.prefilling = append(l.p.prefilling, l)
	l.p.prefillFree = max(l.p.prefillFree, now) + l.own
	l.p.prefilled = true
	l.p.local++
	l.d.pending[l] = struct{}{}
	return d, l
}

// prefilled ends the prefill phase of a claim. ok means that the engine did the work, so
// that its time may be compared with the prediction.
func (o *owner) prefilled(l *claim, now float64, ok bool) {
	i := slices.Index(l.p.prefilling, l)
	if i < 0 {
		return
	}
	l.p.settle(now, o.memory())
	l.p.prefilling = slices.Delete(l.p.prefilling, i, i+1)
	l.p.prefilled = true
	if ok {
		l.p.movedAt = now
		o.learnPrefill(l, now)
	}
	left := 0.0
	for _, x := range l.p.prefilling {
		left += x.takes()
	}
	l.p.prefillFree = now + left
	l.p.lastPrefill = now
}

// learnPrefill compares a prefill with its prediction: its own time with the curve, and what
// it took in all with its price. Beside residents only one that followed another at once is compared
// with the curve: else they had some of its time.
func (o *owner) learnPrefill(l *claim, now float64) {
	if len(l.p.decoding) == 0 || l.at <= l.p.lastPrefill {
		r := o.set.Fleet.Controller.Reactive
		l.p.prefillWork = l.p.prefillWork.Add(now-max(l.at, l.p.lastPrefill), l.p.curve.Warm(l.input, l.warm()), o.memory(), l.p.prefillKappa)
		l.p.prefillKappa = l.p.prefillWork.Value(r.DecodeCorrectionMin, r.DecodeCorrectionMax)
		o.presume()
	}
	if l.queue+l.own > 0 {
		l.p.observe((now - l.at) / (l.queue + l.own))
	}
}

// warm is how many tokens of the prompt p did not have to compute: by its own word if it gave one.
func (l *claim) warm() int {
	if l.prompt != nil && l.told >= 0 {
		return l.told
	}
	return l.cached
}

// presume gives engines that have not worked yet the corrections of those that have.
func (o *owner) presume() {
	profile.Presume(len(o.nodes), func(i int) (profile.Ratio, *float64) { return o.nodes[i].prefillWork, &o.nodes[i].prefillKappa })
	profile.Presume(len(o.nodes), func(i int) (profile.Ratio, *float64) { return o.nodes[i].decodeWork, &o.nodes[i].kappa })
}

// memory of the learned corrections, in seconds of work: the weight of an interval is alpha.
func (o *owner) memory() float64 {
	alpha := o.set.Fleet.Controller.Reactive.DecodeCorrectionAlpha
	if alpha <= 0 {
		return math.Inf(1)
	}
	return o.set.interval.Seconds() / alpha
}

// decoding starts the decode phase.
func (o *owner) decoding(l *claim) {
	l.d.settle(o.now(), o.memory())
	delete(l.d.pending, l)
	l.d.decoding[l] = struct{}{}
}

func (o *owner) release(l *claim, now float64) {
	o.prefilled(l, now, false)
	o.unpin(l, now)
	l.d.settle(now, o.memory())
	delete(l.d.pending, l)
	delete(l.d.decoding, l)
}

func (o *owner) event(name string, at float64, fields map[string]any) {
	noted(name, fields)
	if o.journal != nil {
		o.journal.Event(journal.Event{Name: name, At: at, AtUnix: o.unix(at), Fields: fields})
	}
}
