package simulated

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"
)

// call is one client request: one lane for each choice of its answer.
type call struct {
	srv      *Server
	p        *params
	id       string
	created  int64
	lanes    []*lane
	fault    fault
	ctx      context.Context // ends when the client leaves or the engine ends
	told     atomic.Bool     // the producer knows that its blocks are free, or never will
	read     chan struct{}   // closed when the remote KV is here
	readOnce sync.Once

	// The SGLang dialect's two legs.
	room     *room           // of a prefilling leg
	legs     context.Context // ends with the request or its abort, by id or by the client
	stopLegs context.CancelCauseFunc
	cached   int    // the producer's own cache hit, set before the KV is handed to the core
	sum      uint64 // of the KV as sent

	// Guarded by srv.mu.
	pending   []item
	ready     chan struct{} // holds one signal
	submitted bool
}

func (c *call) endLegs() { c.stopLegs(nil) }

// item is a token or an end, on its way to the client.
type item struct {
	lane   *lane
	id     int32
	token  bool
	text   string
	done   bool
	reason string
	stop   string // the stop string that matched
	err    error
	pin    *core.Pin
}

// lane is one choice; it receives what the core does.
type lane struct {
	call   *call
	index  int
	seq    *core.Seq
	tail   []byte // text held back because a stop string may begin in it
	count  int    // tokens delivered to the client, owned by the handler
	opened bool   // the first event went out, owned by the handler
	offset int    // bytes of text so far, owned by the handler
}

func (l *lane) push(it item) {
	it.lane = l
	c := l.call
	c.pending = append(c.pending, it)
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// Token implements core.Sink.
func (l *lane) Token(s *core.Seq, id int32, _ time.Time) bool {
	p := l.call.p
	if r := l.call.room; r != nil { // the answer waits for the KV's way
		r.held = append(r.held, item{lane: l, token: true, id: id, text: textOf(id)})
		return false
	}
	if len(p.stops) == 0 {
		l.push(item{token: true, id: id, text: textOf(id)})
		return l.stopID(s, id)
	}
	l.tail = token.AppendText(l.tail, id)
	if stop := l.match(); stop != "" && len(s.Out) >= p.minTokens {
		cut := bytes.Index(l.tail, []byte(stop))
		l.push(item{token: true, id: id, text: string(l.tail[:cut]), stop: stop})
		l.tail = nil
		return true
	}
	keep := min(p.hold, len(l.tail))
	if len(s.Out) >= s.MaxTokens || id == token.EOS {
		keep = 0
	}
	cut := len(l.tail) - keep
	for cut > 0 && cut < len(l.tail) && !utf8.RuneStart(l.tail[cut]) {
		cut--
	}
	l.push(item{token: true, id: id, text: string(l.tail[:cut])})
	l.tail = append(l.tail[:0], l.tail[cut:]...)
	return l.stopID(s, id)
}

func (l *lane) stopID(s *core.Seq, id int32) bool {
	for _, stop := range l.call.p.stopIDs {
		if stop == id && len(s.Out) >= l.call.p.minTokens {
			return true
		}
	}
	return false
}

// match returns the stop string that begins first in the held text.
func (l *lane) match() string {
	best, at := "", len(l.tail)
	for _, stop := range l.call.p.stops {
		if i := bytes.Index(l.tail, []byte(stop)); i >= 0 && i < at {
			best, at = stop, i
		}
	}
	return best
}

var texts = map[int32]string{}

func init() {
	for v := range uint64(4096) {
		for _, id := range []int32{token.Word(v), token.Symbol(v)} {
			texts[id] = token.Text([]int32{id})
		}
	}
}

// textOf is a token's text; that of answer tokens costs no allocation.
func textOf(id int32) string {
	if s, ok := texts[id]; ok {
		return s
	}
	return token.Text([]int32{id})
}

// Fetch implements core.Sink.
func (l *lane) Fetch(s *core.Seq, f core.Fetch) {
	srv := l.call.srv
	if l.call.p.meet != nil {
		srv.run(func() { srv.fetchPair(l.call, s, f) })
		return
	}
	srv.run(func() { srv.fetch(l.call, s, f) })
}

// Done implements core.Sink.
func (l *lane) Done(_ *core.Seq, r core.Result, _ time.Time) {
	it := item{lane: l, done: true, reason: r.Reason, err: r.Err, pin: r.Pin}
	if l.call.room != nil && r.Pin != nil {
		l.call.room.prefilled(it, r.Pin)
		return
	}
	l.push(it)
}

// take waits for items. It fails when the client left or the engine ended.
func (c *call) take() ([]item, error) {
	select {
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	case <-c.ready:
	}
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	items := c.pending
	c.pending = nil
	return items, nil
}

// submit gives the lanes to the core.
func (c *call) submit() (err error) {
	s := c.srv
	seqs := make([]*core.Seq, len(c.lanes))
	for i, l := range c.lanes {
		seqs[i] = l.seq
	}
	s.with(func(now time.Time) {
		if s.silent {
			err = errSilent
			return
		}
		if err = s.core.Submit(now, seqs...); err == nil {
			s.calls[c], c.submitted = struct{}{}, true
		}
	})
	return err
}

// close aborts what still runs.
func (c *call) close() {
	s := c.srv
	s.with(func(now time.Time) {
		delete(s.calls, c)
		for _, l := range c.lanes {
			if c.submitted {
				s.core.Abort(now, l.seq)
			}
		}
	})
}
