package router

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
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
		q.r.strain(f, q.claim)
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
