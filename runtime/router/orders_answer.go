package router

import (
	"context"
	"net/http"
	"strconv"
)

// Headers of the answer to an order that was carried out, true or false: see durable. The members of
// its body are the contract's.
const (
	storedHeader     = "Narwhal-Order-Stored"
	replicatedHeader = "Narwhal-Order-Replicated"
)

// durable is where an order that was carried out is found when this router ends without warning.
type durable struct {
	stored     bool // in its state file
	replicated bool // with each standby that polls it, and there is one
}

// answerOrder answers a lifecycle call. What was carried out is in the state file before that, and
// with the standbys, which have replicateLimit to fetch it.
func (r *Router) answerOrder(ctx context.Context, w http.ResponseWriter, no *refusedOrder) {
	if no != nil && no.status != http.StatusServiceUnavailable {
		r.lifecycleAnswer(w, no.status, no.text)
		return
	}
	kept := r.keepOrder(ctx) // an engine whose drain is blocked is held too
	if no == nil {
		r.own.do(func() { no = r.own.notInControl() }) // lost meanwhile: another router may have gone on without it
	}
	if no != nil {
		r.lifecycleAnswer(w, no.status, no.text)
		return
	}
	w.Header().Set(storedHeader, strconv.FormatBool(kept.stored))
	w.Header().Set(replicatedHeader, strconv.FormatBool(kept.replicated))
	r.lifecycleAnswer(w, http.StatusOK, "")
}

func (r *Router) keepOrder(ctx context.Context) (k durable) {
	var at float64
	var epoch int64
	controls := false
	r.own.do(func() {
		p := r.own.view.Load()
		at, controls = r.own.unix(r.own.now()), p.controls()
		epoch, _ = p.term()
	})
	if !controls {
		return durable{}
	}
	k.stored = r.saveState()
	k.replicated = r.followers.await(ctx, epoch, at)
	return k
}
