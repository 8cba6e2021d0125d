package preflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	IID     string          `json:"iid"`
	URL     string          `json:"url"`
	Dialect string          `json:"dialect"`
	Model   string          `json:"model"`
	Seed    uint64          `json:"seed"`
	Points  fleet.Profiling `json:"points"`
	// Peer answers with an engine that has a role, nil for none.
	Peer *PeerAt `json:"peer,omitempty"`
	// Key names the variable that holds the engines' key, "" for none.
	Key string `json:"key,omitempty"`
}

// Profiled are the measurements of one engine, in the order of measuring. The curve follows
// from the samples.
type Profiled struct {
	IID      string          `json:"iid"`
	Samples  profile.Samples `json:"samples"`
	Capacity int             `json:"kv_capacity_tokens"`
	TookMS   int64           `json:"took_ms"`
	// Rounds over the sweep, and why no further one was made: settled, rounds or budget.
	Rounds int    `json:"rounds"`
	Ended  string `json:"ended"`
	// Beside and Warm are what no curve is fitted through.
	Beside []Beside `json:"beside_decode"`
	Warm   []Warm   `json:"warm_prefix"`
	// Discarded requests warmed the engine up.
	Discarded int `json:"discarded"`
	// Role is that of a process which answers with Peer alone: what the other role does was measured
	// there.
	Role string `json:"role,omitempty"`
	Peer string `json:"peer,omitempty"`
}

// HostVerbs are what gate F asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{
		"engine-profile": gates.Answer(measure),
		"engine-look":    gates.Answer(look),
		"abort-drill":    gates.Answer(abort),
		"lease-drill":    gates.Answer(expire),
		"handoff":        gates.Answer(handoff),
		"restart-drill":  gates.Answer(restartHere),
		"relaunch":       gates.Answer(relaunch),
	}
}

// prober sends prompts that no engine has seen.
type prober struct {
	client *engine.Client
	model  string
	rng    *rand.Rand
	limit  int  // longest prompt, tokens
	duo    *duo // what it asks together with its peer, nil for alone
}

func newProber(ctx context.Context, url, model, key string, seed uint64) (*prober, error) {
	c, err := engine.NewClient(url, keyed(key))
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

func (p *prober) prefill(ctx context.Context, n int) (profile.PrefillSample, error) {
	ids, err := p.prompt(ctx, n)
	if err != nil {
		return profile.PrefillSample{}, err
	}
	if p.duo != nil {
		_, took, err := p.duo.stream(ctx, p.model, ids, 1, func() {})
		return profile.PrefillSample{Tokens: n, Seconds: took.Seconds()}, err
	}
	begin := time.Now()
	_, err = p.client.Complete(ctx, engine.CompletionRequest{Model: p.model, PromptIDs: ids, MaxTokens: 1, IgnoreEOS: true})
	return profile.PrefillSample{Tokens: n, Seconds: time.Since(begin).Seconds()}, err
}

// Longer answers that a cohort is asked for when its streams were apart.
const (
	reruns     = 4
	rerunTimes = 2 // the tokens of the one before
)

// togetherFor is the part of an answer, 1 in so many tokens, that each stream must bring while all
// decode: over fewer, what a token waits for on its way outweighs what the engine takes.
const togetherFor = 4

// brief reports whether streams were together for too few of their tokens.
func brief(least, tokens int) bool { return least < min(tokens/togetherFor, tokens-2) }

// decode lets a cohort generate together and measures the mean gap while all are resident. A
// cohort whose streams were apart, or together for few tokens, runs again with longer answers; it
// counts as the same point, since half an answer is little beside the prompt.
func (p *prober) decode(ctx context.Context, requests, n, tokens int) (profile.DecodeSample, error) {
	for run, longer := 0, tokens; ; run, longer = run+1, min(longer*rerunTimes, p.limit-n) {
		streams, err := p.together(ctx, requests, n, longer)
		if err != nil {
			return profile.DecodeSample{}, err
		}
		s, least, err := cohort(streams, n, tokens)
		if run == reruns || err != nil && !errors.Is(err, errApart) || err == nil && !brief(least, tokens) {
			return s, err
		}
	}
}

// together starts requests of n prompt tokens at once and reads their streams.
func (p *prober) together(ctx context.Context, requests, n, tokens int) ([]timing, error) {
	prompts := make([][]int, requests)
	for i := range prompts {
		ids, err := p.prompt(ctx, n)
		if err != nil {
			return nil, err
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
	return streams, g.Wait()
}
