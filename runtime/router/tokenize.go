package router

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

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
		raw, f = r.tokenizeBody(w, q)
	}
	if f == nil {
		raw, f = r.tokenized(ctx, raw)
	}
	if f == nil {
		writeBody(w, http.StatusOK, raw)
		return
	}
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", seconds(f.retryAfter))
	}
	if f.status > 0 { // else the client has left
		told(f, false)
		writeBody(w, f.status, f.body())
	}
}

func (r *Router) tokenizeBody(w http.ResponseWriter, q *http.Request) ([]byte, *failure) {
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Now().Add(r.set.HTTP.BodyTimeout))
	limit := r.set.Fleet.Serving.MaxRequestBytes
	raw, err := io.ReadAll(http.MaxBytesReader(w, q.Body, limit))
	_ = out.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &failure{status: 413, typ: "request_too_large", message: "request body exceeds max_request_bytes"}
	case err != nil:
		w.Header().Set("Connection", "close")
		return nil, invalid("", "the request body cannot be read")
	}
	o, err := splice.Parse(raw)
	if err != nil {
		return nil, invalid("", "the request body must be a JSON object")
	}
	c := &call{object: o}
	if v, ok := c.get("model"); ok {
		if c.model, c.named = splice.String(v); !c.named {
			return nil, invalid("model", "model must be a string")
		}
		return raw, c.served(r.set.Fleet.Model)
	}
	return o.Edit(nil, splice.Set{Key: "model", Value: quote(r.set.Fleet.Model)}), nil
}

func (r *Router) tokenized(ctx context.Context, body []byte) ([]byte, *failure) {
	n := r.leastBusy(0)
	if n == nil {
		f := coded(503, "backend_unavailable", "No engines are available")
		f.retryAfter = 1
		return nil, f
	}
	ctx, cancel := context.WithTimeoutCause(ctx, max(r.set.count, r.set.health), errCount)
	defer cancel()
	raw, f := n.whole(ctx, "/tokenize", body, "", phaseAdmission, "tokenize answer", maxTokensAnswer)
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
