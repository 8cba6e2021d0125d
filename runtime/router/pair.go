package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// errSibling ends a leg because the other one of its pair has failed.
var errSibling = errors.New("the other leg failed")

// maxPairedFirstToken bounds the wait for the first token of a pair, whatever is configured:
// an engine whose peer is lost waits for minutes.
const maxPairedFirstToken = 30 * time.Second

// pairTail is how long the prefill leg may take to answer once the decode leg is complete.
const pairTail = time.Second

// pairedLegs runs both legs at once, as a concurrent dialect wants it. Whichever fails first
// ends the other; a failed prefill is the cause that counts.
func (q *request) pairedLegs(ctx context.Context, l *claim, n int, body splice.Object) *failure {
	q.phase = phaseDecode
	o := q.r.own
	first, second, err := q.pair(l, n, body)
	if err != nil {
		return internal(err.Error())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errFinished)
	o.do(func() {
		o.n.decodeAttempts++
		o.pin(l)
		o.acquaint(l.p, l.d)
	})
	l.sent.Store(true)
	q.row.DecodeAttempts++
	start := o.now()
	done := make(chan *failure, 1)
	go func() {
		f := q.prefillOf(ctx, l, n, first)
		if f != nil {
			cancel(errSibling)
		}
		done <- f
	}()
	f := q.follow(ctx, l, second, legID(q.row.RID, n, phaseDecode), true)
	q.row.Upstream.Decode += o.now() - start
	if f != nil {
		cancel(errSibling)
	}
	p := q.prefillEnds(f == nil, done, cancel)
	q.row.Upstream.Prefill += l.prefillTook()
	if l.told > 0 {
		q.row.CachedTokens[l.p.id] = l.told
	}
	switch {
	case p == nil || p.sibling:
	case f == nil: // an answer that is complete had its KV
		q.r.blame(p)
	default:
		return p
	}
	if f != nil && f.sibling {
		f.sibling, f.transient = false, true
	}
	return f
}

// prefillEnds waits for the prefill leg. An answer that is complete has read its KV: what that leg
// still owes is waited for shortly, and does not count.
func (q *request) prefillEnds(complete bool, done <-chan *failure, cancel context.CancelCauseFunc) *failure {
	if !complete {
		return <-done
	}
	late := time.NewTimer(pairTail)
	defer late.Stop()
	select {
	case p := <-done:
		return p
	case <-late.C:
		cancel(errSibling)
		<-done
		return nil
	}
}

// pair makes both bodies, with the ids by which the engines know them.
func (q *request) pair(l *claim, n int, body splice.Object) (first, second []byte, err error) {
	d := q.r.dialect
	meet := l.meet
	meet.Room = engine.NewRoom()
	first, second, err = d.Pair(q.call.streamed(body), q.chat, meet)
	if t, ok := d.(engine.Tagger); ok && err == nil {
		if first, err = t.Tag(first, legID(q.row.RID, n, phasePrefill)); err == nil {
			second, err = t.Tag(second, legID(q.row.RID, n, phaseDecode))
		}
	}
	return first, second, err
}

// prefillOf runs the prefill leg of a pair and drains its answer.
func (q *request) prefillOf(ctx context.Context, l *claim, n int, leg []byte) *failure {
	o := q.r.own
	raw, f := q.sendPrefill(ctx, l.p, leg, legID(q.row.RID, n, phasePrefill))
	if f == nil {
		if err := firstOf(raw); err != nil {
			f = q.badHandoff(l, err)
		}
	}
	end := o.now()
	if f == nil && l.prompt != nil {
		l.told = cachedIn(raw)
	}
	l.prefilledAt.Store(&end)
	o.do(func() {
		o.prefilled(l, end, f == nil)
		if f == nil {
			o.absolve(l.p, classConnection, classInference, classHandoff)
			o.shown(l, l.told)
			o.decoding(l)
		}
	})
	return f
}

// firstOf judges the answer of a prefill leg that runs beside its decode leg: one choice, without an error.
func firstOf(raw []byte) error {
	c, ok := readChunk(raw)
	if !ok {
		return errors.New("answer is no JSON object")
	}
	if err := c.fault(); err != nil {
		return err
	}
	if len(c.choices) != 1 {
		return fmt.Errorf("%d choices, want one", len(c.choices))
	}
	return nil
}

// prefillTook is the seconds from placement to the end of the prefill leg; 0 before.
func (l *claim) prefillTook() float64 {
	if end := l.prefilledAt.Load(); end != nil {
		return *end - l.at
	}
	return 0
}

func legID(rid string, attempt int, phase string) string {
	return fmt.Sprintf("%s-a%d-%s", rid, attempt, phase)
}
