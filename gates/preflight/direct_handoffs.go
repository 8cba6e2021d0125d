package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates"
)

// handoffs asks the pairs of which the check is about one engine. A pair whose engines are not
// equal, or not well, is left out: it may answer with other tokens, or end a process.
func (x *checkup) handoffs(ctx context.Context, pairs [][2]string) error {
	var steps []gates.Step
	for _, p := range pairs {
		if !x.names(p[0]) && !x.names(p[1]) {
			continue
		}
		s := pairStep(x.asLive(), p[0], p[1])
		c := Check{Check: "handoff", From: p[0], To: p[1], Says: x.idle(s), key: s.Yields}
		for _, e := range p {
			if why := x.suspect[e]; why != "" {
				c.Says = fmt.Sprintf("engine %s: %s", e, why)
			}
		}
		if c.Says != "" {
			c.State = CheckSkipped
			x.line(c)
			continue
		}
		x.line(c)
		steps = append(steps, s)
	}
	handed := map[string]CheckedPair{}
	for _, a := range x.run(ctx, steps, x.repeated) {
		if a.err != nil {
			x.failed(a)
			continue
		}
		var h CheckedPair
		if err := json.Unmarshal(a.data, &h); err != nil {
			return err
		}
		x.evidence[a.step.Yields], handed[a.step.ID] = a.data, h
	}
	var firsts []float64
	for _, s := range steps {
		h, ok := handed[s.ID]
		if !ok {
			continue
		}
		x.out.Pairs = append(x.out.Pairs, h)
		firsts = append(firsts, h.FirstS...)
		i := slices.IndexFunc(x.out.Checks, func(c Check) bool { return c.key == s.Yields })
		x.out.Checks[i].Says = h.says()
		if h.Skipped != "" {
			x.out.Checks[i].State, x.out.Checks[i].Says = CheckSkipped, h.Skipped
		}
	}
	x.out.Calibration = calibrated(firsts, x.Fleet.Engine.FirstTokenTimeoutS)
	return nil
}

// repeated asks a pair as often as the check says. What does not hold outweighs what does.
func (x *checkup) repeated(ctx context.Context, s gates.Step) ([]byte, error) {
	out := CheckedPair{}
	bad := false
	var firsts []float64
	for range max(1, x.Repeats) {
		b, err := x.Direct.ask(ctx, s)
		if err != nil {
			return nil, err
		}
		var h Handed
		if err := json.Unmarshal(b, &h); err != nil {
			return nil, err
		}
		firsts = append(firsts, h.FirstS...)
		wrong := len(judgePair(x.Fleet, h.From, h.To, h)) > 0
		if out.Repeats++; out.Repeats == 1 || wrong && !bad {
			out.Handed, bad = h, wrong
		}
	}
	out.FirstS = firsts
	return json.Marshal(out)
}

func (p CheckedPair) says() string {
	out := fmt.Sprintf("%d tokens, %.0f by transfer, prefill %.3g ms, first token %.3g ms", p.Prompt, p.Moved, p.PrefillMS, p.FirstMS)
	if p.Dialect != "" {
		out = fmt.Sprintf("%d tokens, %.0f transfers, prefill %.3g ms, first token %.3g ms", p.Prompt, p.Transfers, p.PrefillMS, p.FirstMS)
	}
	if p.Long != nil {
		out += fmt.Sprintf("; %d tokens, first token %.3g ms", p.Long.Prompt, p.Long.FirstMS)
	}
	return out
}
