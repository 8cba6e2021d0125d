package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// prefill runs leg 1 of a body and returns a checked handoff.
func (s *suite) prefill(t *testing.T, p *engine.Client, path string, body []byte) engine.Handoff {
	t.Helper()
	if reason, ok := s.Dialect.Splittable(body); !ok {
		t.Fatal("not splittable:", reason)
	}
	leg, err := s.Dialect.Prefill(body)
	if err != nil {
		t.Fatal(err)
	}
	answer := s.open(s.limit(t), t, p, path, leg)
	defer answer.Close()
	raw, err := io.ReadAll(answer)
	if err != nil {
		t.Fatal(err)
	}
	h, usage, err := s.Dialect.ParseHandoff(raw, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	layout, err := p.CacheLayout(s.limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Dialect.Check(h, engine.Expect{BlockSize: layout.BlockSize, PromptTokens: usage.PromptTokens}); err != nil {
		t.Fatal(err)
	}
	if usage.CompletionTokens != 1 {
		t.Fatal("leg 1 generated", usage.CompletionTokens)
	}
	return h
}

// decode runs leg 2, buffered.
func (s *suite) decode(t *testing.T, d *engine.Client, body []byte, h engine.Handoff) (engine.Completion, error) {
	t.Helper()
	leg, err := s.Dialect.Decode(body, h)
	if err != nil {
		t.Fatal(err)
	}
	return d.CompleteBody(s.limit(t), leg, "")
}

func (s *suite) body(t *testing.T, ids []int, tokens int) []byte {
	t.Helper()
	b, err := s.request(ids, tokens).Body()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *suite) split(t *testing.T) {
	p, d := s.Pair(t)
	for i, n := range []int{1, 15, 16, 17, 31, 32, 33, 200, 1000} {
		body := s.body(t, s.prompt(100+i, n), 8)
		want, err := p.CompleteBody(s.limit(t), body, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.decode(t, d, body, s.prefill(t, p, "/v1/completions", body))
		if err != nil {
			t.Fatalf("%d tokens: %v", n, err)
		}
		if !slices.Equal(got.TokenIDs, want.TokenIDs) || got.Text != want.Text || got.FinishReason != want.FinishReason {
			t.Fatalf("%d tokens: split %v unsplit %v", n, got.TokenIDs, want.TokenIDs)
		}
		if got.Usage.PromptTokens != n || got.Usage.CompletionTokens != 8 {
			t.Fatalf("%d tokens: %+v", n, got.Usage)
		}
		local, err := s.decode(t, d, body, engine.Handoff{})
		if err != nil || !slices.Equal(local.TokenIDs, want.TokenIDs) {
			t.Fatalf("%d tokens without the handoff: %v %v", n, local.TokenIDs, err)
		}
	}
	s.idle(t, p, 0)
	s.idle(t, d, 0)
}

// counters is the proof that KV moved, as a preflight takes it.
func (s *suite) counters(t *testing.T) {
	p, d := s.Pair(t)
	layout, err := p.CacheLayout(s.limit(t))
	if err != nil {
		t.Fatal(err)
	}
	const n = 200
	body := s.body(t, s.prompt(200, n), 8)
	p0, d0 := s.state(t, p), s.state(t, d)
	h := s.prefill(t, p, "/v1/completions", body)
	if s.state(t, p).Usage == 0 {
		t.Fatal("the producer pins nothing")
	}
	if _, err := s.decode(t, d, body, h); err != nil {
		t.Fatal(err)
	}
	p1, d1 := s.state(t, p), s.state(t, d)
	blocks := (n + layout.BlockSize - 1) / layout.BlockSize
	if p1.LocalCompute-p0.LocalCompute != n || d1.Transferred-d0.Transferred != n || d1.LocalCompute != d0.LocalCompute {
		t.Fatalf("producer computed %v, decoder took %v and computed %v", p1.LocalCompute-p0.LocalCompute,
			d1.Transferred-d0.Transferred, d1.LocalCompute-d0.LocalCompute)
	}
	if d1.Transfers-d0.Transfers != 1 || d1.FailedTransfers != d0.FailedTransfers {
		t.Fatalf("%+v", d1)
	}
	if want := float64(blocks) * float64(layout.BytesPerBlock); layout.BytesPerBlock > 0 && d1.TransferBytes-d0.TransferBytes != want {
		t.Fatalf("%v bytes moved, want %v", d1.TransferBytes-d0.TransferBytes, want)
	}
	s.idle(t, p, 0)
	if late := s.state(t, p).LateNotices; late != p0.LateNotices {
		t.Fatal("a right handoff counts as late")
	}
}

func (s *suite) splitStream(t *testing.T) {
	p, d := s.Pair(t)
	chat := []byte(`{"model":"` + s.Model + `","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"What does import do, and why is the sea so blue in summer?"}],"max_tokens":12,"temperature":0,"ignore_eos":true}`)
	for path, body := range map[string][]byte{
		"/v1/completions":      s.body(t, s.prompt(300, 90), 12),
		"/v1/chat/completions": chat,
	} {
		run := func(c *engine.Client, b []byte) reply {
			stream := s.open(s.limit(t), t, c, path, b)
			defer stream.Close()
			return collect(t, stream)
		}
		want := run(p, streaming(body))
		h := s.prefill(t, p, path, streaming(body))
		leg, err := s.Dialect.Decode(streaming(body), h)
		if err != nil {
			t.Fatal(err)
		}
		got := run(d, leg)
		if got.text != want.text || got.text == "" || !slices.Equal(got.ids, want.ids) || !got.done || got.failed {
			t.Fatalf("%s: split %+v unsplit %+v", path, got, want)
		}
		if got.usage.CompletionTokens != 12 || got.usage.PromptTokens != want.usage.PromptTokens {
			t.Fatalf("%s: %+v", path, got.usage)
		}
	}
}

func (s *suite) refused(t *testing.T, d *engine.Client, body []byte, h engine.Handoff) {
	t.Helper()
	var se *engine.StatusError
	if _, err := s.decode(t, d, body, h); !errors.As(err, &se) || se.Status < 500 {
		t.Fatalf("want a failure of the engine, got %v", err)
	}
	if err := d.Health(s.limit(t)); err != nil {
		t.Fatal("the engine did not survive:", err)
	}
	if got, err := s.decode(t, d, body, engine.Handoff{}); err != nil || len(got.TokenIDs) != 8 {
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

// differs holds when a decode failed or gave other tokens than the unsplit run.
func (s *suite) differs(t *testing.T, got engine.Completion, err error, want engine.Completion) {
	t.Helper()
	if err == nil && slices.Equal(got.TokenIDs, want.TokenIDs) {
		t.Fatal("wrong KV gave the right answer: the engine's text does not depend on its KV")
	}
}

func (s *suite) otherPrompt(t *testing.T) {
	p, d := s.Pair(t)
	h := s.prefill(t, p, "/v1/completions", s.body(t, s.prompt(600, 160), 8))
	other := s.body(t, s.prompt(601, 160), 8)
	want, err := p.CompleteBody(s.limit(t), other, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.decode(t, d, other, h)
	s.differs(t, got, err, want)
}

// maxFlood bounds the tokens that overwrite a cache.
const maxFlood = 64 << 10

// recycled uses a handoff a second time, after other prompts took its blocks.
func (s *suite) recycled(t *testing.T) {
	p, d := s.Pair(t)
	layout, err := p.CacheLayout(s.limit(t))
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
	late := s.state(t, p).LateNotices
	for i := 0; i*1000 < 2*room; i++ {
		s.complete(t, p, s.request(s.prompt(800+i, 1000), 1))
	}
	got, err := s.decode(t, d, body, h)
	s.differs(t, got, err, want)
	for end := time.Now().Add(s.Freed); s.state(t, p).LateNotices == late; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the producer does not count the late notice")
		}
	}
}

func (s *suite) abortSplit(t *testing.T) {
	p, d := s.Pair(t)
	body := s.body(t, s.prompt(900, 160), 1500)
	h := s.prefill(t, p, "/v1/completions", body)
	leg, err := s.Dialect.Decode(streaming(body), h)
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
