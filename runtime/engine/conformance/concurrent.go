package conformance

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// legs rewrites both bodies for one new room.
func (s *suite) legs(t *testing.T, p *engine.Client, path string, first, second []byte) (prefill, decode []byte) {
	t.Helper()
	for _, body := range [][]byte{first, second} {
		if reason, ok := engine.Splittable(s.Dialect, body); !ok {
			t.Fatal("not splittable:", reason)
		}
	}
	r := s.Meet(t, p)
	r.Room = engine.NewRoom()
	chat := strings.HasPrefix(path, "/v1/chat")
	prefill, _, err := engine.Pair(s.Dialect, first, chat, r)
	if err != nil {
		t.Fatal(err)
	}
	if _, decode, err = engine.Pair(s.Dialect, second, chat, r); err != nil {
		t.Fatal(err)
	}
	return prefill, decode
}

// pair runs both legs at once. The answer is the decoding leg's; the other one's is drained, and
// must be a success where that one's is.
func (s *suite) pair(t *testing.T, p, d *engine.Client, path string, first, second []byte) (reply, error) {
	t.Helper()
	prefill, decode := s.legs(t, p, path, first, second)
	ctx, cancel := context.WithCancel(s.limit(t))
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- drain(ctx, p, path, prefill) }()
	resp, err := d.Do(ctx, path, decode, "")
	if err == nil {
		err = engine.Refused(resp)
	}
	if err != nil {
		cancel() // the other leg would wait for its whole limit
		return reply{}, errors.Join(err, <-drained)
	}
	defer resp.Body.Close()
	got := collect(t, resp.Body)
	if got.failed {
		cancel()
		return got, errors.Join(errors.New("the decoding leg's stream failed"), <-drained)
	}
	return got, <-drained
}

// drain reads a leg's answer to its end.
func drain(ctx context.Context, c *engine.Client, path string, body []byte) error {
	resp, err := c.Do(ctx, path, body, "")
	if err == nil {
		err = engine.Refused(resp)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// wrongAddress sends the decoding leg where no prefilling engine is.
func (s *suite) wrongAddress(t *testing.T) {
	p, d := s.Pair(t)
	body := streaming(s.body(t, s.prompt(500, 100), 8))
	_, leg, err := engine.Pair(s.Dialect, body, false, engine.Rendezvous{Host: "127.0.0.1", Port: 1, Room: engine.NewRoom()})
	if err != nil {
		t.Fatal(err)
	}
	stream := s.open(s.limit(t), t, d, "/v1/completions", leg)
	got := collect(t, stream)
	stream.Close()
	if !got.failed || !got.done || len(got.ids) > 0 {
		t.Fatalf("want a failure in the stream, got %+v", got)
	}
	if got, err := s.pair(t, p, d, "/v1/completions", body, body); err != nil || len(got.ids) != 8 {
		t.Fatal("the engine does not go on:", err)
	}
}

// loneLegs aborts each leg while it waits for the other.
func (s *suite) loneLegs(t *testing.T) {
	p, d := s.Pair(t)
	body := streaming(s.body(t, s.prompt(510, 160), 8))
	prefill, decode := s.legs(t, p, "/v1/completions", body, body)
	for _, leg := range []struct {
		c    *engine.Client
		body []byte
	}{{p, prefill}, {d, decode}} {
		ctx, cancel := context.WithCancel(s.limit(t))
		gone := make(chan error, 1)
		go func() { gone <- drain(ctx, leg.c, "/v1/completions", leg.body) }()
		s.deferred(t, leg.c)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatal("a lone leg was answered:", err)
		}
		s.idle(t, leg.c, 0)
	}
	if got, err := s.pair(t, p, d, "/v1/completions", body, body); err != nil || len(got.ids) != 8 {
		t.Fatal("the pair does not go on:", err)
	}
}

// deferred waits until a request waits for its other leg.
func (s *suite) deferred(t *testing.T, c *engine.Client) {
	t.Helper()
	s.until(t, "request does not wait", func() bool { return s.state(t, c).Deferred == 1 })
}

func (s *suite) abortPair(t *testing.T) {
	p, d := s.Pair(t)
	body := streaming(s.body(t, s.prompt(900, 160), 1500))
	prefill, decode := s.legs(t, p, "/v1/completions", body, body)
	ctx, cancel := context.WithCancel(s.limit(t))
	defer cancel()
	gone := make(chan error, 2)
	go func() { gone <- drain(ctx, p, "/v1/completions", prefill) }()
	go func() { gone <- drain(ctx, d, "/v1/completions", decode) }()
	s.started(t, d)
	cancel()
	if err := errors.Join(<-gone, <-gone); err == nil {
		t.Fatal("the request ended by itself: the test shows nothing")
	}
	s.idle(t, d, 0)
	s.idle(t, p, 0)
}

// refusals are those that every engine of the dialect owes: status, type, and the error's members
// at top level.
func (s *suite) refusals(t *testing.T) {
	c := s.Single(t)
	long := strings.Repeat("1,", 2047) + "1"
	for name, k := range map[string]struct {
		path, kind, body string
		status           int
		typ              string
	}{
		"temperature":  {"/v1/completions", "application/json", `{"prompt":"x","temperature":-1}`, 400, engine.TypeBadRequest},
		"no prompt":    {"/v1/completions", "application/json", `{"max_tokens":1}`, 400, engine.TypeBadRequest},
		"too long":     {"/v1/completions", "application/json", `{"prompt":[` + long + `]}`, 400, engine.TypeBadRequest},
		"limit":        {"/v1/completions", "application/json", `{"prompt":"x","max_tokens":5000}`, 400, engine.TypeBadRequest},
		"not json":     {"/v1/completions", "application/json", `{`, 400, engine.TypeSchema},
		"wrong type":   {"/v1/chat/completions", "application/json", `{"messages":"x"}`, 400, engine.TypeSchema},
		"content type": {"/v1/completions", "text/plain", `{"prompt":"x"}`, 400, engine.TypeSchema},
		"streamed":     {"/v1/completions", "application/json", `{"prompt":"x","temperature":-1,"stream":true}`, 400, engine.TypeBadRequest},
		"route":        {"/v1/nothing", "application/json", `{}`, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(s.limit(t), http.MethodPost, c.Base()+k.path, strings.NewReader(k.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", k.kind)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			se := engine.ParseStatusError(resp.StatusCode, raw)
			flat := k.typ == "" || strings.HasPrefix(string(raw), `{"object":"error"`)
			if se.Status != k.status || se.Type != k.typ || se.Message == "" || !flat {
				t.Fatalf("%d %s", resp.StatusCode, raw)
			}
		})
	}
}
