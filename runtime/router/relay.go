package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Events that may come before the first token: with data, and comments, which keep a
// connection awake and of which only the first are passed on.
const (
	maxHeld     = 64
	maxComments = 4096
	keptOf      = maxHeld / 2 // comments
)

// tailLimit is how long an engine may take to end its answer after [DONE]: then its connection
// is closed, and the answer stands.
const tailLimit = 100 * time.Millisecond

// A stream reads into leastRead bytes, of which thousands may wait at once, and into more when
// a read fills them.
const (
	leastRead = 512
	mostRead  = 16 << 10
	mostOut   = 4 * mostRead // of the buffer of what is passed on
)

// relay carries one decode stream to its sink.
type relay struct {
	q     *request
	l     *claim
	sink  *assembly // nil for a streamed answer
	split splitter
	held  [][]byte
	bytes int64
	out   []byte // complete events of the current read
	done  bool
	begun bool           // output has come on this leg
	lives bool           // the last read brought more than comments
	heard bool           // an event has come
	idle  int            // comments before output
	ended map[int]string // finish reasons, by choice
	count int
	hand  bool
}

// follow reads the decode leg as a stream. The first token must come within its limit, and
// then each read within the gap.
func (q *request) follow(ctx context.Context, l *claim, leg []byte, id string, hand bool) *failure {
	cancel := l.cut
	limit := q.r.set.firstToken
	if !hand {
		limit = q.r.set.prefillTimeout // the prefill is part of this leg
	} else if q.r.dialect.Concurrent() {
		limit = min(limit, maxPairedFirstToken)
		// The limits of this leg say nothing of the other one.
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(errFinished)
	}
	watch := time.AfterFunc(limit, func() { cancel(errFirstToken) })
	defer watch.Stop()
	resp, err := l.d.data.Do(ctx, q.path(), leg, id)
	if err != nil {
		return fromTransport(ctx, phaseDecode, l.d.id, err)
	}
	if f := statusFailure(ctx, phaseDecode, l.d.id, resp); f != nil {
		return f
	}
	defer resp.Body.Close()
	r := &relay{q: q, l: l, hand: hand}
	if !q.call.stream {
		r.sink = newAssembly(q.chat, q.call.ids, q.call.answers())
	}
	gap := func() { cancel(errGap) }
	buf := make([]byte, leastRead)
	armed := false
	for !r.done {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if f := r.read(buf[:n]); f != nil {
				return f
			}
			if r.begun && r.lives {
				if !armed {
					// The first limit may have fired in this very moment: then it stands.
					if armed = watch.Stop(); armed {
						watch = time.AfterFunc(q.r.set.gapLimit(), gap)
					}
				} else {
					watch.Reset(q.r.set.gapLimit())
				}
			}
		}
		if r.done {
			break
		}
		if err != nil {
			return r.broken(ctx, err)
		}
		if n == len(buf) && n < mostRead {
			buf = make([]byte, 4*n)
		}
	}
	watch.Reset(tailLimit)
	f := r.close(resp.Body)
	watch.Stop()
	return f
}

// gapLimit is the longest silence between reads; a day when the limit is off.
func (s *settings) gapLimit() time.Duration {
	if s.gap <= 0 {
		return 24 * time.Hour
	}
	return s.gap
}

func (r *relay) broken(ctx context.Context, err error) *failure {
	if !errors.Is(err, io.EOF) || ctx.Err() != nil {
		return fromTransport(ctx, phaseDecode, r.l.d.id, err)
	}
	return engineFault(phaseDecode, r.l.d.id, model.ReasonEngine, classStream, "stream ended before the [DONE] terminator", true)
}

// read takes what one read of the engine brought and writes its complete events at once.
func (r *relay) read(b []byte) *failure {
	q := r.q
	r.split.add(b)
	r.bytes += int64(len(b))
	limit := q.r.set.Fleet.Serving.MaxResponseBytes
	if (r.sink != nil || !r.begun) && r.bytes > limit || int64(r.split.pending()) > limit {
		f := engineFault(phaseDecode, r.l.d.id, model.ReasonLimit, classNone, "answer over max_response_bytes", false)
		f.message = "Response exceeds the configured limit"
		return f
	}
	if q.decodeHeld.hold(r.needs()) != nil {
		return noAnswerMemory(phaseDecode, r.l.d.id)
	}
	r.out = r.out[:0]
	tokens := 0
	r.lives = false
	for e := r.split.next(); e != nil && !r.done; e = r.split.next() {
		bore, f := r.event(e)
		if f != nil {
			// What came before the failure in the same read still belongs to the client.
			if w := r.flush(); w != nil {
				return w
			}
			return f
		}
		if bore {
			tokens++
		}
	}
	if tokens > 0 {
		q.lastToken = q.r.own.now()
		r.l.tokens.Add(int64(tokens))
		r.l.d.made.Add(int64(tokens))
	}
	f := r.flush()
	_ = q.decodeHeld.hold(r.needs()) // no more than before
	return f
}

// needs is what the answer holds of the leg: all of it until output is passed on, then the
// event that is not complete.
func (r *relay) needs() int64 {
	if r.sink != nil || !r.begun {
		return r.bytes
	}
	return int64(r.split.pending())
}

// event handles one event; bore reports that it carried output.
func (r *relay) event(e []byte) (bore bool, f *failure) {
	q := r.q
	name, payload := r.parts(e)
	r.lives = r.lives || len(payload) > 0
	if len(payload) == 0 && !r.begun {
		if r.idle++; r.idle > maxComments {
			return false, engineFault(phaseDecode, r.l.d.id, model.ReasonInvalid, classStream, fmt.Sprintf("%d comments before any output", maxComments), true)
		}
		if r.idle > keptOf {
			return false, nil
		}
	}
	k, c := classify(name, payload, r.form())
	if c != nil && k != kindError {
		if err := r.sound(c); err != nil {
			return false, engineFault(phaseDecode, r.l.d.id, model.ReasonInvalid, classStream, err.Error(), true)
		}
	}
	if c != nil {
		if c.usage != nil {
			q.usage = q.plausible(c.usage)
		}
		if c.finish != "" {
			q.finish = c.finish
		}
	}
	switch k {
	case kindError:
		detail := "error event in the stream"
		if c != nil && len(c.err) > 0 {
			detail += ": " + string(c.err)
		}
		return false, engineFault(phaseDecode, r.l.d.id, model.ReasonEngine, classStream, detail, true)
	case kindTorn:
		return false, engineFault(phaseDecode, r.l.d.id, model.ReasonInvalid, classStream, "an event is no JSON: "+string(payload), true)
	case kindDone:
		if !r.begun {
			return false, engineFault(phaseDecode, r.l.d.id, model.ReasonEngine, classStream, "[DONE] before any output", true)
		}
		if q.finish == "" && q.usage == nil {
			return false, engineFault(phaseDecode, r.l.d.id, model.ReasonInvalid, classStream, "[DONE] without a finish reason and without the usage that was asked for", true)
		}
		if n := q.call.answers(); len(r.ended) > 0 && len(r.ended) < n {
			return false, engineFault(phaseDecode, r.l.d.id, model.ReasonInvalid, classStream, fmt.Sprintf("[DONE] with %d finish reasons of %d choices", len(r.ended), n), true)
		}
		r.done = true
	case kindToken:
		r.first()
		r.count++
		bore = true
	case kindUsage:
		if !q.call.usage && r.sink == nil && q.cont == nil {
			return false, nil
		}
	}
	if q.cont != nil && c != nil {
		e = q.cont.follow(c, q.chat) // which also corrects the usage that was noted
		if k == kindUsage && !q.call.usage {
			return bore, nil
		}
	}
	if r.sink != nil {
		if c != nil {
			if err := r.sink.add(c); err != nil {
				return bore, engineFault(phaseDecode, r.l.d.id, model.ReasonInvalid, classStream, err.Error(), true)
			}
		}
		return bore, nil
	}
	if !r.begun {
		if len(r.held) >= maxHeld+min(r.idle, keptOf) {
			return false, engineFault(phaseDecode, r.l.d.id, model.ReasonInvalid, classStream, fmt.Sprintf("%d events before any output", maxHeld), true)
		}
		r.held = append(r.held, append([]byte(nil), e...))
		return bore, nil
	}
	r.out = append(r.out, e...)
	return bore, nil
}

// form is how output begins that needs no decoding; nil while each event is decoded.
func (r *relay) form() []byte {
	switch {
	case !r.begun || r.sink != nil || r.q.cont != nil || len(r.ended) > 0 || r.q.call.answers() > 1:
		return nil
	case r.q.chat:
		return deltaForm
	}
	return textForm
}

// sound refuses choices that the client did not ask for or could not read, and what comes behind the
// end of its choice.
func (r *relay) sound(c *chunk) error {
	most := r.q.call.answers()
	// A stream goes on as a completion.
	if err := c.check(outputOf(r.q.chat && !r.q.cont.goesOn()), most); err != nil {
		return err
	}
	for _, ch := range c.choices {
		if r.sink == nil {
			if err := newChoice().merge(ch, false); err != nil {
				return err
			}
		}
		index, _ := indexOf(ch, most)
		was := r.ended[index]
		if was != "" && speaks(ch) {
			return fmt.Errorf("choice %d goes on after its finish reason", index)
		}
		if !ends(ch) {
			continue
		}
		why, _ := ch.Get("finish_reason")
		if was != "" && was != string(why) {
			return fmt.Errorf("choice %d ends as %.40s and as %.40s", index, was, why)
		}
		if r.ended == nil {
			r.ended = map[int]string{}
		}
		r.ended[index] = string(why)
	}
	return nil
}

// parts are an event's name and data. A mark of the byte order may stand before the first event.
func (r *relay) parts(e []byte) (name, data []byte) {
	if !r.heard {
		r.heard = true
		e = bytes.TrimPrefix(e, []byte("\xef\xbb\xbf"))
	}
	return parts(e)
}

// first notes the first output of the answer. Until the whole leg prefilled here, that is
// also when the prefill ended.
func (r *relay) first() {
	q := r.q
	if r.begun {
		return
	}
	r.begun = true
	if q.cont.goesOn() {
		r.goOn()
		return
	}
	now := q.r.own.now()
	r.l.firstAt.Store(&now)
	q.firstToken = now
	q.row.FirstByte = ptr(now - q.row.Arrived)
	if end := r.l.prefilledAt.Load(); q.r.dialect.Concurrent() && r.hand {
		q.untie()
		q.prefillEnd = now
		if end != nil {
			q.prefillEnd = *end
			q.handoffDelay = now - *end
		}
		r.readHere()
		q.row.TTFT = ptr(q.prefillEnd - q.row.Arrived)
	} else if r.hand {
		q.handoffDelay = now - q.prefillEnd
		q.untie()
		r.readHere()
	} else {
		q.prefillEnd = now
		q.row.TTFT = ptr(now - q.row.Arrived)
		r.prefilledHere()
	}
	for _, e := range r.held {
		r.out = append(r.out, e...)
	}
	r.held = nil
}

// goOn is the first output of a leg that continues a stream: the request's own times stand.
func (r *relay) goOn() {
	r.l.firstAt.Store(ptr(r.q.firstToken))
	if r.hand {
		r.q.untie()
		return
	}
	r.prefilledHere()
}

// readHere notes that the engine has read the KV of the prompt.
func (r *relay) readHere() {
	if r.l.prompt != nil {
		o := r.q.r.own
		o.do(func() { o.holds(r.l.d, r.l) })
	}
}

// prefilledHere ends the prefill of a leg that did it by itself.
func (r *relay) prefilledHere() {
	o := r.q.r.own
	o.do(func() {
		o.prefilled(r.l, o.now(), true)
		o.holds(r.l.d, r.l)
		o.decoding(r.l)
	})
}

// learnHandoff smooths the delay between a prefill's end and the first token elsewhere,
// less the token's own interval. One that read little says nothing of the others.
func (o *owner) learnHandoff(delay float64, l *claim) {
	if l.cachedD > l.input/2 {
		return
	}
	own := max(0, delay-l.d.curve.Interval(decodes(l.d.decoding), 0))
	if o.handoff == 0 {
		o.handoff = own
		return
	}
	o.handoff += 0.2 * (own - o.handoff)
}

// flush sends the events of this read; the first one takes status and headers along.
func (r *relay) flush() *failure {
	q := r.q
	if r.sink != nil || len(r.out) == 0 {
		return nil
	}
	q.out.lock()
	q.commit()
	if !q.started && q.cont == nil {
		q.forget() // nothing sends it again
	}
	q.started = true
	err := q.out.send(q.w, r.out)
	q.out.unlock()
	if cap(r.out) > mostOut {
		r.out = nil // a long event needed it
	}
	r.out = r.out[:0]
	if err == nil {
		return nil
	}
	if cause := context.Cause(q.ctx); errors.Is(cause, errDeadline) || errors.Is(cause, errShutdown) {
		return ended(cause)
	}
	return left()
}

// close ends a complete stream: the engine is well, the connection is read to its end so
// that it can serve again, and a buffered answer is written.
func (r *relay) close(body io.Reader) *failure {
	q := r.q
	_, _ = io.CopyN(io.Discard, body, 1<<10)
	q.answered = true
	if r.sink == nil {
		return nil
	}
	if cause := context.Cause(q.ctx); cause != nil {
		return ended(cause) // nobody takes the answer
	}
	raw, err := r.sink.answer(q.input, r.count)
	if err != nil {
		f := engineFault(phaseDecode, r.l.d.id, model.ReasonInvalid, classStream, err.Error(), false)
		f.message = "Invalid non-streaming upstream response"
		return f
	}
	q.started = true
	q.row.Status = ptr(http.StatusOK)
	writeBody(q.w, http.StatusOK, raw)
	return nil
}

// account fills the row's measured fields at the end.
func (q *request) account() {
	if q.usage != nil && q.usage.Completion > 0 {
		n := q.usage.Completion
		q.row.OutputLen, q.row.Observed, q.row.TokenAccounting = ptr(n), ptr(n), journal.AccountUsage
		if n > 1 && q.lastToken > 0 {
			q.row.TPOT = ptr((q.lastToken - q.prefillEnd) / float64(n-1))
			q.row.DecodeTPOT = ptr((q.lastToken - q.firstToken) / float64(n-1))
		}
	}
	if q.finish != "" {
		q.row.FinishReason = ptr(q.finish)
	}
}
