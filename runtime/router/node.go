package router

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/wire"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/prefix"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// claim is one attempt's claim on its two engines. Only the owner changes it, but for
// tokens, which the relay counts.
type claim struct {
	p, d            *node
	own             float64 // predicted prefill, seconds
	queue           float64 // predicted wait before it
	work            float64 // own without the correction that p had then
	at              float64 // when it was placed
	input, expected int
	sequences       int                     // that it decodes at once
	blockSize       int                     // of p, tokens
	ttl             float64                 // lease of p's handoffs, seconds
	tokens          atomic.Int64            // delivered so far, about
	sent            atomic.Bool             // the handoff went to its reader
	pinned          bool                    // p holds KV for d
	meet            engine.Rendezvous       // of p, for dialects whose legs run at once
	prefilledAt     atomic.Pointer[float64] // end of the prefill leg that runs beside the decode leg
	cut             context.CancelCauseFunc // ends the legs
	arrived         float64                 // the request
	firstAt         atomic.Pointer[float64] // its first token from d
	watched         int64                   // tokens at the last look at drift
	quiet           float64                 // seconds without one up to then
	prompt          *promptHead             // what p and d hold of it afterwards; nil = not told
	cached          int                     // tokens of it that p was expected to hold
	given           int                     // tokens of it that p was sent before, as far as is known
	cachedD         int                     // and d
	told            int                     // that p said it held; -1 = it did not say
	rested          *journal.CachePlacement // why it is p; nil = not for what it holds
	lifeP, lifeD    int                     // cacheLife of p and d then
}

// node is one engine. Fields below clients belong to the owner.
type node struct {
	id, url string
	data    *engine.Client // legs and counts
	control *engine.Client // probes: own connections, so that a full data pool hides nothing
	row     profile.Row
	curve   profile.Curve
	pinned  bool

	role      model.Role
	roleSince float64
	ejected   string // cause; "" = not ejected
	draining  bool
	state     string // lifecycle state
	deadline  float64
	requested float64 // when its drain was ordered
	fault     string  // why the lifecycle is blocked
	facts     facts
	known     bool // facts were read
	misses    int  // of liveness sweeps
	streak    map[string]int
	verifying string  // kind of the probe that runs; "" = none
	looking   bool    // at whether it makes progress
	movedAt   float64 // when it was last seen to make progress
	movedMade int64   // made then
	switching bool    // its role, inside the engine
	// keeps are the prefilling engines whose address its process keeps, where legs run at once.
	keeps map[*node]bool
	hold  *hold // nil = none

	countAfter float64 // no count before this moment
	countRest  float64

	prefilling  []*claim
	prefillFree float64
	pending     map[*claim]struct{}
	decoding    map[*claim]struct{}

	tail         profile.Tail // of prefill times
	risk         float64
	gap          float64 // of the last interval that had one
	kappa        float64
	settledAt    float64       // until when decoding is accounted for
	settled      int64         // tokens made by then
	decodeWork   profile.Ratio // decode time
	prefillWork  profile.Ratio // prefill time
	prefillKappa float64       // correction of the prefill curve
	lastPrefill  float64       // end of the last one
	prefilled    bool          // a prefill began or ended here since the last look at drift
	probation    bool          // it drifts: others are preferred
	made         atomic.Int64  // tokens that the relay saw from this engine
	tokens       int64         // made at the start of the interval
	held         int           // KV tokens of handoffs that were not read yet, and of strays
	outstanding  int           // handoffs made and not settled
	strays       []stray
	counters     *engine.State   // of the last scrape; nil = none
	prefixes     prefix.Index    // prompts that its cache is believed to hold
	cacheLife    int             // how often that was forgotten whole
	believed     int             // tokens, of prefills that told what it held
	confirmed    int             // of those
	local        int             // prefills given to it since that scrape, probes apart
	probed       atomic.Int64    // those of probes
	incarnation  string          // engine id of its handoffs; "" = not seen since it was examined
	checking     bool            // its identity is being asked after a foreign handoff
	sources      map[string]bool // producers with whose KV it failed as a suspect; "" = none
	accused      []*failure      // of decode legs that wait for what it says of itself
	unproven     int             // sweeps in a row that could not verify its process
	expected     *float64        // process start as another router has told it; nil = not told
	released     *release        // rounds that let its peers drop their mappings; nil = it serves
	record
	*tether
	drains []*flip // moves whose residents have not left yet
}

func newNode(e fleet.Engine, row profile.Row, set *settings) (*node, error) {
	dial := (&net.Dialer{Timeout: dur(set.Fleet.Engine.ConnectTimeoutS), KeepAlive: 15 * time.Second}).DialContext
	pool := func(n int) *http.Transport {
		return &http.Transport{DialContext: dial, DisableCompression: true, MaxConnsPerHost: n, MaxIdleConnsPerHost: max(1, n/2),
			MaxIdleConns: max(1, n/2), IdleConnTimeout: 4 * time.Second, TLSHandshakeTimeout: dur(set.Fleet.Engine.ConnectTimeoutS)}
	}
	opt := engine.Options{Key: set.key, MaxAnswer: set.Fleet.Serving.MaxResponseBytes, Carry: set.carry(), Transport: pool(max(1, set.limit)),
		Direct: &wire.Options{MaxConns: max(1, set.limit), PoolTimeout: dur(set.Fleet.Engine.PoolTimeoutS), Connect: dur(set.Fleet.Engine.ConnectTimeoutS)}}
	data, err := engine.NewClient(e.URL, opt)
	if err != nil {
		return nil, err
	}
	opt.Transport, opt.Direct = pool(set.probes()), nil
	control, err := engine.NewClient(e.URL, opt)
	if err != nil {
		return nil, err
	}
	n := &node{id: e.IID, url: e.URL, data: data, control: control, row: row, curve: row.Curve(), pinned: e.Pin, role: model.Role(e.Role),
		state: stateActive, tether: newTether(), streak: map[string]int{}, pending: map[*claim]struct{}{}, decoding: map[*claim]struct{}{}, risk: 1, kappa: 1, prefillKappa: 1}
	n.prefixes.SetLimit(prefixLimit(n.curve.KVCapacity, set.Fleet.Engine.CharsPerToken))
	return n, nil
}

func (n *node) live() bool { return n.ejected == "" && !n.draining && n.hold == nil && !n.switching }

// view is an engine's view in the making.
type view struct{ model.EngineView }

func (n *node) viewAt(now float64) model.EngineView {
	v := view{model.EngineView{ID: n.id, Role: n.role, Pinned: n.pinned, Live: n.live(), Curve: n.curve, Risk: n.risk,
		PrefillFree: n.prefillFree, Held: n.held, PrefillRequests: len(n.prefilling),
		Correction: n.kappa, PrefillCorrection: n.prefillKappa, Gap: n.gap, RoleSince: n.roleSince}}
	// Work behind the one that runs now is certain, however late that one is.
	behind := 0.0
	for i, l := range n.prefilling {
		if i > 0 {
			behind += l.takes()
		}
	}
	v.PrefillFree = max(v.PrefillFree, now+behind)
	v.Later = n
	for l := range n.decoding {
		v.add(l.resident(0))
	}
	for l := range n.pending {
		r := l.resident(l.due())
		v.add(r)
		v.ComingRequests, v.ComingTokens = v.ComingRequests+r.Seats(), v.ComingTokens+r.Tokens
	}
	return v.EngineView
}

// Occupied implements model.Later. It runs in the owner's goroutine.
func (n *node) Occupied(now, at, interval float64) (requests, tokens int) {
	add := func(r model.Resident) {
		k, held := r.Takes(now, at, interval)
		requests, tokens = requests+k, tokens+held
	}
	for l := range n.decoding {
		add(l.resident(0))
	}
	for l := range n.pending {
		add(l.resident(l.due()))
	}
	return requests, tokens
}

// resident is a claim as the scheduler sees it.
func (l *claim) resident(ready float64) model.Resident {
	made := int(l.tokens.Load())
	r := model.Resident{Ready: ready, Tokens: l.input + made, Remaining: max(1, l.expected-made)}
	if l.sequences > 1 {
		r.Sequences = l.sequences
	}
	return r
}

// takes is its prefill by what is known of p now: the correction may have been learned since it was
// placed.
func (l *claim) takes() float64 { return float64(l.work * l.p.prefillKappa) }

// due is when its prefill is expected to end.
func (l *claim) due() float64 { return model.PrefillEnd(l.at, l.queue, l.own, l.takes()) }

// seats are those that the claim takes of a batch.
func (l *claim) seats() int { return max(1, l.sequences) }

// decodes is how many sequences of claims are decoded at once.
func decodes(claims map[*claim]struct{}) (n int) {
	for l := range claims {
		n += l.seats()
	}
	return n
}

// add counts a resident in.
func (v *view) add(r model.Resident) {
	v.DecodeRequests += r.Seats()
	v.DecodeTokens += r.Tokens
	v.DecodeRemaining += r.Remaining
}

// observe notes one prefill's observed time over its prediction; risk is the 80th
// percentile of the last 64, at most doubling a price.
func (n *node) observe(ratio float64) {
	n.tail.Add(ratio)
	n.risk = n.tail.Risk()
}

// settle accounts for the decoding until now, before what is resident changes: the tokens that
// were made, at the pace of the curve, against the time that they took. The time in which the
// engine prefills says nothing of decoding.
func (n *node) settle(now, memory float64) {
	dt, total := now-n.settledAt, n.made.Load()
	made := total - n.settled
	n.settledAt, n.settled = now, total
	if dt <= 0 || len(n.decoding) == 0 || len(n.prefilling) > 0 {
		return
	}
	requests, tokens, without, prompts := 0, 0, 0, 0
	for l := range n.decoding {
		if k := int(l.tokens.Load()); k > 0 {
			requests, tokens = requests+l.seats(), tokens+l.input+k
		} else {
			without, prompts = without+l.seats(), prompts+l.input
		}
	}
	n.decodeWork = n.decodeWork.Add(dt, n.curve.Decoding(int(made), requests, tokens, without, prompts), memory, n.kappa)
}

// rollGap closes a monitoring interval of dt seconds: the mean token gap of its residents and
// the correction of the decode curve.
func (n *node) rollGap(now, dt, memory, low, high float64, minSamples int) {
	n.settle(now, memory)
	total := n.made.Load()
	made := total - n.tokens
	n.tokens = total
	if len(n.decoding) == 0 || made <= 0 || dt <= 0 {
		return
	}
	n.gap = dt * float64(decodes(n.decoding)) / float64(made)
	if made >= int64(minSamples) {
		n.kappa = n.decodeWork.Value(low, high)
	}
}

// Slack implements model.Later. It runs in the owner's goroutine.
func (n *node) Slack(now float64, p *model.Params) float64 {
	seats, kv := 0, 0
	for l := range n.decoding {
		seats, kv = seats+l.seats(), kv+l.input+int(l.tokens.Load())
	}
	for l := range n.pending {
		seats, kv = seats+l.seats(), kv+l.input
	}
	s := model.NewSlack(max(now, n.prefillFree), n.kappa*n.curve.Interval(seats, kv), p)
	for l := range n.decoding {
		if first := l.firstAt.Load(); first != nil {
			made, expected := int(l.tokens.Load())/l.seats(), l.expected/l.seats()
			s.Decoding(*first, max(expected, made+1), max(1, expected-made))
		} else {
			s.Waiting(l.arrived, now)
		}
	}
	for l := range n.pending {
		s.Waiting(l.arrived, l.due())
	}
	return s.Seconds()
}
