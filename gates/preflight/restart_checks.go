package preflight

import (
	"context"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Checks of a restart, as they stand in Failed.
const (
	checkUnsplit = "unsplit"
	checkFrom    = "handoff-from"
	checkTo      = "handoff-to"
)

// restarter holds what one drill asks.
type restarter struct {
	q    RestartRequest
	h    hands
	d    engine.Dialect
	p, c *prober // the engine and its peer, nil for none
	ids  []int   // one prompt for both processes
	body []byte
}

func newRestarter(ctx context.Context, q RestartRequest, h hands) (*restarter, error) {
	d, err := proberOf(q.Dialect)
	if err != nil {
		return nil, err
	}
	if d.Concurrent() {
		return nil, fmt.Errorf("restart %s: engines of dialect %s are not drilled", q.IID, d.Name())
	}
	x := &restarter{q: q, h: h, d: d}
	if x.p, err = newProber(ctx, q.URL, q.Model, q.Key, 0); err != nil {
		return nil, err
	}
	if q.Peer != "" {
		if x.c, err = newProber(ctx, q.PeerURL, q.Model, q.Key, 0); err != nil {
			x.p.client.Close()
			return nil, fmt.Errorf("ask the peer %s: %w", q.Peer, err)
		}
	}
	return x, nil
}

func (x *restarter) close() {
	x.p.client.Close()
	if x.c != nil {
		x.c.client.Close()
	}
}

// before looks at the old process, and takes two handoffs of it that are not used up.
func (x *restarter) before(ctx context.Context, out *Restarted) ([]*engine.Handoff, error) {
	r, ok := x.h.running()
	if !ok {
		return nil, fmt.Errorf("restart %s: %s does not run", x.q.IID, x.q.Name)
	}
	if x.q.Launch != "" && r.Launch != x.q.Launch {
		return nil, fmt.Errorf("restart %s: launch %.12s runs, the plan is for %.12s", x.q.IID, r.Launch, x.q.Launch)
	}
	out.Before.Identity, out.Before.Launch = r.Identity, r.Launch
	s, err := x.p.state(ctx, x.d)
	if err != nil {
		return nil, err
	}
	if s.Running+s.Waiting > 0 {
		return nil, fmt.Errorf("restart %s: %w", x.q.IID, errServing)
	}
	if why := x.looks(ctx, &out.Before); why != "" {
		return nil, fmt.Errorf("restart %s: it does not answer before: %s", x.q.IID, why)
	}
	room := x.p.limit
	if x.c != nil {
		room = min(room, x.c.limit)
	}
	if x.ids, err = x.p.prompt(ctx, min(max(x.q.Tokens, 8), room-pairOutput)); err != nil {
		return nil, err
	}
	if out.Unsplit[0], err = x.unsplit(ctx); err != nil {
		return nil, err
	}
	out.Signed[0] = signing(ctx, x.q.Attest)
	if x.c == nil {
		return nil, nil
	}
	if x.body, err = streamBody(x.q.Model, x.ids, pairOutput); err != nil {
		return nil, err
	}
	var held []*engine.Handoff
	for range 2 {
		h, err := x.hold(ctx)
		if err != nil {
			return nil, err
		}
		held = append(held, h)
	}
	out.Before.EngineID = engine.Printable(held[0].EngineID, 128)
	return held, nil
}

func (x *restarter) unsplit(ctx context.Context) ([]int, error) {
	un, err := x.p.client.Complete(ctx, engine.CompletionRequest{Model: x.q.Model, PromptIDs: x.ids, MaxTokens: pairOutput, IgnoreEOS: true})
	return un.TokenIDs, err
}

// hold asks for a handoff and does not use it.
func (x *restarter) hold(ctx context.Context) (*engine.Handoff, error) {
	first, err := engine.Prefill(x.d, x.body)
	if err != nil {
		return nil, err
	}
	leg, err := x.p.client.CompleteBody(ctx, first, x.rid("p"))
	if err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	h, _, err := x.d.ParseHandoff(leg.Raw, time.Now())
	return h, err
}

func (x *restarter) rid(leg string) string {
	return fmt.Sprintf("preflight-restart-%s-%d-%s", x.q.IID, time.Now().UnixNano(), leg)
}

// give hands the peer a handoff of the process that was stopped.
func (x *restarter) give(ctx context.Context, to **Given, held []*engine.Handoff, i int) {
	if i >= len(held) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refuseWithin)
	defer cancel()
	g := &Given{EngineID: engine.Printable(held[i].EngineID, 128)}
	*to = g
	body, err := engine.Decode(x.d, x.body, held[i])
	var t timing
	if err == nil {
		t, err = streamed(ctx, x.c.client, body, x.rid("d"), func() {})
	}
	g.Tokens = len(t.ids)
	if err != nil {
		g.Error = engine.Printable(err.Error(), longText)
	}
}

// after looks at the new process. What keeps a check from being made is evidence.
func (x *restarter) after(ctx context.Context, out *Restarted, held []*engine.Handoff) {
	failed := func(check string, err error) {
		if err != nil {
			out.Failed[check] = engine.Printable(err.Error(), longText)
		}
	}
	out.Signed[1] = signing(ctx, x.q.Attest)
	x.give(ctx, &out.Old, held, 1)
	var err error
	out.Unsplit[1], err = x.unsplit(ctx)
	failed(checkUnsplit, err)
	if x.c == nil {
		return
	}
	q := HandoffRequest{Dialect: x.q.Dialect, Model: x.q.Model, From: x.q.IID, To: x.q.Peer, Prefill: x.q.URL, Decode: x.q.PeerURL, Tokens: x.q.Tokens, Key: x.q.Key}
	from, err := handoff(ctx, q)
	failed(checkFrom, err)
	out.From, out.After.EngineID = &from, from.EngineID
	q.From, q.To, q.Prefill, q.Decode = q.To, q.From, q.Decode, q.Prefill
	to, err := handoff(ctx, q)
	failed(checkTo, err)
	out.To = &to
}
