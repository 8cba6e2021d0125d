package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

func (s *suite) surface(t *testing.T) {
	c := s.Single(t)
	ctx := s.limit(t)
	if err := c.Health(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Dialect.Ready(ctx, c); err != nil {
		t.Fatal(err)
	}
	id, err := s.Dialect.Identity(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Dialect.Identity(ctx, c)
	if err != nil || !id.Same(again) {
		t.Fatalf("identity moves: %+v %+v %v", id, again, err)
	}
	models, err := c.Models(ctx)
	if err != nil || len(models) == 0 || models[0].ID != s.Model || models[0].MaxModelLen < 1 || models[0].Root == "" {
		t.Fatalf("%+v %v", models, err)
	}
	st := s.state(t, c)
	if st.Running != 0 || st.Usage != 0 || !st.Awake || (st.ProcessStart != 0 && st.ProcessStart != id.ProcessStart) {
		t.Fatalf("%+v", st)
	}
	if l, err := s.Dialect.Layout(ctx, c); err != nil || l.BlockSize < 1 || l.Blocks < 1 {
		t.Fatalf("%+v %v", l, err)
	}
	s.tokenizer(t, c)
}

func (s *suite) tokenizer(t *testing.T, c *engine.Client) {
	const text = "The import statement, naïve 🐋 and\nTABS\t too."
	got, err := c.Tokenize(s.limit(t), engine.TokenizeRequest{Model: s.Model, Prompt: text})
	if err != nil || got.Count != len(got.IDs) || got.Count == 0 {
		t.Fatalf("%+v %v", got, err)
	}
	var back struct {
		Prompt string `json:"prompt"`
	}
	if err := c.PostJSON(s.limit(t), "/detokenize", map[string]any{"model": s.Model, "tokens": got.IDs}, &back); err != nil || back.Prompt != text {
		t.Fatalf("%q %v", back.Prompt, err)
	}
	answer := s.complete(t, c, engine.CompletionRequest{Model: s.Model, Prompt: text, MaxTokens: 2, IgnoreEOS: true})
	if answer.Usage.PromptTokens != got.Count || !slices.Equal(answer.PromptIDs, got.IDs) {
		t.Fatalf("tokenizer says %d, the answer %d", got.Count, answer.Usage.PromptTokens)
	}
}

// reply is a stream put together.
type reply struct {
	text   string
	ids    []int
	finish string
	usage  engine.Usage
	done   bool
	failed bool
}

// collect reads a stream of completions or chat; every event must be JSON.
func collect(t *testing.T, r io.Reader) (out reply) {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events(b) {
		if string(e) == "[DONE]" {
			out.done = true
			continue
		}
		var w struct {
			Error   json.RawMessage
			Usage   *engine.Usage
			Choices []struct {
				Text   string
				Delta  struct{ Content string }
				IDs    []int   `json:"token_ids"`
				Finish *string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal(e, &w); err != nil || out.done {
			t.Fatalf("event %s: %v", e, err)
		}
		if w.Usage != nil {
			out.usage = *w.Usage
		}
		out.failed = out.failed || len(w.Error) > 0
		for _, c := range w.Choices {
			out.text += c.Text + c.Delta.Content
			out.ids = append(out.ids, c.IDs...)
			if c.Finish != nil {
				out.finish = *c.Finish
			}
		}
	}
	return out
}

// events cuts a body into the data of its events.
func events(b []byte) (out [][]byte) {
	for part := range bytes.SplitSeq(b, []byte("\n\n")) {
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(part), []byte("data: ")); ok {
			out = append(out, data)
		}
	}
	return out
}

func (s *suite) open(ctx context.Context, t *testing.T, c *engine.Client, path string, body []byte) io.ReadCloser {
	t.Helper()
	resp, err := c.Do(ctx, path, body, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Refused(resp); err != nil {
		t.Fatal(err)
	}
	return resp.Body
}

func streaming(body []byte) []byte {
	return bytes.Replace(body, []byte("{"), []byte(`{"stream":true,"stream_options":{"include_usage":true},`), 1)
}

func (s *suite) streamed(t *testing.T) {
	c := s.Single(t)
	for _, n := range []int{1, 2, 40} {
		r := s.request(s.prompt(1, 50), n)
		want := s.complete(t, c, r)
		body, err := r.Body()
		if err != nil {
			t.Fatal(err)
		}
		stream := s.open(s.limit(t), t, c, "/v1/completions", streaming(body))
		got := collect(t, stream)
		stream.Close()
		if got.text != want.Text || !slices.Equal(got.ids, want.TokenIDs) || got.finish != want.FinishReason || !got.done {
			t.Fatalf("streamed %+v, buffered %q %v", got, want.Text, want.TokenIDs)
		}
		if got.usage.CompletionTokens != n || got.usage.PromptTokens != 50 || got.usage.TotalTokens != want.Usage.TotalTokens {
			t.Fatalf("streamed %+v, buffered %+v", got.usage, want.Usage)
		}
	}
}

func (s *suite) abort(t *testing.T) {
	for _, kind := range []string{"streamed", "buffered"} {
		t.Run(kind, func(t *testing.T) {
			c := s.Single(t)
			body, err := s.request(s.prompt(2, 200), 1500).Body()
			if err != nil {
				t.Fatal(err)
			}
			if kind == "streamed" {
				body = streaming(body)
			}
			before := s.state(t, c)
			ctx, cancel := context.WithCancel(s.limit(t))
			defer cancel()
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if resp, err := c.Do(ctx, "/v1/completions", body, ""); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			s.started(t, c)
			cancel()
			<-gone
			s.idle(t, c, 0)
			after := s.state(t, c)
			if after.FinishedOK != before.FinishedOK {
				t.Fatal("the request ended by itself: the test shows nothing")
			}
		})
	}
}

func (s *suite) started(t *testing.T, c *engine.Client) {
	t.Helper()
	s.until(t, "request does not start", func() bool { return s.state(t, c).Running > 0 })
}

// until asks again and again for a state that a request under way brings about.
func (s *suite) until(t *testing.T, failure string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(s.Within); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(failure)
		}
	}
}

// named puts the target's model into a recorded body.
func (s *suite) named(body string) string {
	return strings.ReplaceAll(body, `"model":"tiny"`, `"model":"`+s.Model+`"`)
}
