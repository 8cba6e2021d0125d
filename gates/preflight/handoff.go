package preflight

import (
	"context"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// HandoffRequest asks for real handoffs of one directed pair.
type HandoffRequest struct {
	Dialect string `json:"dialect"`
	Model   string `json:"model"`
	From    string `json:"from"`
	To      string `json:"to"`
	Prefill string `json:"prefill_url"`
	Decode  string `json:"decode_url"`
	Tokens  int    `json:"tokens"`
	// Long is the length of a second prompt, cut to what both engines take; 0 = none.
	Long int `json:"long_tokens"`
	// Firsts is how many more handoffs are timed to their first token.
	Firsts int `json:"first_token_samples"`
	// Switch lets processes that have a role play the other one meanwhile.
	Switch bool `json:"switch_roles,omitempty"`
	// Key names the variable that holds the engines' key, "" for none.
	Key string `json:"key,omitempty"`
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
	FirstMS   float64 `json:"first_token_ms"` // of the consumer's leg
	DecodeMS  float64 `json:"decode_ms"`
	// Restarted says that the consumer's process changed meanwhile.
	Restarted bool `json:"restarted"`
	// Dialect is set where both legs run at once. Neither process can run a prompt unsplit then:
	// Again are the tokens of a second run, Common those of a prompt that all pairs get, Transfers
	// what the counters of both tell.
	Dialect   string  `json:"dialect,omitempty"`
	Again     []int   `json:"again_token_ids,omitempty"`
	Common    []int   `json:"common_token_ids,omitempty"`
	Transfers float64 `json:"transfers,omitempty"`
	// Skipped says why the pair cannot hand over at all: the roles of its processes.
	Skipped string `json:"skipped,omitempty"`
	// Long is the same with a long prompt, in the first of a pair only.
	Long *Handed `json:"long,omitempty"`
	// FirstS are seconds from the consumer's leg to its first token once the pair has met.
	FirstS []float64 `json:"first_token_s,omitempty"`
}

const (
	pairOutput  = 16 // tokens compared
	firstOutput = 2  // tokens where only the first is timed
)

// pairing is a pair of engines that are asked.
type pairing struct {
	d      engine.Dialect
	p, c   *prober
	q      HandoffRequest
	number int
}

// handoff hands over a short and a long prompt, compares each with the same prompt unsplit on
// the producer, and times some more to their first token. Every prompt is new to both engines.
func handoff(ctx context.Context, q HandoffRequest) (Handed, error) {
	out := Handed{From: q.From, To: q.To, Prompt: q.Tokens}
	d, err := proberOf(q.Dialect)
	if err != nil {
		return out, err
	}
	if d.Concurrent() {
		return handoffTogether(ctx, d, q)
	}
	p, c, done, err := q.probers(ctx)
	if err != nil {
		return out, err
	}
	defer done()
	x := &pairing{d: d, p: p, c: c, q: q}
	room := min(p.limit, c.limit) - pairOutput
	short := min(max(q.Tokens, 8), room)
	if out, err = x.compare(ctx, short); err != nil {
		return out, err
	}
	length := short
	if long := min(q.Long, room); long > short {
		length = long
		l, err := x.compare(ctx, long)
		if err != nil {
			return out, fmt.Errorf("hand over a long prompt: %w", err)
		}
		out.Long = &l
		out.FirstS = append(out.FirstS, l.FirstMS/1e3)
	}
	for range q.Firsts {
		one := Handed{From: q.From, To: q.To}
		if _, err := x.split(ctx, length, firstOutput, &one); err != nil {
			return out, fmt.Errorf("hand over %s → %s: %w", q.From, q.To, err)
		}
		out.FirstS = append(out.FirstS, one.FirstMS/1e3)
	}
	return out, nil
}

// probers asks both engines, producer first; done closes what was opened.
func (q HandoffRequest) probers(ctx context.Context) (p, c *prober, done func(), err error) {
	if p, err = newProber(ctx, q.Prefill, q.Model, q.Key, 0); err != nil {
		return nil, nil, nil, err
	}
	if c, err = newProber(ctx, q.Decode, q.Model, q.Key, 0); err != nil {
		p.client.Close()
		return nil, nil, nil, err
	}
	return p, c, func() { c.client.Close(); p.client.Close() }, nil
}

// compare hands over one prompt of n tokens and runs it unsplit too.
func (x *pairing) compare(ctx context.Context, n int) (Handed, error) {
	out := Handed{From: x.q.From, To: x.q.To, Prompt: n}
	before, err := x.c.client.Metrics(ctx)
	if err != nil {
		return out, err
	}
	ids, err := x.split(ctx, n, pairOutput, &out)
	if err != nil {
		return out, fmt.Errorf("hand over %s → %s: %w", x.q.From, x.q.To, err)
	}
	after, err := x.c.client.Metrics(ctx)
	if err != nil {
		return out, err
	}
	count(x.d, before, after, &out)
	un, err := x.p.client.Complete(ctx, engine.CompletionRequest{Model: x.q.Model, PromptIDs: ids, MaxTokens: pairOutput, IgnoreEOS: true})
	if err != nil {
		return out, fmt.Errorf("run unsplit on %s: %w", x.q.From, err)
	}
	out.Unsplit = un.TokenIDs
	return out, nil
}

// split runs both legs of one request with a prompt of n tokens, which it returns, for some tokens
// of output.
func (x *pairing) split(ctx context.Context, n, output int, out *Handed) ([]int, error) {
	ids, err := x.p.prompt(ctx, n)
	if err != nil {
		return nil, err
	}
	body, err := streamBody(x.q.Model, ids, output)
	if err != nil {
		return nil, err
	}
	first, err := engine.Prefill(x.d, body)
	if err != nil {
		return nil, err
	}
	x.number++
	rid := fmt.Sprintf("preflight-%s-%s-%d-%d", x.q.From, x.q.To, time.Now().UnixNano(), x.number)
	begin := time.Now()
	leg1, err := x.p.client.CompleteBody(ctx, first, rid+"-p")
	if err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	out.PrefillMS = ms(begin)
	h, usage, err := x.d.ParseHandoff(leg1.Raw, time.Now())
	if err != nil {
		return nil, err
	}
	if err := x.d.Check(h, engine.Expect{PromptTokens: usage.PromptTokens}); err != nil {
		return nil, err
	}
	out.EngineID = engine.Printable(h.EngineID, 128)
	second, err := engine.Decode(x.d, body, h)
	if err != nil {
		return nil, err
	}
	begin = time.Now()
	t, err := streamed(ctx, x.c.client, second, rid+"-d", func() {
		if out.FirstMS == 0 {
			out.FirstMS = ms(begin)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	out.DecodeMS, out.Split = ms(begin), t.ids
	return ids, nil
}

func ms(begin time.Time) float64 { return float64(time.Since(begin).Microseconds()) / 1e3 }
