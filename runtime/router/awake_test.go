package router

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// A silent engine's stream gets comments; the answer is whole all the same, and what fails
// after the first comment is an event.
func TestStreamsAreKeptAwake(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) { c.HTTP.KeepAlive = 20 * time.Millisecond; c.Fleet.Serving.MaxAttempts = 1 })
	body := `{"prompt":"whale song","max_tokens":4,"stream":true,"temperature":0}`
	b.inject("d0", simulated.Injection{Kind: "freeze"})
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	q, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/completions", strings.NewReader(body))
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len(comment))
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != string(comment) || resp.StatusCode != 200 {
		t.Fatalf("%d %q, %v", resp.StatusCode, first, err)
	}
	off := false
	b.inject("d0", simulated.Injection{Kind: "freeze", On: &off})
	rest, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(rest), "[DONE]") != 1 || strings.Contains(string(rest), `"error"`) {
		t.Fatalf("%q, %v", rest, err)
	}
	b.inject("d0", simulated.Injection{Kind: "freeze"})
	b.router.set.firstToken = 200 * time.Millisecond
	a := b.complete(body)
	if a.status != 200 || !strings.HasPrefix(a.body, string(comment)) || strings.Count(a.body, `data: {"error"`) != 1 || strings.Contains(a.body, "[DONE]") {
		t.Errorf("%d %q", a.status, a.body)
	}
	b.inject("d0", simulated.Injection{Kind: "freeze", On: &off})
	rows := b.rows()
	if r := rows[len(rows)-1]; r.Terminal != "failed" || r.Status == nil || *r.Status != 200 {
		t.Errorf("row %+v", r)
	}
}
