package router

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// request owns one client request: both legs, its deadline and its journal row.
type request struct {
	r            *Router
	w            http.ResponseWriter
	out          *outlet
	http         *http.Request
	ctx          context.Context // ends with the client, the deadline or the router
	chat         bool
	call         *call
	body         *payload // its bytes; nil before
	prefillHeld  portion  // of the answers of its legs
	decodeHeld   portion
	row          journal.Row
	phase        string
	input        int
	expect       int
	started      bool // output went out
	seated       bool
	tenant       *tenant.Tenant
	seat         *tenant.Seat // within the tenant's limits, of whoever is counted as in the router; the end gives it back
	charged      bool
	claim        *claim                  // of the attempt in progress; end or the next attempt releases it
	cut          context.CancelCauseFunc // ends the legs of the attempt in progress
	untie        func()                  // from the producer's end
	credit       grant                   // a retry that is granted and not sent yet
	sized        bool                    // the controller knows of the arrival
	wanted       int                     // output cap of a sequence, as far as an engine can keep it; 0 = uncapped
	context      int                     // most tokens of a sequence on any engine; 0 = unknown
	longest      int                     // exact length of the prompt, or of the longest of several; 0 = unknown
	answered     bool                    // the decode engine gave a whole answer
	handoffDelay float64                 // prefill's end to the first token elsewhere; 0 = not seen
	badP         []string
	badD         []string
	suspects     []string // producers beside a failed decode: used again before giving up

	prefillEnd, firstToken, lastToken float64 // router clock; 0 = not reached
	usage                             *usage
	cont                              *continuation // nil = this stream cannot be continued
	finish                            string

	chained bool // prompt is made
	prompt  *promptHead
}

// requestID is a random UUID, version 4.
func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// request is built apart from the frames that a stream keeps while it waits: a stack that
// passes 8 KiB is doubled for as long as the stream lives.
//
//go:noinline
func (r *Router) request(w http.ResponseWriter, hr *http.Request, chat bool, now float64) *request {
	return &request{
		r: r, w: w, out: &outlet{ResponseController: http.NewResponseController(w)}, http: hr, chat: chat, phase: phaseAdmission,
		prefillHeld: portion{of: r.answers}, decodeHeld: portion{of: r.answers},
		row: journal.Row{RID: requestID(), Arrived: now, AtUnix: r.own.unix(now), Failures: []journal.Attempt{}, CachedTokens: map[string]int{}, TokenAccounting: journal.AccountUnavailable},
	}
}

func (r *Router) completions(chat bool) http.HandlerFunc {
	return func(w http.ResponseWriter, hr *http.Request) {
		now := r.own.now()
		q := r.request(w, hr, chat, now)
		if id := hr.Header.Get("X-Request-Id"); id != "" {
			q.row.ClientRID = ptr(engine.Printable(id, 256))
		}
		w.Header().Set("X-Request-Id", q.row.RID)
		ctx, cancel := context.WithCancelCause(q.begin(hr))
		stop := context.AfterFunc(r.life, func() { cancel(errShutdown) })
		deadline := time.AfterFunc(r.set.requestTimeout, func() { cancel(errDeadline) })
		q.ctx = ctx
		defer func() {
			stop()
			deadline.Stop()
			q.body.drop()
			q.prefillHeld.drop()
			q.decodeHeld.drop()
			cancel(errFinished)
		}()
		f := q.serve()
		q.end(f)
		if f != nil && f.unsaid && !q.out.committed {
			// A client that only stopped sending would take the server's own 200 for an answer.
			panic(http.ErrAbortHandler)
		}
		_ = q.out.SetWriteDeadline(time.Time{})
	}
}

// serve runs the request and returns how it failed; nil when it was answered whole.
func (q *request) serve() *failure {
	t, unknown := q.r.identify(q.http.Header)
	q.tenant = t
	if f := q.arrive(unknown); f != nil {
		return f
	}
	if f := q.ready(); f != nil {
		return f
	}
	body, f := q.read()
	if f != nil {
		return f
	}
	q.call, f = parseCall(q.chat, body)
	if f != nil {
		return f
	}
	if f := q.call.reservedBy(q.r.dialect.Name()); f != nil {
		return f
	}
	q.row.WantedLen = q.call.wanted
	if f := q.call.served(q.r.set.Fleet.Model); f != nil {
		return f
	}
	if f := q.takeSeat(); f != nil {
		return f
	}
	if f := q.size(); f != nil {
		return f
	}
	if q.r.set.Continue && !q.r.dialect.Concurrent() && q.call.continuable() {
		q.cont = &continuation{}
	}
	defer q.stayAwake()()
	return q.run()
}

// arrive counts the offer, and the request if its tenant may have it here. The end counts it
// out.
func (q *request) arrive(unknown *failure) (f *failure) {
	o := q.r.own
	o.do(func() {
		o.n.offered++
		if o.n.retained >= q.r.set.most() {
			f = overloaded(model.ReasonInflight, journal.Rejected, "router in-flight limit reached", o.n.drain.after(1))
			return
		}
		if f = unknown; f == nil {
			f = q.seatOf(o)
		}
		if f != nil {
			return
		}
		o.n.retained++
		o.n.retainedHigh = max(o.n.retainedHigh, o.n.retained)
	})
	return f
}

// ready refuses while the router may not admit.
func (q *request) ready() *failure {
	p := q.r.own.view.Load()
	reason := p.refuses()
	if reason == "" {
		return nil
	}
	f := coded(503, "standby", "Router is not ready")
	if p.blocked == "" && !p.stopping && p.valid && p.live == 0 {
		f = coded(503, "backend_unavailable", "No engines are available")
	}
	f.terminal, f.reason, f.ready, f.retryAfter = journal.Rejected, model.ReasonNotReady, reason, 1
	return f
}

// read takes the whole body. The request keeps it until its legs cannot be sent again.
func (q *request) read() ([]byte, *failure) {
	b, f := q.r.readBody(q.ctx, q.w, q.http, q.out.ResponseController)
	q.body = b
	if f != nil {
		return nil, f
	}
	return b.bytes, nil
}

// forget lets go of the body and its parts.
func (q *request) forget() {
	q.call.forget()
	q.body.drop()
}

// size counts the prompt, exactly where an engine can.
func (q *request) size() *failure {
	set := q.r.set
	defer q.r.metrics.sizing.since(time.Now())
	q.input = q.call.estimate(set.Fleet.Engine.CharsPerToken)
	q.longest = q.call.longest
	if set.Fleet.Engine.Tokenize {
		if body := q.call.countBody(set.Fleet.Model); body != nil {
			n, f := q.r.count(q.ctx, body)
			if f != nil {
				return f
			}
			if n > 0 {
				q.input, q.longest = n, n
			}
		}
	}
	q.row.InputLen, q.row.InputSized = q.input, true
	return nil
}

// enter tells the controller of a sized arrival, once. A prompt that was counted and that no
// engine can ever hold is the client's fault. held are the tokens of the prompt that each engine
// is believed to hold. It runs in the owner's goroutine.
func (q *request) enter(o *owner, held []int) *failure {
	if !q.sized {
		q.sized = true
		for _, k := range q.call.stripped {
			if !strings.HasPrefix(k, "bootstrap_") {
				o.n.stripped[k]++
			} else {
				o.n.stripped["bootstrap"]++
			}
		}
		o.n.inputSum += float64(q.input)
		o.n.inputCount++
		q.wanted = q.reachable(o)
		o.ctl, _ = control.Step(o.ctl, control.Arrival{At: q.row.Arrived, Input: q.input, Wanted: q.wanted, Cached: most(held)})
		q.expect = o.ctl.Expect(q.input, q.wanted) * min(q.call.sequences(), 1<<20)
	}
	q.context = o.context()
	if f := q.beyond(q.context, q.longest, ""); f != nil {
		return f
	}
	return q.chargeTokens(o)
}

// reachable is the output cap that the client set, at most what an engine has room for after the
// prompt. The engine ends the answer there, or refuses it: the cap is sent as it came.
func (q *request) reachable(o *owner) int {
	most := o.context()
	if most == 0 {
		most = o.room()
	}
	if q.call.wanted == 0 || most == 0 {
		return q.call.wanted
	}
	longest := q.longest
	if longest == 0 {
		longest = q.call.largest(q.r.set.Fleet.Engine.CharsPerToken)
	}
	return min(q.call.wanted, max(1, most-longest))
}

// beyond refuses a prompt that no engine can ever hold; most is 0 when that is not known.
func (q *request) beyond(most, tokens int, about string) *failure {
	if _, cut := q.call.get("truncate_prompt_tokens"); most == 0 || tokens < most || cut {
		return nil
	}
	return invalid(q.call.promptField(), "the prompt has %s%d tokens; this fleet's maximum context length is %d tokens, and the answer needs at least one of them", about, tokens, most)
}

// neverFits judges again a prompt that nobody counted and that was refused: when its estimate, or
// its size beside every engine's KV cache, says that it never fits, waiting would not help.
// It runs in the owner's goroutine.
func (q *request) neverFits(o *owner, why model.Reason) *failure {
	if why == model.ReasonNoEngine {
		return nil
	}
	about, tokens := "", q.longest
	if tokens == 0 || q.call.several {
		if n := q.call.largest(q.r.set.Fleet.Engine.CharsPerToken); n > tokens {
			about, tokens = "about ", n
		}
	}
	if f := q.beyond(o.context(), tokens, about); f != nil {
		return f
	}
	return q.beyond(o.capacity(), tokens, about)
}

// run makes attempts until one is whole, up to serving.max_attempts before the first output.
func (q *request) run() *failure {
	var before *failure
	for attempt := 1; ; attempt++ {
		f := q.attempt(attempt)
		if f == nil {
			return nil
		}
		if f.reason == model.ReasonNoEngine && before != nil && before.reason == model.ReasonOverloaded {
			return before // everybody who could serve it is busy
		}
		before = f
		if f.phase == phaseDecode && q.row.Crossed && q.row.Prefill != nil {
			f.source = *q.row.Prefill
		}
		q.r.weigh(f, q.claim)
		wait, why := q.mayRetry(f, attempt)
		if why == outputStarted && q.mayContinue(f) {
			wait, why = 0, continued
			q.cont.goOn()
		}
		q.note(f, attempt, wait, why)
		if why != retryAllowed && why != continued {
			return f
		}
		q.exclude(f)
		if f := q.pause(wait); f != nil {
			return f
		}
		o := q.r.own
		o.do(func() {
			o.n.retryAttempts++
			q.release(o)
		})
	}
}

// path is the route that legs go to: a stream that goes on has a prompt of token ids.
func (q *request) path() string {
	if q.cont.goesOn() {
		return "/v1/completions"
	}
	return q.call.path()
}

// pause waits before a retry; nothing when it need not.
func (q *request) pause(wait time.Duration) *failure {
	if wait <= 0 || pause.For(q.ctx, wait) {
		return nil
	}
	return ended(context.Cause(q.ctx))
}

// release frees what the last attempt holds. It runs in the owner's goroutine.
func (q *request) release(o *owner) {
	if q.claim != nil {
		o.release(q.claim, o.now())
		q.claim = nil
	}
}

// Why a failed attempt is or is not repeated.
const (
	retryAllowed   = "allowed"
	continued      = "continued"
	notDispatched  = "not_dispatched"
	outputStarted  = "output_started"
	attemptLimit   = "attempt_limit"
	nonTransient   = "non_transient"
	noTime         = "original_deadline"
	noSharedBudget = "shared_budget"
)

func (q *request) mayRetry(f *failure, attempt int) (time.Duration, string) {
	switch {
	case q.started:
		return 0, outputStarted
	case q.ctx.Err() != nil || f.terminal != journal.Failed && !f.transient:
		if f.phase == "" {
			return 0, notDispatched
		}
		return 0, nonTransient
	case f.phase == "" || f.phase == phaseAdmission:
		return 0, notDispatched
	case !f.transient:
		return 0, nonTransient
	case attempt >= q.r.set.attempts:
		return 0, attemptLimit
	}
	wait, why := time.Duration(0), noSharedBudget
	q.r.own.do(func() { wait, why = q.r.own.retry(q, f, attempt) })
	return wait, why
}

// exclude keeps the next attempt off the engines that the failure points at.
func (q *request) exclude(f *failure) {
	if f.gone {
		// The process is dead for either role, and nobody else is to blame.
		q.badP, q.badD = append(q.badP, f.engineID), append(q.badD, f.engineID)
		return
	}
	if f.phase == phasePrefill {
		q.badP = append(q.badP, f.engineID)
		return
	}
	// Who failed as a decoder is not asked to prefill instead.
	q.badP, q.badD = append(q.badP, f.engineID), append(q.badD, f.engineID)
	// Of a refused connection the producer is innocent; otherwise it may be the transfer.
	if f.class != classConnection && q.row.Prefill != nil {
		q.suspects = append(q.suspects, *q.row.Prefill)
	}
}

func (q *request) note(f *failure, attempt int, wait time.Duration, why string) {
	if f.terminal == journal.Cancelled || f.terminal == journal.Invalid && f.phase == "" {
		return
	}
	phase := f.phase
	if phase == "" {
		phase = q.phase
	}
	a := journal.Attempt{At: q.r.own.now(), Attempt: attempt, Phase: phase, Reason: f.reason, Prefill: q.row.Prefill, Decode: q.row.Decode,
		Type: f.typ, Message: engine.Printable(f.detail, 240), Transient: f.transient, Output: q.started, Retry: why == retryAllowed, RetryReason: why}
	if f.upstream > 0 {
		a.Status = ptr(f.upstream)
	}
	if a.Retry {
		a.Backoff = ptr(wait.Seconds())
	}
	q.row.Failures = append(q.row.Failures, a)
	q.r.own.do(func() { q.r.own.n.attemptFailures[[2]string{phase, string(f.reason)}]++ })
}

// place prices and chooses both engines, and reserves them.
func (q *request) place(attempt int, unsplit bool) (*claim, *failure) {
	if f := q.ready(); f != nil {
		return nil, f
	}
	o := q.r.own
	shared := q.shared()
	var d replay.Decision
	var f, never *failure
	if !o.do(func() {
		held := o.believed(shared, q.input)
		if f = q.enter(o, held); f != nil {
			return
		}
		r := model.Request{ID: q.row.RID, Arrived: q.row.Arrived, Input: q.input, Expected: q.expect, Sequences: several(q.call.sequences()), Unsplit: unsplit, AvoidPrefill: slices.Concat(q.badP, q.suspects), AvoidDecode: q.badD, Cached: held}
		d, q.claim = o.place(r, attempt == 1, o.now())
		if q.claim == nil && len(q.suspects) > 0 {
			r.AvoidPrefill = q.badP
			d, q.claim = o.place(r, false, o.now())
		}
		if o.journal != nil {
			d.Decision = d.Keep()
		}
		if q.claim == nil {
			never = q.neverFits(o, d.Refused)
		}
		if q.claim != nil {
			q.claim.cut = q.cut
			q.claim.rests(shared)
			q.credit = grant{}
			if attempt == 1 {
				o.budget.sent(o.now())
			}
			if d.Split() {
				o.n.prefillAttempts++
			}
		}
	}) {
		return nil, ended(errShutdown)
	}
	if f != nil {
		return nil, f
	}
	if o.journal != nil {
		if len(q.row.Decision) > 0 {
			q.row.Earlier = append(q.row.Earlier, q.row.Decision)
		}
		q.row.Decision, _ = json.Marshal(d)
	}
	q.priced(attempt, d.Decision)
	q.row.CachePlacement = nil
	if l := q.claim; l != nil {
		q.row.CachePlacement = l.rested
		q.row.Prefill, q.row.Decode, q.row.Crossed = ptr(d.Prefill), ptr(d.Decode), d.Split()
		return l, nil
	}
	if never != nil {
		return nil, never
	}
	return nil, refusal(d.Decision, attempt, q.r.set.params.Budget())
}

// several is how a request tells of more than one sequence.
func several(n int) int {
	if n < 2 {
		return 0
	}
	return min(n, 1<<20)
}

// refusal words a decision that placed nobody.
func refusal(d sched.Decision, attempt int, budget float64) *failure {
	switch d.Refused {
	case model.ReasonNoEngine:
		f := coded(503, "no_schedulable_engines", "Engine capacity is unavailable")
		if attempt > 1 {
			f = coded(503, "backend_unavailable", "Engine capacity is unavailable")
		}
		f.terminal, f.reason, f.retryAfter = journal.Failed, model.ReasonNoEngine, 1
		return f
	case model.ReasonPrompt:
		return overloaded(d.Refused, journal.Refused, fmt.Sprintf("the prompt's own prefill prices the first token at %.2fs against a budget of %.2fs; waiting does not help", d.Price, budget), 0)
	case model.ReasonQueue:
		return overloaded(d.Refused, journal.Refused, fmt.Sprintf("the cheapest placement prices the first token at %.2fs against a budget of %.2fs", d.Price, budget), d.RetryAfter)
	}
	return overloaded(d.Refused, journal.Refused, "no decode engine can take the request within its promise: "+string(d.Refused), max(1, d.RetryAfter))
}
