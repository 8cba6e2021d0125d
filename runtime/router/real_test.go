//go:build realengines

package router

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/realengines"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// realBed is a router over two real engines, with limits for a shared machine.
func realBed(t *testing.T, p, d *realengines.Engine) *testbed {
	t.Helper()
	b := &testbed{t: t, journal: filepath.Join(t.TempDir(), "journal.jsonl")}
	cfg := Config{Fleet: fleetDoc(), Listen: "127.0.0.1:0", JournalPath: b.journal, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
		Verify: func(context.Context, profile.Row, engine.Identity) error { return nil }} // a restarted engine may return
	f := &cfg.Fleet
	f.Model, f.Serving.Admission, f.Serving.RequestTimeoutS, f.Serving.PrefillTimeoutS = realengines.Model, "open", 300, 120
	f.Engine.FirstTokenTimeoutS, f.Engine.DecodeReadTimeoutS, f.Engine.HealthTimeoutS = 90, 90, 20
	f.Controller.Advisory, f.Controller.MonitorIntervalS = true, 0.5
	for i, e := range []*realengines.Engine{p, d} {
		entry := fleet.Engine{IID: []string{"p0", "d0"}[i], URL: e.URL, Role: []string{fleet.RolePrefill, fleet.RoleDecode}[i]}
		f.Engines = append(f.Engines, entry)
		cfg.Profiles.Rows = append(cfg.Profiles.Rows, profile.NewRow(entry.IID, digestOf(t.Context(), t, e.URL), profile.Curve{B: 1e-4, C: 0.05, RequestSlope: 1e-3, Intercept: 0.02,
			MinRequests: 1, MaxRequests: 16, MinKVTokens: 1, MaxKVTokens: 30000}, profile.Report{}))
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	b.router, b.url = r, "http://"+r.Addr()
	t.Cleanup(b.stop)
	return b
}

func realPrompt(seed uint64, n int) []int {
	r := rand.New(rand.NewPCG(seed, 7))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 300 + r.IntN(1700)
	}
	return ids
}

func (b *testbed) ask(ctx context.Context, body map[string]any) (ids []int, status int, took time.Duration) {
	raw, _ := json.Marshal(body)
	start := time.Now()
	q, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/completions", strings.NewReader(string(raw)))
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, 0, time.Since(start)
	}
	defer resp.Body.Close()
	var a struct {
		Choices []struct {
			Tokens []int `json:"token_ids"`
		}
	}
	_ = json.NewDecoder(resp.Body).Decode(&a)
	if len(a.Choices) == 1 {
		ids = a.Choices[0].Tokens
	}
	return ids, resp.StatusCode, time.Since(start)
}

// Two hundred requests over a real pair answer token for token what one engine answers alone;
// aborted ones leave nothing behind; a killed engine costs no request and returns.
func TestRealPair(t *testing.T) {
	p, d := realengines.New(t, true), realengines.New(t, true)
	p.Start(t)
	d.Start(t)
	producer, consumer := p.Await(t), d.Await(t)
	b := realBed(t, p, d)
	ask := func(seed uint64) map[string]any {
		return map[string]any{"prompt": realPrompt(seed, 40+int(seed%5)*40), "max_tokens": 8, "temperature": 0, "ignore_eos": true, "return_token_ids": true}
	}
	if ids, status, _ := b.ask(t.Context(), ask(9999)); status != 200 || len(ids) != 8 { // the pair's first contact
		t.Fatalf("%d %v", status, ids)
	}
	var mu sync.Mutex
	wrong, failed := 0, 0
	var routed, whole []time.Duration
	var wg sync.WaitGroup
	work := make(chan uint64)
	for range 2 {
		wg.Go(func() {
			for seed := range work {
				ids, status, took := b.ask(t.Context(), ask(seed))
				start := time.Now()
				want, err := producer.Complete(t.Context(), engine.CompletionRequest{Model: realengines.Model, PromptIDs: realPrompt(seed, 40+int(seed%5)*40), MaxTokens: 8, IgnoreEOS: true})
				mu.Lock()
				routed, whole = append(routed, took), append(whole, time.Since(start))
				if status != 200 || err != nil {
					failed++
					t.Logf("request %d: %d, %v", seed, status, err)
				} else if !slices.Equal(ids, want.TokenIDs) {
					wrong++
					t.Logf("request %d: %v, want %v", seed, ids, want.TokenIDs)
				}
				mu.Unlock()
			}
		})
	}
	for seed := range uint64(200) {
		work <- seed
	}
	close(work)
	wg.Wait()
	slices.Sort(routed)
	slices.Sort(whole)
	t.Logf("200 requests: %d failed, %d wrong; p50 split through the router %s, whole on one engine %s", failed, wrong, routed[100], whole[100])
	if failed+wrong > 0 {
		t.Error("answers differ")
	}
	byHandAgainst(t, b, producer, consumer)
	aborts(t, b, producer, consumer)
	killed(t, b, d, ask)
	n := 0
	for _, r := range b.rows() {
		if r.Crossed && r.Terminal == "completed" {
			n++
		}
	}
	t.Logf("%d requests crossed engines", n)
	if n < 200 {
		t.Errorf("only %d requests crossed engines", n)
	}
}

// byHandAgainst compares the router with both legs driven by hand.
func byHandAgainst(t *testing.T, b *testbed, producer, consumer *engine.Client) {
	t.Helper()
	var routed, hand []time.Duration
	for i := range uint64(20) {
		prompt := realPrompt(5000+i, 100)
		body := map[string]any{"model": realengines.Model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
		_, status, took := b.ask(t.Context(), body)
		if status != 200 {
			t.Errorf("status %d", status)
		}
		routed = append(routed, took)
		prompt[0]++ // no cached prefix
		raw, _ := json.Marshal(map[string]any{"model": realengines.Model, "prompt": prompt, "max_tokens": 1, "temperature": 0})
		start := time.Now()
		leg, _ := engine.Prefill(vllm.New(), raw)
		resp, err := producer.Do(t.Context(), "/v1/completions", leg, "")
		if err != nil {
			t.Fatal(err)
		}
		one, err := engine.ReadAll(resp.Body, "leg 1", 1<<20)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		h, _, err := vllm.New().ParseHandoff(one, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		leg, _ = engine.Decode(vllm.New(), raw, h)
		resp, err = consumer.Do(t.Context(), "/v1/completions", leg, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.ReadAll(resp.Body, "leg 2", 1<<20); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		hand = append(hand, time.Since(start))
	}
	slices.Sort(routed)
	slices.Sort(hand)
	t.Logf("one token of 100: p50 through the router %s, both legs by hand %s", routed[10], hand[10])
}

func aborts(t *testing.T, b *testbed, producer, consumer *engine.Client) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range uint64(20) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+i*40)*time.Millisecond)
			defer cancel()
			_, _, _ = b.ask(ctx, map[string]any{"prompt": realPrompt(7000+i, 300), "max_tokens": 400, "temperature": 0, "ignore_eos": true})
		})
	}
	wg.Wait()
	for _, c := range []*engine.Client{producer, consumer} {
		end := time.Now().Add(time.Minute)
		for {
			m, err := c.Metrics(t.Context())
			if err == nil {
				st, _ := vllm.New().State(m)
				if st.Running == 0 && st.Waiting == 0 && st.Usage < 0.01 {
					break
				}
			}
			if time.Now().After(end) {
				t.Errorf("an engine still holds something after the aborts")
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// killed ends the decode engine under load. The other one serves alone meanwhile.
func killed(t *testing.T, b *testbed, d *realengines.Engine, ask func(uint64) map[string]any) {
	t.Helper()
	stop := make(chan struct{})
	failures := make(chan string, 1000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for seed := uint64(8000); ; seed++ {
			select {
			case <-stop:
				return
			default:
			}
			if ids, status, _ := b.ask(t.Context(), ask(seed)); status != 200 || len(ids) != 8 {
				failures <- fmt.Sprintf("request %d: %d, %d tokens", seed, status, len(ids))
			}
		}
	})
	time.Sleep(2 * time.Second)
	d.Kill()
	time.Sleep(5 * time.Second)
	d.Start(t)
	d.Await(t)
	end := time.Now().Add(2 * time.Minute)
	for len(b.state().Ejected) > 0 {
		if time.Now().After(end) {
			t.Error("the restarted engine was not taken back")
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(3 * time.Second)
	close(stop)
	wg.Wait()
	close(failures)
	for f := range failures {
		t.Error(f)
	}
}
