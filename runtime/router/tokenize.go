package router

import (
	"context"
	"net/http"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// maxTokensAnswer bounds what an engine answers to a tokenize call: its list of token ids
// is a few times as long as the prompt.
const maxTokensAnswer = 64 << 20

// tokenize passes a call to the least busy engine and its answer back, byte for byte.
func (r *Router) tokenize(w http.ResponseWriter, q *http.Request) {
	ctx, cancel := context.WithTimeoutCause(q.Context(), r.set.requestTimeout, errDeadline)
	defer cancel()
	var raw []byte
	_, f := r.identify(q.Header)
	if f == nil {
		var b *payload
		raw, b, f = r.tokenizeBody(ctx, w, q)
		defer b.drop()
	}
	if f == nil {
		held := r.answers.portion()
		defer held.drop()
		raw, f = r.tokenized(ctx, raw, held)
	}
	if f == nil {
		writeBody(w, http.StatusOK, raw)
		return
	}
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", seconds(f.retryAfter))
	}
	if f.unsaid {
		panic(http.ErrAbortHandler) // a client that only stopped sending would take 200 for an answer
	}
	if f.status > 0 { // else it was answered, or the client has left
		told(f, false)
		writeBody(w, f.status, f.body())
	}
}

// tokenizeBody reads what the engine is sent. The caller drops the body when it was sent.
func (r *Router) tokenizeBody(ctx context.Context, w http.ResponseWriter, q *http.Request) ([]byte, *payload, *failure) {
	b, f := r.readBody(ctx, w, q, http.NewResponseController(w))
	if f != nil {
		return nil, b, f
	}
	o, f := parseObject(b.bytes)
	if f != nil {
		return nil, b, f
	}
	c := &call{object: o}
	if v, ok := c.get("model"); ok {
		if c.model, c.named = splice.String(v); !c.named {
			return nil, b, invalid("model", "model must be a string")
		}
		return b.bytes, b, c.served(r.set.Fleet.Model)
	}
	return o.Edit(nil, splice.Set{Key: "model", Value: quote(r.set.Fleet.Model)}), b, nil
}

func (r *Router) tokenized(ctx context.Context, body []byte, held *portion) ([]byte, *failure) {
	n := r.leastBusy(0)
	if n == nil {
		f := coded(503, "backend_unavailable", "No engines are available")
		f.retryAfter = 1
		return nil, f
	}
	ctx, cancel := context.WithTimeoutCause(ctx, max(r.set.count, r.set.health), errCount)
	defer cancel()
	raw, f := n.whole(ctx, "/tokenize", body, "", phaseAdmission, "tokenize answer", maxTokensAnswer, held)
	if f != nil {
		return nil, f
	}
	if !splice.Valid(raw) {
		return nil, engineFault(phaseAdmission, n.id, model.ReasonInvalid, classNone, "answer is no JSON", false)
	}
	return raw, nil
}

// leastBusy is a live engine with the fewest requests whose counts do not rest; nil for none.
func (r *Router) leastBusy(now float64) (n *node) {
	r.own.do(func() {
		for _, m := range r.own.nodes {
			if m.live() && (now == 0 || now >= m.countAfter) && (n == nil || m.load() < n.load()) {
				n = m
			}
		}
	})
	return n
}
