package preflight

import (
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// at makes a stream of events at these milliseconds, one token each.
func at(ms ...int) timing {
	var t timing
	for _, m := range ms {
		t.at, t.counts = append(t.at, time.Unix(1000, 0).Add(time.Duration(m)*time.Millisecond)), append(t.counts, 1)
	}
	return t
}

func TestCohort(t *testing.T) {
	several := at(0, 10, 20, 30)
	several.counts = []int{1, 2, 2, 2}
	for name, c := range map[string]struct {
		streams []timing
		gap     float64 // seconds
		least   int     // tokens of one stream in the window
	}{
		"one stream":                   {[]timing{at(0, 10, 20, 30)}, 0.010, 3},
		"two in step":                  {[]timing{at(0, 10, 20), at(0, 10, 20)}, 0.010, 2},
		"the second is late":           {[]timing{at(0, 10, 20, 30, 40), at(15, 30, 45)}, 0.035 / 3, 1}, // from 15 to 40 ms: 20→30→40 and 15→30
		"several tokens an event":      {[]timing{several}, 0.005, 6},
		"first gap outside counts not": {[]timing{at(0, 100, 110, 120), at(100, 110, 120)}, 0.010, 2},
	} {
		got, least, err := cohort(c.streams, 100, 16)
		if err != nil || least != c.least || math.Abs(got.Gap-c.gap) > 1e-9 {
			t.Errorf("%s: %+v, %d, %v; want %g s, %d", name, got, least, err, c.gap, c.least)
		}
		if got.Requests != len(c.streams) || got.KVTokens != len(c.streams)*(100+8) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, streams := range map[string][]timing{
		"nothing":             {},
		"too few events":      {at(0, 10)},
		"never together":      {at(0, 10, 20), at(30, 40, 50)},
		"one is too short":    {at(0, 10, 20, 30), at(5)},
		"together an instant": {at(0, 10, 20), at(20, 30, 40)},
	} {
		if got, _, err := cohort(streams, 100, 16); err == nil {
			t.Errorf("%s: measured %+v", name, got)
		}
	}
}

func TestTokensOf(t *testing.T) {
	for data, want := range map[string]int{
		`{"choices":[{"text":"a","token_ids":[1]}]}`:    1,
		`{"choices":[{"text":"ab","token_ids":[1,2]}]}`: 2,
		`{"choices":[{"text":"","token_ids":[]}]}`:      0,
		`{"choices":[{"text":"a"}]}`:                    0,
		`{"choices":[],"usage":{"prompt_tokens":3}}`:    0,
		`{}`: 0,
	} {
		if got, err := tokensOf([]byte(data)); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", data, got, err)
		}
	}
	for _, data := range []string{"", "x", `{"choices":{}}`, `{"error":{"message":"dead \u001b[31m"}}`, `{"choices":[{"token_ids":"many"}]}`} {
		if _, err := tokensOf([]byte(data)); err == nil || strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func FuzzTokensOf(f *testing.F) {
	f.Add([]byte(`{"choices":[{"token_ids":[1]}]}`))
	f.Add([]byte(`{"error":null}`))
	f.Add([]byte(`{"choices":[null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := tokensOf(b); err != nil && n != nil {
			t.Errorf("%v and %v", n, err)
		}
	})
}

// answering serves fixed bytes as a completion's stream.
func answering(t *testing.T, status int, body string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestStreamOfABrokenEngine(t *testing.T) {
	const event = `data: {"choices":[{"token_ids":[1]}]}` + "\n\n"
	for name, c := range map[string]struct {
		status int
		body   string
		want   string // part of the error, "" = good
		events int
	}{
		"good":            {200, event + event + ": a comment\n\n" + event + "data: [DONE]\n\n", "", 3},
		"cut off":         {200, event + event, "without [DONE]", 0},
		"an error":        {200, event + `data: {"error":{"message":"core died"}}` + "\n\ndata: [DONE]\n\n", "core died", 0},
		"no JSON":         {200, "data: x\n\n", "read stream", 0},
		"refused":         {503, `{"error":{"message":"busy","type":"Service Unavailable"}}`, "503", 0},
		"an endless line": {200, "data: " + strings.Repeat("x", maxEvent+1), "token too long", 0},
	} {
		client, err := engine.NewClient(answering(t, c.status, c.body), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := &prober{client: client, model: "m"}
		got, err := p.stream(limited(t), []int{1}, 3)
		client.Close()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || err == nil && len(got.at) != c.events {
			t.Errorf("%s: %d events, %v; want %q", name, len(got.at), err, c.want)
		}
	}
}
