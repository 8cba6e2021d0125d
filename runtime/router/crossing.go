package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// maxProbeAnswer bounds what is read of the one token that a probe asks for, in bytes.
const maxProbeAnswer = 256 << 10

// errOtherLeg ends a leg whose other one has failed first.
var errOtherLeg = errors.New("ended with the other leg")

// errProbeStream is below every error of a probe whose stream told it.
var errProbeStream = errors.New("the probe's stream is bad")

// crossing is how one request of the router's own went over two engines. A nil pair of
// errors is a passed probe.
type crossing struct {
	produce error // of the prefilling leg; the other one then says nothing
	consume error // of the decoding leg
}

func (c crossing) passed() bool { return c.produce == nil && c.consume == nil }

// legLimit is the time that one leg of a probe may take.
func (s *settings) legLimit() time.Duration { return max(s.firstToken, s.health) }

// cross prefills a unique prompt on p, of which f are the facts, and decodes one token on d.
func (s *settings) cross(ctx context.Context, p *node, f facts, d *node) crossing {
	id := "probe-" + requestID()
	body, err := s.probeBody(id, f)
	if err != nil {
		return crossing{produce: err}
	}
	if s.dialect.Concurrent() {
		return s.crossAtOnce(ctx, p, d, body, id)
	}
	h, err := s.produce(ctx, p, f, body, id)
	if err != nil {
		return crossing{produce: err}
	}
	return crossing{consume: s.consume(ctx, d, body, h, id)}
}

// alone asks an engine for one streamed token of a prompt that it prefills itself.
func (s *settings) alone(ctx context.Context, n *node, f facts) error {
	n.probed.Add(1)
	id := "probe-" + requestID()
	body, err := s.probeBody(id, f)
	if err != nil {
		return err
	}
	return s.consume(ctx, n, body, nil, id)
}

// probeBody is a streamed request for one token whose prompt fills two blocks of its
// producer and shares none with any other.
func (s *settings) probeBody(id string, f facts) (splice.Object, error) {
	words := 2 * max(16, f.blockSize)
	if f.context > 0 {
		words = min(words, f.context/4)
	}
	raw, err := json.Marshal(map[string]any{"model": s.Fleet.Model, "prompt": "probe " + id + strings.Repeat(" sea", max(1, words)), "max_tokens": 1,
		"min_tokens": 1, "ignore_eos": true, "temperature": 0, "stream": true})
	if err != nil {
		return splice.Object{}, fmt.Errorf("write probe: %w", err)
	}
	return splice.Parse(raw)
}

// produce runs the prefilling leg and judges its handoff.
func (s *settings) produce(ctx context.Context, p *node, f facts, body splice.Object, id string) (*engine.Handoff, error) {
	ctx, cancel := context.WithTimeout(ctx, s.legLimit())
	defer cancel()
	p.probed.Add(1)
	leg, err := s.dialect.Prefill(body)
	if err != nil {
		return nil, err
	}
	raw, err := s.leg(ctx, p, leg, id+"-prefill")
	if err != nil {
		return nil, err
	}
	h, u, err := s.dialect.ParseHandoff(raw, time.Now())
	if err != nil {
		return nil, err
	}
	return h, s.dialect.Check(h, engine.Expect{PromptTokens: u.PromptTokens, BlockSize: f.blockSize, RequestID: id + "-prefill"})
}

// consume runs the decoding leg, with an empty handoff the only one.
func (s *settings) consume(ctx context.Context, d *node, body splice.Object, h *engine.Handoff, id string) error {
	ctx, cancel := context.WithTimeout(ctx, s.legLimit())
	defer cancel()
	leg, err := s.dialect.Decode(body, h)
	if err != nil {
		return err
	}
	raw, err := s.leg(ctx, d, leg, id+"-decode")
	if err != nil {
		return err
	}
	return oneToken(raw)
}

// crossAtOnce is cross where both legs run at the same time. The leg that fails first ends
// the other one, and is the one that counts.
func (s *settings) crossAtOnce(ctx context.Context, p, d *node, body splice.Object, id string) crossing {
	first, second, err := s.pairOf(ctx, p, body, id)
	if err != nil {
		return crossing{produce: err}
	}
	ctx, stop := context.WithTimeout(ctx, s.legLimit())
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() {
		_, err := s.leg(ctx, p, first, id+"-prefill")
		if err != nil {
			cancel(errOtherLeg)
		}
		done <- err
	}()
	raw, consume := s.leg(ctx, d, second, id+"-decode")
	if consume == nil {
		consume = oneToken(raw)
	}
	if consume != nil {
		cancel(errOtherLeg)
	}
	produce := <-done
	if errors.Is(context.Cause(ctx), errOtherLeg) {
		// Whose own failure it was: the other one only saw its context end.
		ended := func(err error) bool { return errors.Is(err, errOtherLeg) || errors.Is(err, context.Canceled) }
		if ended(produce) {
			produce = nil
		} else if ended(consume) {
			consume = nil
		}
	}
	return crossing{produce, consume}
}

func (s *settings) pairOf(ctx context.Context, p *node, body splice.Object, id string) (first, second []byte, err error) {
	m, ok := s.dialect.(engine.Meeter)
	if !ok {
		return nil, nil, engine.ErrSerial
	}
	ctx, cancel := context.WithTimeout(ctx, s.health)
	defer cancel()
	meet, err := m.Meet(ctx, p.control)
	if err != nil {
		return nil, nil, err
	}
	meet.Room = engine.NewRoom()
	if first, second, err = s.dialect.Pair(body, false, meet); err != nil {
		return nil, nil, err
	}
	if t, ok := s.dialect.(engine.Tagger); ok {
		if first, err = t.Tag(first, id+"-prefill"); err == nil {
			second, err = t.Tag(second, id+"-decode")
		}
	}
	return first, second, err
}

// leg sends one leg over the control pool and reads its whole answer.
func (s *settings) leg(ctx context.Context, n *node, body []byte, id string) ([]byte, error) {
	resp, err := n.control.Do(ctx, "/v1/completions", body, id)
	if err != nil {
		return nil, err
	}
	if err := engine.Refused(resp); err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return engine.ReadAll(resp.Body, "probe", maxProbeAnswer)
}

// oneToken judges the stream of a probe: output, no error, and its end.
func oneToken(raw []byte) error {
	var split splitter
	split.add(raw)
	begun := false
	for e := split.next(); e != nil; e = split.next() {
		name, payload := parts(e)
		k, c := classify(name, payload, nil)
		switch k {
		case kindTorn:
			return fmt.Errorf("%w: it holds what is no JSON", errProbeStream)
		case kindError:
			what := ""
			if c != nil {
				what = ": " + engine.Printable(string(c.err), 200)
			}
			return fmt.Errorf("%w: it holds an error%s", errProbeStream, what)
		case kindToken:
			begun = true
		case kindDone:
			if !begun {
				return fmt.Errorf("%w: it ended without a token", errProbeStream)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: it broke off", errProbeStream)
}
