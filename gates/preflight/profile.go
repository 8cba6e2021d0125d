package preflight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// ProfileRequest asks for the measurements of one engine.
type ProfileRequest struct {
	IID    string          `json:"iid"`
	URL    string          `json:"url"`
	Model  string          `json:"model"`
	Seed   uint64          `json:"seed"`
	Points fleet.Profiling `json:"points"`
}

// Profiled are the measurements of one engine. The curve follows from the samples.
type Profiled struct {
	IID      string          `json:"iid"`
	Samples  profile.Samples `json:"samples"`
	Capacity int             `json:"kv_capacity_tokens"`
	TookMS   int64           `json:"took_ms"`
}

// HostVerbs are what gate F asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{
		"engine-profile": gates.Answer(measure),
		"handoff":        gates.Answer(handoff),
	}
}

// prober sends prompts that no engine has seen.
type prober struct {
	client *engine.Client
	model  string
	rng    *rand.Rand
	limit  int // longest prompt, tokens
}

func newProber(ctx context.Context, url, model string, seed uint64) (*prober, error) {
	c, err := engine.NewClient(url, engine.Options{})
	if err != nil {
		return nil, err
	}
	models, err := c.Models(ctx)
	if err != nil {
		return nil, err
	}
	p := &prober{client: c, model: model, rng: rand.New(rand.NewPCG(seed, uint64(time.Now().UnixNano()))), limit: 1 << 20}
	for _, m := range models {
		if m.ID == model && m.MaxModelLen > 0 {
			p.limit = m.MaxModelLen
		}
	}
	return p, nil
}

// prompt makes text of about n tokens and cuts it to exactly n by the engine's own count.
func (p *prober) prompt(ctx context.Context, n int) ([]int, error) {
	if n < 1 {
		return nil, fmt.Errorf("make a prompt: the engine takes %d tokens at most, which leaves no room", p.limit)
	}
	var b strings.Builder
	for b.Len() < n*6+16 {
		b.WriteString(strconv.FormatUint(p.rng.Uint64(), 36))
		b.WriteByte(' ')
	}
	t, err := p.client.Tokenize(ctx, engine.TokenizeRequest{Model: p.model, Prompt: b.String()})
	if err != nil {
		return nil, err
	}
	if len(t.IDs) < n {
		return nil, fmt.Errorf("make a prompt of %d tokens: the engine counts %d", n, len(t.IDs))
	}
	return t.IDs[:n], nil
}

// measure sweeps prompt lengths on the idle engine, then cohorts that decode together.
func measure(ctx context.Context, q ProfileRequest) (Profiled, error) {
	begin := time.Now()
	p, err := newProber(ctx, q.URL, q.Model, q.Seed)
	if err != nil {
		return Profiled{}, err
	}
	defer p.client.Close()
	out := Profiled{IID: q.IID}
	layout, err := p.client.CacheLayout(ctx)
	if err != nil {
		return out, err
	}
	out.Capacity = layout.BlockSize * layout.Blocks
	lengths := slices.DeleteFunc(slices.Clone(q.Points.PrefillTokens), func(n int) bool { return n < 1 || n+1 > p.limit })
	if _, err := p.prefill(ctx, min(16, p.limit-1)); err != nil { // the first request of a process is slow
		return out, err
	}
	for _, n := range lengths {
		for range max(1, q.Points.PrefillRepeats) {
			s, err := p.prefill(ctx, n)
			if err != nil {
				return out, fmt.Errorf("profile %s: prefill of %d tokens: %w", q.IID, n, err)
			}
			out.Samples.Prefill = append(out.Samples.Prefill, s)
		}
	}
	for _, requests := range q.Points.DecodeRequests {
		for _, n := range q.Points.DecodeTokens {
			if n+q.Points.OutputTokens > p.limit {
				continue
			}
			s, err := p.decode(ctx, requests, n, q.Points.OutputTokens)
			if err != nil {
				return out, fmt.Errorf("profile %s: %d decoding %d tokens: %w", q.IID, requests, n, err)
			}
			out.Samples.Decode = append(out.Samples.Decode, s)
		}
	}
	out.TookMS = time.Since(begin).Milliseconds()
	return out, nil
}

func (p *prober) prefill(ctx context.Context, n int) (profile.PrefillSample, error) {
	ids, err := p.prompt(ctx, n)
	if err != nil {
		return profile.PrefillSample{}, err
	}
	begin := time.Now()
	_, err = p.client.Complete(ctx, engine.CompletionRequest{Model: p.model, PromptIDs: ids, MaxTokens: 1, IgnoreEOS: true})
	return profile.PrefillSample{Tokens: n, Seconds: time.Since(begin).Seconds()}, err
}

// decode lets a cohort generate together and measures the mean gap while all are resident.
func (p *prober) decode(ctx context.Context, requests, n, tokens int) (profile.DecodeSample, error) {
	prompts := make([][]int, requests)
	for i := range prompts {
		ids, err := p.prompt(ctx, n)
		if err != nil {
			return profile.DecodeSample{}, err
		}
		prompts[i] = ids
	}
	streams := make([]timing, requests)
	g, gctx := errgroup.WithContext(ctx)
	for i, ids := range prompts {
		g.Go(func() (err error) {
			streams[i], err = p.stream(gctx, ids, tokens)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return profile.DecodeSample{}, err
	}
	return cohort(streams, n, tokens)
}
