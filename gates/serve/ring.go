package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Ring is one handoff from each engine to the next, after the load.
type Ring struct {
	Pairs []RingPair `json:"pairs"`
}

// RingPair is a handoff as the host verb "handoff" tells it, and what kept it from one.
type RingPair struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Prompt  int     `json:"prompt_tokens"`
	Unsplit []int   `json:"unsplit_token_ids"` // on the producer
	Split   []int   `json:"split_token_ids"`
	Moved   float64 `json:"external_kv_tokens"`
	Failed  float64 `json:"failed_transfers"`
	FirstMS float64 `json:"first_token_ms"`
	// Restarted says that the consumer's process changed meanwhile.
	Restarted bool   `json:"restarted"`
	Error     string `json:"error,omitempty"`
	// Dialect is set where both legs run at once: a second run stands in for the unsplit one, and
	// transfers are counted instead of tokens. Skipped says that the roles of the two do not meet.
	Dialect   string  `json:"dialect,omitempty"`
	Again     []int   `json:"again_token_ids,omitempty"`
	Transfers float64 `json:"transfers,omitempty"`
	Skipped   string  `json:"skipped,omitempty"`
}

// ringRequest is what the host verb "handoff" is asked.
type ringRequest struct {
	Dialect string `json:"dialect"`
	Model   string `json:"model"`
	From    string `json:"from"`
	To      string `json:"to"`
	Prefill string `json:"prefill_url"`
	Decode  string `json:"decode_url"`
	Tokens  int    `json:"tokens"`
	// Key names the variable that holds the engines' key, "" for none.
	Key string `json:"key,omitempty"`
}

const (
	ringLimit = 2 * time.Minute // of one handoff
	ringWide  = 8               // handoffs at once, unless the fleet says less
)

// ringPairs are each engine and the next; none where there is one engine.
func ringPairs(f fleet.Fleet) (out [][2]fleet.Engine) {
	n := len(f.Engines)
	for i := range f.Engines {
		if n > 1 {
			out = append(out, [2]fleet.Engine{f.Engines[i], f.Engines[(i+1)%n]})
		}
	}
	return out
}

// ringRounds are the pairs in rounds in which no engine stands twice, by their place.
func ringRounds(n int) (out [][]int) {
	rounds := [3][]int{}
	for i := range n {
		r := i % 2
		if n%2 == 1 && i == n-1 {
			r = 2
		}
		rounds[r] = append(rounds[r], i)
	}
	for _, r := range rounds {
		if len(r) > 0 {
			out = append(out, r)
		}
	}
	return out
}

func ringArgv(f fleet.Fleet, p [2]fleet.Engine) []string {
	return gates.HostCommand(f, f.HostOf(p[1].IID), "handoff", ringRequest{Dialect: f.Engine.Dialect, Model: f.Model, From: p[0].IID, To: p[1].IID,
		Prefill: p[0].URL, Decode: p[1].URL, Tokens: f.Deploy.Profile.PairTokens, Key: f.Engine.EngineAPIKeyEnv})
}

// ringStep asks for the handoffs with commands that the plan shows.
func ringStep(f fleet.Fleet) gates.Step {
	pairs := ringPairs(f)
	s := local("ring", "hand over from each engine to the next", ringKey, "ring", fleet.Duration(len(pairs)+1)*fleet.Duration(ringLimit), nil)
	s.Local.Runs = map[string][]gates.HostRun{}
	for _, p := range pairs {
		host := f.HostOf(p[1].IID)
		s.Local.Runs[host] = append(s.Local.Runs[host], gates.HostRun{Argv: ringArgv(f, p)})
	}
	return s
}

// ring asks the pairs, round by round. What keeps one from its handoff is evidence too.
func ring(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
	f := env.View().Fleet
	pairs := ringPairs(f)
	out := Ring{Pairs: make([]RingPair, len(pairs))}
	for _, round := range ringRounds(len(pairs)) {
		var g errgroup.Group
		g.SetLimit(min(ringWide, max(1, f.Deploy.Limits.FanOut)))
		for _, i := range round {
			g.Go(func() error { out.Pairs[i] = handOver(ctx, env, f, pairs[i]); return nil })
		}
		_ = g.Wait() // they tell of their errors in the evidence
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(out)
}

func handOver(ctx context.Context, env gates.Env, f fleet.Fleet, p [2]fleet.Engine) (out RingPair) {
	fail := func(text string) RingPair {
		return RingPair{From: p[0].IID, To: p[1].IID, Error: clean(text, 400)}
	}
	h, err := env.Host(ctx, f.HostOf(p[1].IID))
	if err != nil {
		return fail(err.Error())
	}
	key, err := engineKey(env, f)
	if err != nil {
		return fail(err.Error())
	}
	res, err := h.Run(ctx, remote.Command{Argv: ringArgv(f, p), SecretEnv: key, Limit: ringLimit})
	if err != nil {
		return fail(err.Error() + ": " + string(res.Stderr))
	}
	if err := json.Unmarshal(res.Stdout, &out); err != nil || res.Truncated {
		return fail("the host's answer is none")
	}
	out.From, out.To, out.Error = p[0].IID, p[1].IID, ""
	return out
}

// engineKey is the engines' key by the variable that holds it, nil where the fleet names none.
func engineKey(env gates.Env, f fleet.Fleet) (map[string]fleet.Secret, error) {
	name := f.Engine.EngineAPIKeyEnv
	if name == "" {
		return nil, nil
	}
	s, err := env.Secret(fleet.SecretRef("env:" + name))
	if err != nil {
		return nil, fmt.Errorf("read the engines' key: %w", err)
	}
	return map[string]fleet.Secret{name: s}, nil
}

// trouble says why a handoff is none, "" when it is one.
func (p RingPair) trouble() string {
	switch {
	case p.Error != "":
		return p.Error
	case p.Restarted:
		return "the consumer's process changed meanwhile"
	case p.Dialect != "" && p.Skipped != "":
		return ""
	case p.Dialect != "" && (len(p.Split) == 0 || !slices.Equal(p.Split, p.Again)):
		return fmt.Sprintf("tokens %.120s after the handoff, %.120s in another run", fmt.Sprint(p.Split), fmt.Sprint(p.Again))
	case p.Dialect != "" && p.Failed == 0 && p.Transfers >= 1:
		return ""
	case p.Dialect == "" && len(p.Split) == 0 || p.Dialect == "" && !slices.Equal(p.Split, p.Unsplit):
		return fmt.Sprintf("tokens %.120s after the handoff, %.120s unsplit", fmt.Sprint(p.Split), fmt.Sprint(p.Unsplit))
	case p.Failed > 0 || !(p.Moved > 0):
		return fmt.Sprintf("%.0f tokens by transfer, %.0f failed transfers", p.Moved, p.Failed)
	}
	return ""
}

// judgeRing wants a handoff of every pair.
func judgeRing(v gates.View) (out []record.Finding) {
	var r Ring
	if v.Decode(ringKey, &r) != nil {
		return nil // the runner reports missing evidence
	}
	seen := map[[2]string]RingPair{}
	for _, p := range r.Pairs {
		seen[[2]string{p.From, p.To}] = p
	}
	met := 0
	for _, p := range ringPairs(v.Fleet) {
		got, ok := seen[[2]string{p[0].IID, p[1].IID}]
		why := got.trouble()
		if got.Skipped == "" {
			met++
		}
		if !ok {
			why = "it was not asked for"
		}
		if why == "" {
			continue
		}
		out = append(out, record.Finding{Code: "ring-failed", Host: v.Fleet.HostOf(p[1].IID), Engine: p[1].IID, Want: "a handoff with the tokens of an unsplit run", Got: clean(why, 400), Evidence: string(ringKey),
			Message: fmt.Sprintf("handoff %s → %s after the load: %s", p[0].IID, p[1].IID, clean(why, 400)),
			Hint:    "the load left one of them unable to hand KV over: see engine-" + p[0].IID + ".log and engine-" + p[1].IID + ".log, restart that engine, then narwhal gate run"})
	}
	if n := len(ringPairs(v.Fleet)); met == 0 && n > 0 {
		out = append(out, record.Finding{Code: "ring-failed", Want: "a handoff with the tokens of an unsplit run", Got: "no pair whose roles meet", Evidence: string(ringKey),
			Message: fmt.Sprintf("none of %d pairs handed over after the load: their roles do not meet", n), Hint: "name an engine of the other role next in engines[], so that a prefilling one stands before a decoding one"})
	}
	return out
}
