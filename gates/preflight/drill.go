package preflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// DrillRequest asks for a drill on one engine.
type DrillRequest struct {
	IID     string `json:"iid"`
	URL     string `json:"url"`
	Dialect string `json:"dialect"`
	Model   string `json:"model"`
	Tokens  int    `json:"tokens"` // of the prompt
	// Key names the variable that holds the engines' key, "" for none.
	Key string `json:"key,omitempty"`
	// Peer answers with an engine that has a role, nil for none.
	Peer *PeerAt `json:"peer,omitempty"`
	// Limit ends the wait for an expiry.
	LimitS float64 `json:"limit_s"`
}

// Aborted is what became of a request whose client left after the first token.
type Aborted struct {
	IID       string  `json:"iid"`
	Asked     int     `json:"asked_tokens"`
	Generated float64 `json:"generated_tokens"` // counter delta until it stood still
	FreedMS   float64 `json:"freed_ms"`         // until nothing ran
	Freed     bool    `json:"freed"`
	Usage     float64 `json:"kv_usage_after"`
}

// Expired is what became of a handoff that nobody fetched.
type Expired struct {
	IID     string  `json:"iid"`
	Pinned  float64 `json:"kv_usage_pinned"`
	After   float64 `json:"kv_usage_after"`
	Counted float64 `json:"expired_requests"` // counter delta
	Seconds float64 `json:"seconds"`          // until it was counted and freed
	Freed   bool    `json:"freed"`
	// Skipped says why nothing could be held.
	Skipped string `json:"skipped,omitempty"`
}

// Bounds of the drills.
const (
	abortWithin = 5 * time.Second
	abortTokens = 4096
	abortPoll   = 50 * time.Millisecond
	leasePoll   = time.Second
	usageSlack  = 0.005
)

// abort starts a long answer, leaves after its first token and waits until the engine has
// stopped the request.
func abort(ctx context.Context, q DrillRequest) (out Aborted, err error) {
	out = Aborted{IID: q.IID}
	d, err := proberOf(q.Dialect)
	if err != nil {
		return out, err
	}
	p, err := newProber(ctx, q.URL, q.Model, q.Key, 0)
	if err != nil {
		return out, err
	}
	defer p.client.Close()
	done, err := p.withPeer(ctx, d, q.Peer, q.Key)
	defer func() { err = errors.Join(err, done()) }()
	if err != nil {
		return out, err
	}
	ids, err := p.prompt(ctx, min(q.Tokens, p.limit/2))
	if err != nil {
		return out, err
	}
	out.Asked = min(abortTokens, p.limit-len(ids))
	before, err := p.state(ctx, d)
	if err != nil {
		return out, err
	}
	left, leave := context.WithCancel(ctx)
	defer leave()
	seen := 0
	_, err = p.streamUntil(left, ids, out.Asked, func() {
		if seen++; seen == 1 {
			leave()
		}
	})
	if seen == 0 {
		return out, fmt.Errorf("start a request to abort: %w", errors.Join(err, errors.New("no token came")))
	}
	begin := time.Now()
	for {
		s, err := p.state(ctx, d)
		if err != nil {
			return out, err
		}
		out.Generated, out.Usage, out.FreedMS = s.GenerationTokens-before.GenerationTokens, s.Usage, ms(begin)
		if s.Running == 0 && s.Waiting == 0 && s.Usage <= before.Usage+usageSlack {
			out.Freed = true
			return out, nil
		}
		if time.Since(begin) > abortWithin {
			return out, nil
		}
		if !pause.For(ctx, abortPoll) {
			return out, ctx.Err()
		}
	}
}

// stopped reports that the request ended because its client left, not by itself.
func (a Aborted) stopped() bool { return a.Freed && a.Asked > 0 && a.Generated < float64(a.Asked) }

// expire asks for a handoff, fetches it never and waits until the engine has let it go.
func expire(ctx context.Context, q DrillRequest) (Expired, error) {
	out := Expired{IID: q.IID}
	d, err := proberOf(q.Dialect)
	if err != nil {
		return out, err
	}
	if d.Concurrent() {
		out.Skipped = "both legs run at once: nothing is held for a lease"
		return out, nil
	}
	p, err := newProber(ctx, q.URL, q.Model, q.Key, 0)
	if err != nil {
		return out, err
	}
	defer p.client.Close()
	ids, err := p.prompt(ctx, min(q.Tokens, p.limit-1))
	if err != nil {
		return out, err
	}
	before, err := p.state(ctx, d)
	if err != nil {
		return out, err
	}
	body, err := (engine.CompletionRequest{Model: q.Model, PromptIDs: ids, MaxTokens: 1}).Body()
	if err != nil {
		return out, err
	}
	first, err := engine.Prefill(d, body)
	if err != nil {
		return out, err
	}
	leg, err := p.client.CompleteBody(ctx, first, fmt.Sprintf("preflight-lease-%s-%d", q.IID, time.Now().UnixNano()))
	if err != nil {
		return out, fmt.Errorf("prefill: %w", err)
	}
	if _, _, err := d.ParseHandoff(leg.Raw, time.Now()); err != nil {
		return out, err
	}
	begin := time.Now()
	for {
		s, err := p.state(ctx, d)
		if err != nil {
			return out, err
		}
		out.Pinned = max(out.Pinned, s.Usage-before.Usage)
		out.After, out.Counted, out.Seconds = s.Usage-before.Usage, s.Expired-before.Expired, time.Since(begin).Seconds()
		if out.Counted >= 1 && s.Usage <= before.Usage+usageSlack {
			out.Freed = true
			return out, nil
		}
		if out.Seconds > q.LimitS {
			return out, nil
		}
		if !pause.For(ctx, min(leasePoll, time.Duration(q.LimitS/20*float64(time.Second)))) {
			return out, ctx.Err()
		}
	}
}

func (p *prober) state(ctx context.Context, d engine.Dialect) (engine.State, error) {
	s, err := p.client.Metrics(ctx)
	if err != nil {
		return engine.State{}, err
	}
	return d.State(s)
}
