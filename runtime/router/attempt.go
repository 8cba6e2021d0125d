package router

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// attempt runs both legs once, or the one leg of an unsplit placement.
func (q *request) attempt(n int) *failure {
	q.phase = phaseAdmission
	body := q.call.legs(q.r.set.Fleet.Model)
	if q.cont.goesOn() {
		rest, err := q.rest(body)
		if err != nil {
			return internal(err.Error())
		}
		body = rest
	}
	why, splittable := q.r.dialect.Splittable(body)
	if q.r.dialect.Concurrent() {
		switch aggregated := q.r.own.view.Load().aggregated; {
		case aggregated:
			splittable = false
		case !splittable:
			return invalid("", "this fleet's engines serve split requests only, and this one cannot be split: %s", why)
		}
	}
	// The leg context ends with the attempt, so nothing of it outlives a retry.
	ctx, cancel := context.WithCancelCause(q.ctx)
	defer cancel(errFinished)
	q.cut = cancel
	l, f := q.tracedPlace(n, !splittable)
	if f != nil {
		return f
	}
	if !q.cont.goesOn() {
		q.prefillEnd, q.firstToken, q.lastToken = 0, 0, 0
	}
	q.usage, q.finish, q.handoffDelay = nil, "", 0
	q.row.Attempts = n
	if l.p == l.d {
		defer l.d.tie(cancel)()
		return q.tracedDecode(ctx, l, n, body, nil, splittable || q.r.dialect.Concurrent() && q.call.choices == 1)
	}
	// The producer matters until its KV has been read.
	q.untie = l.p.tie(cancel)
	defer func() { q.untie() }()
	defer l.d.tie(cancel)()
	if q.r.dialect.Concurrent() {
		return q.pairedLegs(ctx, l, n, body)
	}
	h, f := q.tracedPrefill(ctx, l, n, body)
	if f != nil {
		return f
	}
	return q.tracedDecode(ctx, l, n, body, h, true)
}

// prefillLeg runs leg 1 and returns its checked handoff.
func (q *request) prefillLeg(ctx context.Context, l *claim, n int, body splice.Object) (*engine.Handoff, *failure) {
	q.phase = phasePrefill
	o := q.r.own
	leg, err := q.r.dialect.Prefill(body)
	if err != nil {
		return nil, internal(err.Error())
	}
	id := legID(q.row.RID, n, phasePrefill)
	start := o.now()
	raw, f := q.sendPrefill(ctx, l.p, leg, id)
	end := o.now()
	q.row.Upstream.Prefill += end - start
	var h *engine.Handoff
	if f == nil {
		h, f = q.handoff(l, raw, id)
	}
	o.do(func() {
		o.prefilled(l, end, f == nil)
		if f == nil {
			if err := q.r.incarnate(l.p, h.EngineID); err != nil {
				f = q.badHandoff(l, err)
				f.free = true // every request that meets the new process fails alike
			}
		}
		if f != nil && f.class == classHandoff {
			o.refusedHandoff(q, l, f)
		}
		if f == nil {
			o.absolve(l.p, classConnection, classInference, classHandoff)
			o.shown(l, l.told)
			o.n.decodeAttempts++
			o.pin(l)
			o.decoding(l)
		}
	})
	if f != nil {
		return h, f
	}
	if !q.cont.goesOn() {
		q.prefillEnd = end
		q.row.TTFT = ptr(end - q.row.Arrived)
	}
	return h, nil
}

// handoff reads and judges what leg 1 returned.
func (q *request) handoff(l *claim, raw []byte, id string) (*engine.Handoff, *failure) {
	h, u, err := q.r.dialect.ParseHandoff(raw, time.Now())
	if err != nil {
		return h, q.badHandoff(l, err)
	}
	want := engine.Expect{PromptTokens: u.PromptTokens, BlockSize: l.blockSize, RequestID: id}
	if err := q.r.dialect.Check(h, want); err != nil {
		return h, q.badHandoff(l, err)
	}
	if h.CachedTold || u.CachedTokens > 0 {
		l.told = max(0, h.CachedTokens, u.CachedTokens)
	}
	if l.told > 0 {
		q.row.CachedTokens[l.p.id] = l.told
	}
	return h, nil
}

// refusedHandoff notes a handoff that is not used: its blocks stay pinned for the lease. It
// runs in the owner's goroutine.
func (o *owner) refusedHandoff(q *request, l *claim, f *failure) {
	q.r.metrics.handoffRefused(l.p.id)
	o.pin(l)
	o.event("handoff_refused", o.now(), map[string]any{"iid": l.p.id, "rid": q.row.RID, "why": f.detail})
}

func (q *request) badHandoff(l *claim, err error) *failure {
	f := engineFault(phasePrefill, l.p.id, model.ReasonInvalid, classHandoff, err.Error(), true)
	f.upstream = http.StatusOK
	return f
}

// sendPrefill is buffer within the prefill's own limit.
func (q *request) sendPrefill(ctx context.Context, n *node, body []byte, id string) ([]byte, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errFinished)
	limit := time.AfterFunc(q.r.set.prefillTimeout, func() { cancel(errPrefill) })
	defer limit.Stop()
	return q.buffer(ctx, n, body, id, phasePrefill, &q.prefillHeld)
}

// buffer sends a leg and reads its whole answer.
func (q *request) buffer(ctx context.Context, n *node, body []byte, id, phase string, held *portion) ([]byte, *failure) {
	return n.whole(ctx, q.path(), body, id, phase, phase+" answer", q.r.set.Fleet.Serving.MaxResponseBytes, held)
}

// whole sends a call and reads its answer of at most limit bytes, which errors call what, into
// what the caller holds.
func (n *node) whole(ctx context.Context, path string, body []byte, id, phase, what string, limit int64, held *portion) ([]byte, *failure) {
	resp, err := n.data.Do(ctx, path, body, id)
	if err != nil {
		return nil, fromTransport(ctx, phase, n.id, err)
	}
	if f := statusFailure(ctx, phase, n.id, resp); f != nil {
		return nil, f
	}
	defer resp.Body.Close()
	raw, err := held.readAll(resp.Body, what, limit)
	if err != nil {
		return nil, fromTransport(ctx, phase, n.id, err)
	}
	return raw, nil
}

// statusFailure judges a leg's status; nil for success. It closes the body of a failure.
func statusFailure(ctx context.Context, phase, iid string, resp *http.Response) *failure {
	err := engine.Refused(resp)
	if err == nil {
		return nil
	}
	var status *engine.StatusError
	if errors.As(err, &status) {
		return fromStatus(phase, iid, status)
	}
	return fromTransport(ctx, phase, iid, err)
}

// decodeLeg runs leg 2, or the only leg, and hands its answer to the client.
func (q *request) decodeLeg(ctx context.Context, l *claim, n int, body splice.Object, h *engine.Handoff, streamed bool) *failure {
	q.phase = phaseDecode
	o := q.r.own
	if !h.Empty() && time.Now().After(h.Deadline(dur(l.ttl))) {
		return handoffExpired(l.p.id)
	}
	leg, err := q.decodeBody(body, h, streamed)
	if err != nil {
		return internal(err.Error())
	}
	start := o.now()
	if h.Empty() {
		o.do(func() { o.n.decodeAttempts++ })
	}
	q.row.DecodeAttempts++
	defer func() { q.row.Upstream.Decode += o.now() - start }()
	id := legID(q.row.RID, n, phaseDecode)
	l.sent.Store(!h.Empty())
	if !streamed && !q.call.stream {
		return q.whole(ctx, l, leg, id)
	}
	f := q.follow(ctx, l, leg, id, !h.Empty())
	if f != nil && f.terminal != journal.Cancelled && !q.started && q.firstToken == 0 {
		l.sent.Store(false) // nobody is known to have read the handoff: its blocks wait for the lease
	}
	return f
}

// decodeBody is what leg 2, or the only leg, is asked.
//
//go:noinline
func (q *request) decodeBody(body splice.Object, h *engine.Handoff, streamed bool) ([]byte, error) {
	if streamed || q.call.stream {
		body = q.call.streamed(body)
		if q.cont != nil {
			body = body.With(splice.Set{Key: "return_token_ids", Value: json.RawMessage("true")})
		}
	}
	return q.r.dialect.Decode(body, h)
}

func handoffExpired(producer string) *failure {
	f := coded(504, "handoff_expired", "KV handoff expired before decode dispatch")
	f.terminal, f.reason, f.phase, f.transient = "expired", model.ReasonHandoff, phasePrefill, true
	f.engineID = producer
	return f
}

// whole serves a request that can neither be split nor put together from a stream.
func (q *request) whole(ctx context.Context, l *claim, leg []byte, id string) *failure {
	raw, f := q.buffer(ctx, l.d, leg, id, phaseDecode, &q.decodeHeld)
	if f != nil {
		return f
	}
	c, ok := readChunk(raw)
	if !ok {
		return engineFault(phaseDecode, l.d.id, model.ReasonInvalid, classInference, "answer is no JSON", true)
	}
	if err := c.entire(q.chat, q.call.answers()); err != nil {
		return engineFault(phaseDecode, l.d.id, model.ReasonInvalid, classInference, err.Error(), true)
	}
	q.usage, q.finish = q.plausible(c.usage), c.finish
	q.started, q.answered = true, true
	q.row.Status = ptr(http.StatusOK)
	writeBody(q.w, http.StatusOK, raw)
	return nil
}
