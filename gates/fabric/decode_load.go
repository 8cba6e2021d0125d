package fabric

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

const maxEvent = 1 << 20 // bytes of one event of a stream

// decoding keeps streams of one engine going until it is stopped.
type decoding struct {
	out    Decoded
	ask    asker
	mu     sync.Mutex
	stream [][]arrival
	failed error
}

// asker runs one request and tells of the tokens that arrive.
type asker func(ctx context.Context, body []byte, seen func(tokens int)) error

// decodeBody asks for a number of tokens whatever the model would say.
func decodeBody(model string, seed int) []byte {
	ids := make([]int, decodePrompt)
	for i := range ids {
		ids[i] = 100 + (seed*decodePrompt+i)%800
	}
	b, err := json.Marshal(map[string]any{"model": model, "prompt": ids, "max_tokens": decodeTokens, "temperature": 0, "ignore_eos": true, "stream": true})
	if err != nil {
		panic(fmt.Sprintf("marshal a request: %v", err)) // plain data always marshals
	}
	return b
}

// alone asks an engine that serves whole requests.
func alone(c *engine.Client) asker {
	return func(ctx context.Context, body []byte, seen func(int)) error { return streamed(ctx, c, body, "", seen) }
}

// together asks a prefilling and a decoding process at once, each for its leg.
func together(d engine.Dialect, prefill, decode *engine.Client, meet engine.Rendezvous) asker {
	return func(ctx context.Context, body []byte, seen func(int)) error {
		meet := meet
		meet.Room = engine.NewRoom()
		first, second, err := engine.Pair(d, body, false, meet)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("fabric-%d", meet.Room)
		if tag, ok := d.(engine.Tagger); ok {
			if first, err = tag.Tag(first, id+"-p"); err == nil {
				second, err = tag.Tag(second, id+"-d")
			}
			if err != nil {
				return err
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		left := make(chan error, 1)
		go func() {
			_, err := prefill.CompleteBody(ctx, first, id+"-p")
			if err != nil {
				cancel()
			}
			left <- err
		}()
		err = streamed(ctx, decode, second, id+"-d", seen)
		cancel()
		if perr := <-left; perr != nil && !errors.Is(perr, context.Canceled) {
			return fmt.Errorf("prefill: %w", perr)
		}
		return err
	}
}

// streamed sends a body and reads its stream to the end.
func streamed(ctx context.Context, c *engine.Client, body []byte, id string, seen func(int)) error {
	resp, err := c.Do(ctx, "/v1/completions", body, id)
	if err != nil {
		return err
	}
	if err := engine.Refused(resp); err != nil {
		return err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(make([]byte, 0, 16<<10), maxEvent)
	for sc.Scan() {
		data, ok := bytes.CutPrefix(sc.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if bytes.Equal(data, []byte("[DONE]")) {
			return nil
		}
		n, err := tokensIn(data)
		if err != nil {
			return err
		}
		if n > 0 {
			seen(n)
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	return errors.New("read stream: it ended without [DONE]")
}

// tokensIn is how many tokens an event brings: one where it does not say.
func tokensIn(data []byte) (int, error) {
	var ev struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			Text     string            `json:"text"`
			TokenIDs []json.RawMessage `json:"token_ids"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &ev); err != nil {
		return 0, fmt.Errorf("read stream: %w", err)
	}
	switch {
	case len(ev.Error) > 0 && string(ev.Error) != "null":
		return 0, fmt.Errorf("read stream: the engine reports %s", printable(string(ev.Error), 200))
	case len(ev.Choices) == 0:
		return 0, nil
	case len(ev.Choices[0].TokenIDs) > 0:
		return len(ev.Choices[0].TokenIDs), nil
	case ev.Choices[0].Text != "":
		return 1, nil
	}
	return 0, nil
}

// run keeps the streams going until ctx ends; ready is called once, when all of them decode or
// the engine failed.
func (d *decoding) run(ctx context.Context, model string, ready func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.stream = make([][]arrival, decodeStreams)
	var begun, done sync.WaitGroup
	begun.Add(decodeStreams)
	for i := range decodeStreams {
		first := sync.OnceFunc(begun.Done)
		done.Go(func() {
			defer first()
			if err := d.keep(ctx, i, model, first); err != nil {
				d.mu.Lock()
				d.failed = errors.Join(d.failed, err)
				d.mu.Unlock()
				cancel()
			}
		})
	}
	begun.Wait()
	ready()
	done.Wait()
}

// keep sends one request after another.
func (d *decoding) keep(ctx context.Context, i int, model string, first func()) error {
	note := func(a arrival) {
		a.at = time.Now()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stream[i] = append(d.stream[i], a)
		d.out.Tokens += a.tokens
	}
	for n := range mostRequests {
		d.mu.Lock()
		d.out.Requests++
		d.mu.Unlock()
		note(arrival{fresh: true})
		got := 0
		err := d.ask(ctx, decodeBody(model, i*mostRequests+n), func(tokens int) {
			first()
			got += tokens
			note(arrival{tokens: min(tokens, decodeTokens)})
		})
		note(arrival{over: true})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case got == 0:
			return errors.New("the answer has no token")
		}
	}
	return fmt.Errorf("%d requests of %d tokens were over before the link was measured", mostRequests, decodeTokens)
}
