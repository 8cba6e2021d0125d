package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

func (s *suite) refused(t *testing.T, d *engine.Client, body []byte, h *engine.Handoff) {
	t.Helper()
	var se *engine.StatusError
	if _, err := s.decode(t, d, body, h); !errors.As(err, &se) || se.Status < 500 {
		t.Fatalf("want a failure of the engine, got %v", err)
	}
	if err := d.Health(s.limit(t)); err != nil {
		t.Fatal("the engine did not survive:", err)
	}
	if got, err := s.decode(t, d, body, nil); err != nil || len(got.TokenIDs) != 8 {
		t.Fatal("the engine does not go on:", err)
	}
}

func (s *suite) sameEngine(t *testing.T) {
	p, _ := s.Pair(t)
	body := s.body(t, s.prompt(400, 100), 8)
	s.refused(t, p, body, s.prefill(t, p, "/v1/completions", body))
}

func (s *suite) unknownProcess(t *testing.T) {
	p, d := s.Pair(t)
	body := s.body(t, s.prompt(500, 100), 8)
	h := s.prefill(t, p, "/v1/completions", body)
	h.Raw = json.RawMessage(strings.ReplaceAll(string(h.Raw), h.EngineID, "00000000-0000-4000-8000-000000000000"))
	s.refused(t, d, body, h)
}

// maxFlood bounds the tokens that overwrite a cache.
const maxFlood = 64 << 10

// recycled uses a handoff a second time, after other prompts took its blocks. Whether the
// producer counts a late notice differs: a real one has forgotten the request.
func (s *suite) recycled(t *testing.T) {
	p, d := s.Pair(t)
	layout, err := s.Dialect.Layout(s.limit(t), p)
	if err != nil {
		t.Fatal(err)
	}
	room := layout.BlockSize * layout.Blocks
	if room > maxFlood {
		t.Skipf("cache of %d tokens is too large to overwrite", room)
	}
	body := s.body(t, s.prompt(700, 160), 8)
	want, err := p.CompleteBody(s.limit(t), body, "")
	if err != nil {
		t.Fatal(err)
	}
	h := s.prefill(t, p, "/v1/completions", body)
	if got, err := s.decode(t, d, s.body(t, s.prompt(701, 160), 8), h); err != nil {
		t.Fatal(got, err) // spends the handoff without filling d's cache with the prompt
	}
	s.idle(t, p, 0)
	for i := 0; i*1000 < 2*room; i++ {
		s.complete(t, p, s.request(s.prompt(800+i, 1000), 1))
	}
	got, err := s.decode(t, d, body, h)
	s.differs(t, got, err, want)
}

func (s *suite) abortSplit(t *testing.T) {
	p, d := s.Pair(t)
	body := s.body(t, s.prompt(900, 160), 1500)
	h := s.prefill(t, p, "/v1/completions", body)
	leg, err := engine.Decode(s.Dialect, streaming(body), h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.limit(t))
	defer cancel()
	stream := s.open(ctx, t, d, "/v1/completions", leg)
	s.started(t, d)
	cancel()
	stream.Close()
	s.idle(t, d, 0)
	s.idle(t, p, 0)
}
