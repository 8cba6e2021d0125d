package preflight

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// timing is when each token of a stream came.
type timing struct {
	at     []time.Time
	counts []int // tokens in the event
	ids    []int
}

const maxEvent = 1 << 20

// stream generates n tokens and notes when each event with tokens arrived.
func (p *prober) stream(ctx context.Context, ids []int, n int) (timing, error) {
	return p.streamUntil(ctx, ids, n, func() {})
}

// streamUntil is stream that calls seen after each event with tokens.
func (p *prober) streamUntil(ctx context.Context, ids []int, n int, seen func()) (timing, error) {
	if p.duo != nil {
		t, _, err := p.duo.stream(ctx, p.model, ids, n, seen)
		return t, err
	}
	body, err := streamBody(p.model, ids, n)
	if err != nil {
		return timing{}, err
	}
	return streamed(ctx, p.client, body, "", seen)
}

// streamBody asks for n tokens after a prompt of ids.
func streamBody(model string, ids []int, n int) ([]byte, error) {
	return json.Marshal(map[string]any{
		"model": model, "prompt": ids, "max_tokens": n, "temperature": 0, "ignore_eos": true, "stream": true, "return_token_ids": true,
	})
}

// streamed sends a ready body and reads its stream.
func streamed(ctx context.Context, c *engine.Client, body []byte, requestID string, seen func()) (timing, error) {
	var t timing
	resp, err := c.Do(ctx, "/v1/completions", body, requestID)
	if err != nil {
		return t, err
	}
	if err := engine.Refused(resp); err != nil {
		return t, err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(make([]byte, 0, 16<<10), maxEvent)
	done := false
	for sc.Scan() {
		data, ok := bytes.CutPrefix(sc.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if bytes.Equal(data, []byte("[DONE]")) {
			done = true
			break
		}
		k, err := tokensOf(data)
		if err != nil {
			return t, err
		}
		if len(k) > 0 {
			t.at, t.counts, t.ids = append(t.at, time.Now()), append(t.counts, len(k)), append(t.ids, k...)
			seen()
		}
	}
	if err := sc.Err(); err != nil {
		return t, fmt.Errorf("read stream: %w", err)
	}
	if !done {
		return t, fmt.Errorf("read stream: it ended without [DONE]")
	}
	return t, nil
}

// tokensOf reads the token ids of one event.
func tokensOf(data []byte) ([]int, error) {
	var ev struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			TokenIDs []int `json:"token_ids"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &ev); err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	if len(ev.Error) > 0 {
		return nil, fmt.Errorf("read stream: the engine reports %s", engine.Printable(string(ev.Error), 200))
	}
	if len(ev.Choices) == 0 {
		return nil, nil
	}
	return ev.Choices[0].TokenIDs, nil
}

// errApart means that some stream of a cohort was over, or came in one piece, before another
// had begun: a longer answer may show them together.
var errApart = errors.New("measure a cohort: its streams never decoded together")

// cohort is the mean gap between tokens while every stream was decoding, and the fewest tokens
// that one of them brought meanwhile.
func cohort(streams []timing, prompt, tokens int) (s profile.DecodeSample, least int, err error) {
	var from, to time.Time
	for _, s := range streams {
		if len(s.at) < 3 {
			return profile.DecodeSample{}, 0, fmt.Errorf("measure a cohort: a stream brought %d events: %w", len(s.at), errApart)
		}
		if s.at[0].After(from) {
			from = s.at[0]
		}
		if last := s.at[len(s.at)-1]; to.IsZero() || last.Before(to) {
			to = last
		}
	}
	var gaps float64
	count := 0
	for i, s := range streams {
		inside, first, last := 0, time.Time{}, time.Time{}
		for j, at := range s.at {
			if at.Before(from) || at.After(to) {
				continue
			}
			if first.IsZero() {
				first = at
			} else {
				inside += s.counts[j]
			}
			last = at
		}
		if i == 0 || inside < least {
			least = inside
		}
		if inside > 0 {
			gaps += last.Sub(first).Seconds()
			count += inside
		}
	}
	if count == 0 {
		return profile.DecodeSample{}, 0, errApart
	}
	return profile.DecodeSample{Requests: len(streams), KVTokens: len(streams) * (prompt + tokens/2), Gap: gaps / float64(count)}, least, nil
}
