package router

import (
	"context"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// Tracer makes the spans of a request: the request itself, and below it admission and
// both legs of each attempt. A nil Tracer is off and costs nothing. Spans carry engine
// ids, counts, times and reasons, never a prompt, an answer or a key.
type Tracer interface {
	// Extract returns a context that holds the client's trace (W3C traceparent), if it
	// sent one.
	Extract(ctx context.Context, h http.Header) context.Context
	// Inject writes the context's span into the header of a call.
	Inject(ctx context.Context, h http.Header)
	// Start begins a span below the one in ctx.
	Start(ctx context.Context, name string, at time.Time, attrs ...Attr) (context.Context, Span)
}

// Span is one span in the making.
type Span interface {
	Set(attrs ...Attr)
	// End ends the span; failure is "" for success.
	End(failure string)
	// TraceID is in lower-case hex, "" for a span that is not recorded.
	TraceID() string
}

// Attr is a span's attribute; Value is a string, int, bool or float64.
type Attr struct {
	Key   string
	Value any
}

// Names of the spans.
const (
	spanRequest   = "narwhal.request"
	spanAdmission = "narwhal.admission"
	spanPrefill   = "narwhal.prefill"
	spanDecode    = "narwhal.decode"
)

type spanKey struct{}

// begin starts the request's span and returns the context that holds it.
func (q *request) begin(hr *http.Request) context.Context {
	ctx, t := hr.Context(), q.r.set.Tracer
	if t == nil {
		return ctx
	}
	ctx, span := t.Start(t.Extract(ctx, hr.Header), spanRequest, time.Now(), Attr{"narwhal.rid", q.row.RID}, Attr{"http.route", hr.URL.Path})
	return context.WithValue(ctx, spanKey{}, span)
}

// endTrace ends the request's span with what its row says and returns the trace id.
func (q *request) endTrace() string {
	if q.r.set.Tracer == nil {
		return ""
	}
	span, ok := q.ctx.Value(spanKey{}).(Span)
	if !ok {
		return ""
	}
	row := &q.row
	attrs := []Attr{{"narwhal.terminal", row.Terminal}, {"narwhal.attempts", row.Attempts}, {"narwhal.input_tokens", row.InputLen}}
	if row.OutputLen != nil {
		attrs = append(attrs, Attr{"narwhal.output_tokens", *row.OutputLen})
	}
	if row.Status != nil {
		attrs = append(attrs, Attr{"http.response.status_code", *row.Status})
	}
	failure := ""
	if row.Terminal != "completed" {
		failure = row.Terminal
	}
	if row.Reason != nil {
		attrs = append(attrs, Attr{"narwhal.reason", string(*row.Reason)})
		failure += ": " + string(*row.Reason)
	}
	span.Set(attrs...)
	span.End(failure)
	return span.TraceID()
}

// within runs one step of an attempt in its own span.
func (q *request) within(ctx context.Context, name string, began time.Time, attrs []Attr, step func(context.Context) *failure) *failure {
	ctx, span := q.r.set.Tracer.Start(ctx, name, began, attrs...)
	f := step(ctx)
	if f == nil {
		span.End("")
		return nil
	}
	if f.upstream > 0 {
		span.Set(Attr{"http.response.status_code", f.upstream})
	}
	if f.reason != "" {
		span.Set(Attr{"narwhal.reason", string(f.reason)})
	}
	span.End(f.terminal)
	return f
}

// tracedPlace is place, in a span that begins with the request for the first attempt.
func (q *request) tracedPlace(n int, unsplit bool) (l *claim, f *failure) {
	if q.r.set.Tracer == nil {
		return q.place(n, unsplit)
	}
	began := time.Now()
	if n == 1 {
		began = q.r.own.start.Add(dur(q.row.Arrived))
	}
	f = q.within(q.ctx, spanAdmission, began, []Attr{{"narwhal.attempt", n}, {"narwhal.input_tokens", q.input}}, func(context.Context) (f *failure) {
		l, f = q.place(n, unsplit)
		return f
	})
	return l, f
}

// tracedPrefill is prefillLeg in its span.
func (q *request) tracedPrefill(ctx context.Context, l *claim, n int, body splice.Object) (h *engine.Handoff, f *failure) {
	if q.r.set.Tracer == nil {
		return q.prefillLeg(ctx, l, n, body)
	}
	attrs := []Attr{{"narwhal.engine", l.p.id}, {"narwhal.attempt", n}, {"narwhal.input_tokens", q.input}}
	f = q.within(ctx, spanPrefill, time.Now(), attrs, func(ctx context.Context) (f *failure) {
		h, f = q.prefillLeg(ctx, l, n, body)
		return f
	})
	return h, f
}

// tracedDecode is decodeLeg in its span.
func (q *request) tracedDecode(ctx context.Context, l *claim, n int, body splice.Object, h *engine.Handoff, streamed bool) *failure {
	if q.r.set.Tracer == nil {
		return q.decodeLeg(ctx, l, n, body, h, streamed)
	}
	return q.spannedDecode(ctx, l, n, body, h, streamed)
}

// spannedDecode is apart so that a stream without a tracer does not keep its frame.
//
//go:noinline
func (q *request) spannedDecode(ctx context.Context, l *claim, n int, body splice.Object, h *engine.Handoff, streamed bool) *failure {
	attrs := []Attr{{"narwhal.engine", l.d.id}, {"narwhal.attempt", n}, {"narwhal.split", l.p != l.d}}
	return q.within(ctx, spanDecode, time.Now(), attrs, func(ctx context.Context) *failure {
		return q.decodeLeg(ctx, l, n, body, h, streamed)
	})
}

// carry puts the span of a leg's context into the leg's header; nil without a tracer.
func (s *settings) carry() func(context.Context, func(name, value string)) {
	t := s.Tracer
	if t == nil {
		return nil
	}
	return func(ctx context.Context, set func(name, value string)) {
		if _, ok := ctx.Value(spanKey{}).(Span); !ok {
			return
		}
		h := http.Header{}
		t.Inject(ctx, h)
		for name := range h {
			set(name, h.Get(name))
		}
	}
}
