package conformance

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// prefill runs leg 1 of a body and returns a checked handoff.
func (s *suite) prefill(t *testing.T, p *engine.Client, path string, body []byte) *engine.Handoff {
	t.Helper()
	if reason, ok := engine.Splittable(s.Dialect, body); !ok {
		t.Fatal("not splittable:", reason)
	}
	leg, err := engine.Prefill(s.Dialect, body)
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
	layout, err := s.Dialect.Layout(s.limit(t), p)
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
func (s *suite) decode(t *testing.T, d *engine.Client, body []byte, h *engine.Handoff) (engine.Completion, error) {
	t.Helper()
	leg, err := engine.Decode(s.Dialect, body, h)
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

// whole is an engine that answers the pair's requests unsplit.
func (s *suite) whole(t *testing.T, p *engine.Client) *engine.Client {
	t.Helper()
	if s.Dialect.Concurrent() {
		return s.Single(t)
	}
	return p
}

// attempt runs both legs of a completion, buffered where the dialect allows it. The prefilling
// leg may have another body.
func (s *suite) attempt(t *testing.T, p, d *engine.Client, first, second []byte) (reply, error) {
	t.Helper()
	if s.Dialect.Concurrent() {
		return s.pair(t, p, d, "/v1/completions", streaming(first), streaming(second))
	}
	got, err := s.decode(t, d, second, s.prefill(t, p, "/v1/completions", first))
	return reply{text: got.Text, ids: got.TokenIDs, finish: got.FinishReason, usage: got.Usage, done: true}, err
}

func (s *suite) split(t *testing.T) {
	p, d := s.Pair(t)
	c := s.whole(t, p)
	for i, n := range []int{1, 15, 16, 17, 31, 32, 33, 200, 1000} {
		body := s.body(t, s.prompt(100+i, n), 8)
		want, err := c.CompleteBody(s.limit(t), body, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.attempt(t, p, d, body, body)
		if err != nil {
			t.Fatalf("%d tokens: %v", n, err)
		}
		if !slices.Equal(got.ids, want.TokenIDs) || got.text != want.Text || got.finish != want.FinishReason || !got.done || got.failed {
			t.Fatalf("%d tokens: split %v unsplit %v", n, got.ids, want.TokenIDs)
		}
		if got.usage.PromptTokens != n || got.usage.CompletionTokens != 8 {
			t.Fatalf("%d tokens: %+v", n, got.usage)
		}
		if s.Dialect.Concurrent() {
			continue
		}
		local, err := s.decode(t, d, body, nil)
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
	layout, err := s.Dialect.Layout(s.limit(t), p)
	if err != nil {
		t.Fatal(err)
	}
	const n = 200
	body := s.body(t, s.prompt(200, n), 8)
	p0, d0 := s.state(t, p), s.state(t, d)
	if _, err := s.attempt(t, p, d, body, body); err != nil {
		t.Fatal(err)
	}
	s.idle(t, p, 0)
	p1, d1 := s.state(t, p), s.state(t, d)
	blocks := (n + layout.BlockSize - 1) / layout.BlockSize
	if s.Dialect.Concurrent() {
		if p1.PromptTokens-p0.PromptTokens != n || d1.GenerationTokens-d0.GenerationTokens != 8 {
			t.Fatalf("producer took %v, decoder made %v", p1.PromptTokens-p0.PromptTokens, d1.GenerationTokens-d0.GenerationTokens)
		}
	} else if p1.LocalCompute-p0.LocalCompute != n || d1.Transferred-d0.Transferred != n || d1.LocalCompute != d0.LocalCompute {
		t.Fatalf("producer computed %v, decoder took %v and computed %v", p1.LocalCompute-p0.LocalCompute,
			d1.Transferred-d0.Transferred, d1.LocalCompute-d0.LocalCompute)
	}
	if d1.Transfers-d0.Transfers != 1 || d1.FailedTransfers != d0.FailedTransfers {
		t.Fatalf("%+v", d1)
	}
	if want := float64(blocks) * float64(layout.BytesPerBlock); layout.BytesPerBlock > 0 && d1.TransferBytes-d0.TransferBytes != want {
		t.Fatalf("%v bytes moved, want %v", d1.TransferBytes-d0.TransferBytes, want)
	}
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
		want := run(s.whole(t, p), streaming(body))
		got := reply{}
		if s.Dialect.Concurrent() {
			var err error
			if got, err = s.pair(t, p, d, path, streaming(body), streaming(body)); err != nil {
				t.Fatal(err)
			}
		} else {
			h := s.prefill(t, p, path, streaming(body))
			leg, err := engine.Decode(s.Dialect, streaming(body), h)
			if err != nil {
				t.Fatal(err)
			}
			got = run(d, leg)
		}
		if got.text != want.text || got.text == "" || !slices.Equal(got.ids, want.ids) || !got.done || got.failed {
			t.Fatalf("%s: split %+v unsplit %+v", path, got, want)
		}
		if got.usage.CompletionTokens != 12 || got.usage.PromptTokens != want.usage.PromptTokens {
			t.Fatalf("%s: %+v", path, got.usage)
		}
	}
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
	other := s.body(t, s.prompt(601, 160), 8)
	want, err := s.whole(t, p).CompleteBody(s.limit(t), other, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.attempt(t, p, d, s.body(t, s.prompt(600, 160), 8), other)
	s.differs(t, engine.Completion{TokenIDs: got.ids}, err, want)
}
