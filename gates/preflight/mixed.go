package preflight

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Beside is one prefill while a cohort decodes.
type Beside struct {
	Requests int     `json:"requests"`
	KVTokens int     `json:"kv_tokens"`
	Tokens   int     `json:"tokens"`        // of the prefill
	Seconds  float64 `json:"seconds"`       // that it took
	Gap      float64 `json:"gap_s"`         // mean seconds between the cohort's tokens meanwhile
	Longest  float64 `json:"longest_gap_s"` // the longest of them
}

// Warm is one prefill whose beginning the engine has computed before.
type Warm struct {
	Prefix  int     `json:"prefix_tokens"`
	Suffix  int     `json:"suffix_tokens"`
	Seconds float64 `json:"seconds"`
	Hits    float64 `json:"cached_tokens"` // counter delta
}

// mixedPoints are the points beside the plain sweep: the longest prefill beside a cohort of the
// middle size, and a prefill of which half is cached where the engine caches prefixes.
func (p *prober) mixedPoints(q ProfileRequest, d engine.Dialect, layout engine.CacheLayout, to *Profiled) []*point {
	lengths := slices.DeleteFunc(distinct(q.Points.PrefillTokens), func(n int) bool { return n+1 > p.limit })
	sizes, tokens := distinct(q.Points.DecodeRequests), distinct(q.Points.DecodeTokens)
	if len(lengths) == 0 {
		return nil
	}
	var out []*point
	long := lengths[len(lengths)-1]
	if len(sizes) > 0 && len(tokens) > 0 && tokens[0]+q.Points.OutputTokens <= p.limit {
		r := sizes[len(sizes)/2]
		out = append(out, &point{name: fmt.Sprintf("prefill of %d tokens beside %d decoding", long, r), least: leastRounds, take: func(ctx context.Context) (float64, error) {
			s, err := p.beside(ctx, r, tokens[0], long)
			if err == nil {
				to.Beside = append(to.Beside, s)
			}
			return s.Seconds, err
		}})
	}
	prefix := long / 2 / layout.BlockSize * layout.BlockSize
	if suffix := lengths[0]; layout.PrefixCaching && prefix > 0 && prefix+suffix < p.limit {
		out = append(out, &point{name: fmt.Sprintf("prefill of %d tokens after %d cached", suffix, prefix), least: leastRounds, take: func(ctx context.Context) (float64, error) {
			s, err := p.warm(ctx, d, prefix, suffix)
			if err == nil {
				to.Warm = append(to.Warm, s)
			}
			return s.Seconds, err
		}})
	}
	return out
}

// beside lets a cohort decode, sends a prefill once all of it has begun, and abandons the
// cohort when the prefill is done.
func (p *prober) beside(ctx context.Context, requests, n, long int) (Beside, error) {
	out := Beside{Requests: requests, KVTokens: requests * n, Tokens: long}
	prompts := make([][]int, requests)
	for i := range prompts {
		ids, err := p.prompt(ctx, n)
		if err != nil {
			return out, err
		}
		prompts[i] = ids
	}
	ids, err := p.prompt(ctx, long)
	if err != nil {
		return out, err
	}
	cohort, leave := context.WithCancel(ctx)
	streams, errs := make([]timing, requests), make([]error, requests)
	begun := make(chan int, requests)
	var all sync.WaitGroup
	for i, prompt := range prompts {
		all.Go(func() {
			first := true
			streams[i], errs[i] = p.streamUntil(cohort, prompt, min(abortTokens, p.limit-n), func() {
				if first {
					first = false
					begun <- i
				}
			})
			if first {
				begun <- i // ended without a token
			}
		})
	}
	for range requests {
		<-begun
	}
	sent := time.Now()
	_, err = p.client.Complete(ctx, engine.CompletionRequest{Model: p.model, PromptIDs: ids, MaxTokens: 1, IgnoreEOS: true})
	done := time.Now()
	leave()
	all.Wait()
	if err != nil {
		return out, err
	}
	out.Seconds = done.Sub(sent).Seconds()
	sum, count := 0.0, 0
	for i, s := range streams {
		if len(s.at) == 0 {
			return out, fmt.Errorf("start a cohort: stream %d brought no token: %w", i, errs[i])
		}
		last := s.at[0]
		for j, at := range s.at {
			// A gap belongs to the prefill when it ends after that was sent.
			if j > 0 && at.After(sent) {
				gap := at.Sub(last).Seconds()
				sum, count, out.Longest = sum+gap, count+s.counts[j], max(out.Longest, gap)
			}
			last = at
		}
		if last.Before(done) { // none came until the end
			out.Longest = max(out.Longest, done.Sub(last).Seconds())
		}
	}
	if out.Gap = out.Longest; count > 0 {
		out.Gap = sum / float64(count)
	}
	return out, nil
}

// warm computes a prefix and then the same with a suffix.
func (p *prober) warm(ctx context.Context, d engine.Dialect, prefix, suffix int) (Warm, error) {
	out := Warm{Prefix: prefix, Suffix: suffix}
	ids, err := p.prompt(ctx, prefix+suffix)
	if err != nil {
		return out, err
	}
	ask := func(ids []int) error {
		_, err := p.client.Complete(ctx, engine.CompletionRequest{Model: p.model, PromptIDs: ids, MaxTokens: 1, IgnoreEOS: true})
		return err
	}
	if err := ask(ids[:prefix]); err != nil {
		return out, err
	}
	before, err := p.state(ctx, d)
	if err != nil {
		return out, err
	}
	begin := time.Now()
	if err := ask(ids); err != nil {
		return out, err
	}
	out.Seconds = time.Since(begin).Seconds()
	after, err := p.state(ctx, d)
	out.Hits = after.LocalHit - before.LocalHit
	return out, err
}
