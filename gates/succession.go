package gates

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
)

const (
	askEvery = 10 * time.Millisecond
	askLimit = 500 * time.Millisecond
	maxReady = 64 << 10
)

// succession asks a router until it admits or ctx ends, and says how long after begin that was.
func succession(ctx context.Context, base string, begin time.Time) Succeeded {
	client := &http.Client{Timeout: askLimit, Transport: &http.Transport{Proxy: nil}}
	defer client.CloseIdleConnections()
	t := Succeeded{Reason: "it does not answer"}
	for {
		askSucceeded(ctx, client, strings.TrimRight(base, "/")+"/ready", &t)
		t.GapMS = time.Since(begin).Milliseconds()
		if t.Ready || !pause.For(ctx, askEvery) {
			return t
		}
	}
}

// askSucceeded reads /ready once, whatever its status.
func askSucceeded(ctx context.Context, client *http.Client, url string, t *Succeeded) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Reason = clean(err.Error(), 200)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		return // what it said before stands
	}
	defer resp.Body.Close()
	var said struct {
		Epoch  int64  `json:"epoch"`
		Holder string `json:"holder"`
		Reason string `json:"reason"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxReady))
	if err != nil || json.Unmarshal(b, &said) != nil {
		t.Reason = "its answer is none"
		return
	}
	t.Ready, t.Epoch, t.Holder, t.Reason = resp.StatusCode == http.StatusOK, said.Epoch, clean(said.Holder, 200), clean(said.Reason, 200)
}
