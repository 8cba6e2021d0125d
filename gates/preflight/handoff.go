package preflight

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// HandoffRequest asks for one real handoff.
type HandoffRequest struct {
	Dialect string `json:"dialect"`
	Model   string `json:"model"`
	From    string `json:"from"`
	To      string `json:"to"`
	Prefill string `json:"prefill_url"`
	Decode  string `json:"decode_url"`
	Tokens  int    `json:"tokens"`
}

// Handed is one handoff and the unsplit run that it must equal.
type Handed struct {
	From      string  `json:"from"`
	To        string  `json:"to"`
	Prompt    int     `json:"prompt_tokens"`
	Unsplit   []int   `json:"unsplit_token_ids"` // on the producer
	Split     []int   `json:"split_token_ids"`
	EngineID  string  `json:"producer_engine_id"`
	Moved     float64 `json:"external_kv_tokens"` // counter delta on the consumer
	Local     float64 `json:"local_compute_tokens"`
	Failed    float64 `json:"failed_transfers"`
	PrefillMS float64 `json:"prefill_ms"`
	DecodeMS  float64 `json:"decode_ms"`
}

const pairOutput = 16 // tokens compared

func dialect(name string) (engine.Dialect, error) {
	if name == "vllm" {
		return vllm.New(), nil
	}
	return nil, fmt.Errorf("hand over: dialect %q is not probed by this version", name)
}

// handoff prefills on one engine, decodes on the other and repeats the same prompt
// unsplit on the producer. The prompt is new to both engines.
func handoff(ctx context.Context, q HandoffRequest) (Handed, error) {
	out := Handed{From: q.From, To: q.To, Prompt: q.Tokens}
	d, err := dialect(q.Dialect)
	if err != nil {
		return out, err
	}
	p, err := newProber(ctx, q.Prefill, q.Model, 0)
	if err != nil {
		return out, err
	}
	defer p.client.Close()
	c, err := engine.NewClient(q.Decode, engine.Options{})
	if err != nil {
		return out, err
	}
	defer c.Close()
	ids, err := p.prompt(ctx, min(max(q.Tokens, 8), p.limit-pairOutput))
	if err != nil {
		return out, err
	}
	out.Prompt = len(ids)
	before, err := c.Metrics(ctx)
	if err != nil {
		return out, err
	}
	if err := split(ctx, d, p, c, q, ids, &out); err != nil {
		return out, fmt.Errorf("hand over %s → %s: %w", q.From, q.To, err)
	}
	after, err := c.Metrics(ctx)
	if err != nil {
		return out, err
	}
	count(d, before, after, &out)
	un, err := p.client.Complete(ctx, engine.CompletionRequest{Model: q.Model, PromptIDs: ids, MaxTokens: pairOutput, IgnoreEOS: true})
	if err != nil {
		return out, fmt.Errorf("run unsplit on %s: %w", q.From, err)
	}
	out.Unsplit = un.TokenIDs
	return out, nil
}

// split runs both legs of one request.
func split(ctx context.Context, d engine.Dialect, p *prober, c *engine.Client, q HandoffRequest, ids []int, out *Handed) error {
	body, err := (engine.CompletionRequest{Model: q.Model, PromptIDs: ids, MaxTokens: pairOutput, IgnoreEOS: true}).Body()
	if err != nil {
		return err
	}
	first, err := engine.Prefill(d, body)
	if err != nil {
		return err
	}
	rid := fmt.Sprintf("preflight-%s-%s-%d", q.From, q.To, time.Now().UnixNano())
	begin := time.Now()
	leg1, err := p.client.CompleteBody(ctx, first, rid+"-p")
	if err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	out.PrefillMS = ms(begin)
	h, usage, err := d.ParseHandoff(leg1.Raw, time.Now())
	if err != nil {
		return err
	}
	if err := d.Check(h, engine.Expect{PromptTokens: usage.PromptTokens}); err != nil {
		return err
	}
	out.EngineID = engine.Printable(h.EngineID, 128)
	second, err := engine.Decode(d, body, h)
	if err != nil {
		return err
	}
	begin = time.Now()
	leg2, err := c.CompleteBody(ctx, second, rid+"-d")
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	out.DecodeMS, out.Split = ms(begin), leg2.TokenIDs
	return nil
}

func ms(begin time.Time) float64 { return float64(time.Since(begin).Microseconds()) / 1e3 }

// count fills in what the consumer's counters moved by.
func count(d engine.Dialect, before, after engine.Samples, out *Handed) {
	b, _ := d.State(before) // a missing gauge does not matter here; the counters are compared
	a, _ := d.State(after)
	out.Moved = a.Transferred - b.Transferred
	out.Local = a.LocalCompute - b.LocalCompute
	out.Failed = a.FailedTransfers - b.FailedTransfers
}

// moved reports whether the counters show the prompt's KV arriving: all but what the
// consumer recomputes, which is at most one block's rest and the last token.
func (h Handed) moved() bool { return h.Moved > 0 && h.Moved >= float64(h.Prompt)/2 && h.Failed == 0 }

func (h Handed) equal() bool { return len(h.Split) > 0 && slices.Equal(h.Split, h.Unsplit) }
