package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

const (
	paceTokens = 16      // that a probe of pace asks for
	paceBytes  = 1 << 20 // of its answer
)

// pace asks an engine for a few tokens, past every client and the relay, and returns their
// interval over the one that its curve predicts for what it holds beside them. It is 0, which
// tells nothing, on an engine that prefills or holds more than was measured, and where roles
// are states of the engine: there one token is all that can be asked for.
func (r *Router) pace(ctx context.Context, n *node) (float64, error) {
	defer r.own.do(func() { n.local++ })
	if r.dialect.Concurrent() {
		return 0, r.set.token(ctx, n)
	}
	before := r.predicted(n)
	interval, err := r.set.tokenInterval(ctx, n)
	after := r.predicted(n)
	if err != nil || before == 0 || after == 0 {
		return 0, err
	}
	return interval / max(before, after), nil
}

// predicted is the token interval of an engine with one request more; 0 = the curve does not
// tell.
func (r *Router) predicted(n *node) (interval float64) {
	r.own.do(func() {
		requests, kv := 1, paceTokens
		for l := range n.decoding {
			requests++
			kv += l.input + int(l.tokens.Load())
		}
		if len(n.prefilling) == 0 && n.curve.Covers(requests, kv) {
			interval = n.curve.Interval(requests, kv)
		}
	})
	return interval
}

// tokenInterval is the mean seconds between the tokens of a short answer.
func (s *settings) tokenInterval(ctx context.Context, n *node) (float64, error) {
	body, err := json.Marshal(map[string]any{"model": s.Fleet.Model, "prompt": "probe " + requestID(), "max_tokens": paceTokens,
		"min_tokens": paceTokens, "ignore_eos": true, "temperature": 0, "stream": true})
	if err != nil {
		return 0, err
	}
	resp, err := n.control.Do(ctx, "/v1/completions", body, "probe-"+requestID())
	if err != nil {
		return 0, err
	}
	if err := engine.Refused(resp); err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var cut splitter
	var first, last time.Time
	tokens := 0
	buf := make([]byte, 4<<10)
	for from := io.LimitReader(resp.Body, paceBytes); ; {
		k, err := from.Read(buf)
		cut.add(buf[:k])
		for e := cut.next(); e != nil; e = cut.next() {
			name, payload := parts(e)
			switch kind, _ := classify(name, payload, nil); kind {
			case kindToken:
				if last = time.Now(); tokens == 0 {
					first = last
				}
				tokens++
			case kindError, kindTorn:
				return 0, errors.New("probe pace: the engine sent an error, or no JSON")
			case kindDone:
				if tokens < 2 {
					return 0, fmt.Errorf("probe pace: %d of %d tokens came", tokens, paceTokens)
				}
				return last.Sub(first).Seconds() / float64(tokens-1), nil
			}
		}
		if err != nil {
			return 0, fmt.Errorf("probe pace: read the answer: %w", err)
		}
	}
}
