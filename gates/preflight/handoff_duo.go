package preflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// handoffTogether is handoff between processes that answer both legs at once. Neither can run the
// prompt unsplit: it is run twice, and a prompt that all pairs get tells pairs apart.
func handoffTogether(ctx context.Context, d engine.Dialect, q HandoffRequest) (out Handed, err error) {
	out = Handed{From: q.From, To: q.To, Prompt: q.Tokens, Dialect: q.Dialect}
	p, c, done, err := q.probers(ctx)
	if err != nil {
		return out, err
	}
	defer done()
	u, err := newDuo(ctx, d, p.client, c.client, q.Switch)
	if errors.Is(err, errRoles) {
		out.Skipped = engine.Printable(err.Error(), longText)
		return out, nil
	}
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, u.close(ctx)) }()
	room := min(p.limit, c.limit) - pairOutput
	short := min(max(q.Tokens, 8), room)
	if err := compareTogether(ctx, d, u, p, q.Model, short, &out); err != nil {
		return out, err
	}
	if out.Common, err = common16(ctx, u, p, q.Model, short); err != nil {
		return out, fmt.Errorf("hand over the prompt of all pairs: %w", err)
	}
	length := short
	if long := min(q.Long, room); long > short {
		length = long
		out.Long = &Handed{From: q.From, To: q.To, Dialect: q.Dialect}
		if err := compareTogether(ctx, d, u, p, q.Model, long, out.Long); err != nil {
			return out, fmt.Errorf("hand over a long prompt: %w", err)
		}
		out.FirstS = append(out.FirstS, out.Long.FirstMS/1e3)
	}
	for range q.Firsts {
		ids, err := p.prompt(ctx, length)
		if err != nil {
			return out, err
		}
		one := Handed{}
		if _, err := runTogether(ctx, u, q.Model, ids, firstOutput, &one); err != nil {
			return out, fmt.Errorf("hand over %s → %s: %w", q.From, q.To, err)
		}
		out.FirstS = append(out.FirstS, one.FirstMS/1e3)
	}
	return out, nil
}

// compareTogether runs one prompt twice and counts what moved meanwhile.
func compareTogether(ctx context.Context, d engine.Dialect, u *duo, p *prober, model string, n int, out *Handed) error {
	ids, err := p.prompt(ctx, n)
	if err != nil {
		return err
	}
	out.Prompt = n
	var before, after [2]engine.State
	looks := func(to *[2]engine.State) (err error) {
		for i, c := range []*engine.Client{u.prefill, u.decode} {
			s, serr := c.Metrics(ctx)
			if serr != nil {
				return serr
			}
			to[i], _ = d.State(s) // a missing gauge does not matter here; the counters are compared
		}
		return nil
	}
	if err := looks(&before); err != nil {
		return err
	}
	if out.Split, err = runTogether(ctx, u, model, ids, pairOutput, out); err != nil {
		return fmt.Errorf("hand over %s → %s: %w", out.From, out.To, err)
	}
	if err := looks(&after); err != nil {
		return err
	}
	for i := range after {
		out.Transfers += after[i].Transfers - before[i].Transfers
		out.Failed += after[i].FailedTransfers - before[i].FailedTransfers
	}
	out.Restarted = before[1].ProcessStart != after[1].ProcessStart
	again := Handed{}
	if out.Again, err = runTogether(ctx, u, model, ids, pairOutput, &again); err != nil {
		return fmt.Errorf("hand over %s → %s again: %w", out.From, out.To, err)
	}
	return nil
}

func runTogether(ctx context.Context, u *duo, model string, ids []int, output int, out *Handed) ([]int, error) {
	begin := time.Now()
	t, prefill, err := u.stream(ctx, model, ids, output, func() {
		if out.FirstMS == 0 {
			out.FirstMS = ms(begin)
		}
	})
	out.PrefillMS, out.DecodeMS = float64(prefill.Microseconds())/1e3, ms(begin)
	return t.ids, err
}

// common16 is the answer to a prompt that is the same for all pairs of a fleet.
func common16(ctx context.Context, u *duo, p *prober, model string, n int) ([]int, error) {
	t, err := p.client.Tokenize(ctx, engine.TokenizeRequest{Model: model, Prompt: fixedText})
	if err != nil {
		return nil, err
	}
	if len(t.IDs) == 0 {
		return nil, errors.New("the tokenizer counts nothing in a text")
	}
	ids := t.IDs[:min(n, len(t.IDs))]
	return runTogether(ctx, u, model, ids, pairOutput, &Handed{})
}
