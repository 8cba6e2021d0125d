package preflight

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/simulatedtest"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// boot starts a simulated engine with known latencies in this process.
func boot(t *testing.T, change func(*simulated.Config)) *simulated.Server {
	t.Helper()
	cfg := simulated.Config{Model: "tiny", SideChannel: "127.0.0.1:0", Simulated: fleet.Simulated{
		PrefillA: 0.004, PrefillB: 0.00005, DecodeD: 0.004, DecodeE: 0.0005, BlockSize: 16, Blocks: 2000, MaxModelLen: 4096, MaxNumSeqs: 16, MaxBatched: 4096, LeaseS: 30, PrefixCaching: true,
	}}
	return simulatedtest.Start(t, cfg, change)
}

var points = fleet.Profiling{PrefillTokens: []int{64, 512, 1024, 2048}, PrefillRepeats: 2, DecodeRequests: []int{1, 4}, DecodeTokens: []int{32, 256}, OutputTokens: 12, PairTokens: 200}

func TestMeasure(t *testing.T) {
	s := boot(t, nil)
	m, err := measure(limited(t), ProfileRequest{IID: "p0", URL: s.URL(), Dialect: "vllm", Model: "tiny", Seed: 1, Points: points})
	if err != nil {
		t.Fatal(err)
	}
	if m.IID != "p0" || m.Capacity != 2000*16 || len(m.Samples.Prefill) < 4*leastRounds || len(m.Samples.Decode) < 4*leastRounds || m.Rounds < leastRounds || m.Discarded != 2+1+4 || m.Ended == "" {
		t.Fatalf("measured %+v", m)
	}
	mid := medians(m.Samples)
	for _, p := range mid.Prefill {
		want := 0.004 + 0.00005*float64(p.Tokens)
		if p.Seconds < want*0.9 { // a busy machine only makes it longer
			t.Errorf("prefill of %d tokens took %g s, the engine needs %g", p.Tokens, p.Seconds, want)
		}
	}
	for _, d := range mid.Decode {
		want := 0.004 + 0.0005*float64(d.Requests)
		if d.Gap < want*0.9 {
			t.Errorf("%d decoding: a gap of %g s, the engine needs %g", d.Requests, d.Gap, want)
		}
	}
	if _, _, err := profile.Fit(m.Samples); err != nil {
		t.Logf("on this machine now, the samples do not fit: %v", err)
	}
}

// TestMeasureKeepsToTheModel leaves out points that the engine cannot take.
func TestMeasureKeepsToTheModel(t *testing.T) {
	s := boot(t, func(c *simulated.Config) { c.MaxModelLen = 600 })
	m, err := measure(limited(t), ProfileRequest{IID: "p0", URL: s.URL(), Dialect: "vllm", Model: "tiny", Points: fleet.Profiling{
		PrefillTokens: []int{64, 599, 600, 5000, 0, -3}, DecodeRequests: []int{2}, DecodeTokens: []int{32, 590}, OutputTokens: 12}})
	if err != nil || len(prefillCells(m.Samples)) != 2 || len(decodeCells(m.Samples)) != 1 {
		t.Errorf("measured %+v, %v", m.Samples, err)
	}
}

func TestMeasureOfTinyModels(t *testing.T) {
	s := boot(t, func(c *simulated.Config) { c.MaxModelLen = 2 })
	if _, err := measure(limited(t), ProfileRequest{IID: "p0", URL: s.URL(), Dialect: "vllm", Model: "tiny", Points: fleet.Profiling{PrefillTokens: []int{1}}}); err != nil {
		t.Logf("refused: %v", err) // no panic
	}
	_, err := handoff(limited(t), HandoffRequest{Dialect: "vllm", Model: "tiny", From: "a", To: "b", Prefill: s.URL(), Decode: s.URL(), Tokens: 64})
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v", err)
	}
}

func TestMeasureOfABrokenEngine(t *testing.T) {
	s := boot(t, nil)
	if err := s.Inject(simulated.Injection{Kind: "error", Count: -1, After: 2}); err != nil {
		t.Fatal(err)
	}
	if m, err := measure(limited(t), ProfileRequest{IID: "p0", URL: s.URL(), Dialect: "vllm", Model: "tiny", Points: points}); err == nil {
		t.Errorf("measured %+v", m)
	}
	if _, err := measure(limited(t), ProfileRequest{IID: "p0", URL: s.URL(), Dialect: "vllm", Model: "other", Points: points}); err == nil {
		t.Error("measured a model that is not served")
	}
}

// pair hands over between two engines.
func pair(t *testing.T, p, d *simulated.Server, tokens int) (Handed, error) {
	t.Helper()
	return handoff(limited(t), HandoffRequest{Dialect: "vllm", Model: "tiny", From: "p0", To: "d0", Prefill: p.URL(), Decode: d.URL(), Tokens: tokens})
}

func TestHandoff(t *testing.T) {
	p, d := boot(t, nil), boot(t, nil)
	for _, tokens := range []int{200, 33, 16, 1} {
		h, err := pair(t, p, d, tokens)
		if err != nil {
			t.Fatal(err)
		}
		if !h.equal() || len(h.Split) != pairOutput || h.EngineID != p.EngineID() || h.PrefillMS <= 0 || h.DecodeMS <= 0 || h.Failed != 0 {
			t.Errorf("%d tokens: %+v", tokens, h)
		}
		if tokens == 200 && (!h.moved() || h.Prompt != 200) {
			t.Errorf("%d tokens moved %g, computed %g", tokens, h.Moved, h.Local)
		}
	}
	// The way back is another pair.
	if h, err := pair(t, d, p, 100); err != nil || !h.equal() || h.EngineID != d.EngineID() {
		t.Errorf("back: %+v, %v", h, err)
	}
}

// TestHandoffTimesFirstTokens generates no more than it compares where only the first token counts.
func TestHandoffTimesFirstTokens(t *testing.T) {
	p, d := boot(t, nil), boot(t, nil)
	q := HandoffRequest{Dialect: "vllm", Model: "tiny", From: "p0", To: "d0", Prefill: p.URL(), Decode: d.URL(), Tokens: 64, Long: 600, Firsts: 3}
	h, err := handoff(limited(t), q)
	if err != nil || !h.equal() || h.Long == nil || !h.Long.equal() || len(h.FirstS) != 1+q.Firsts || slices.Min(h.FirstS) <= 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	c, err := newProber(limited(t), d.URL(), "tiny", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.client.Close()
	s, err := c.state(limited(t), vllm.New())
	if want := float64(2*pairOutput + q.Firsts*firstOutput); err != nil || s.GenerationTokens != want {
		t.Errorf("the consumer generated %g tokens, want %g: %v", s.GenerationTokens, want, err)
	}
}

// TestHandoffThatFails shows each way in which KV does not arrive.
func TestHandoffThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		on       func(p, d *simulated.Server) (*simulated.Server, simulated.Injection)
		consumer func(*simulated.Config)
		fails    bool // the verb itself
		equal    bool
		moved    bool
	}{
		"wrong blocks": {on: func(p, d *simulated.Server) (*simulated.Server, simulated.Injection) {
			return d, simulated.Injection{Kind: "wrong-block", Count: 1}
		}, moved: true},
		"a failed read that is recomputed": {on: func(p, d *simulated.Server) (*simulated.Server, simulated.Injection) {
			return d, simulated.Injection{Kind: "read-failure", Count: 1}
		}, consumer: func(c *simulated.Config) { c.Recompute = true }, equal: true},
		"a failed read": {on: func(p, d *simulated.Server) (*simulated.Server, simulated.Injection) {
			return d, simulated.Injection{Kind: "read-failure", Count: 1}
		}, fails: true},
		"no handoff": {on: func(p, d *simulated.Server) (*simulated.Server, simulated.Injection) {
			return p, simulated.Injection{Kind: "drop-handoff", Count: 1}
		}, fails: true},
		"a handoff without a field": {on: func(p, d *simulated.Server) (*simulated.Server, simulated.Injection) {
			return p, simulated.Injection{Kind: "corrupt-handoff", Count: 1, Field: "remote_block_ids"}
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, d := boot(t, nil), boot(t, c.consumer)
			s, in := c.on(p, d)
			if err := s.Inject(in); err != nil {
				t.Fatal(err)
			}
			h, err := pair(t, p, d, 200)
			if c.fails {
				if err == nil {
					t.Errorf("handed over: %+v", h)
				}
				return
			}
			if err != nil || h.equal() != c.equal || h.moved() != c.moved {
				t.Errorf("equal %v, moved %v (%g of %d, %g failed), %v; want %v, %v", h.equal(), h.moved(), h.Moved, h.Prompt, h.Failed, err, c.equal, c.moved)
			}
		})
	}
}

func TestHandoffOfAnotherDialect(t *testing.T) {
	if _, err := handoff(limited(t), HandoffRequest{Dialect: "morse"}); err == nil {
		t.Error("a dialect that is not probed passed")
	}
}

func TestVerbNames(t *testing.T) {
	for _, name := range []string{"engine-profile", "engine-look", "abort-drill", "lease-drill", "handoff", "restart-drill", "relaunch"} {
		v := HostVerbs()[name]
		if v == nil {
			t.Errorf("no verb %s", name)
			continue
		}
		if _, err := v(limited(t), json.RawMessage(`[]`)); err == nil {
			t.Errorf("%s read a list", name)
		}
	}
}

func TestMoved(t *testing.T) {
	for name, c := range map[string]struct {
		h    Handed
		want bool
	}{
		"all":                 {Handed{Prompt: 200, Moved: 200}, true},
		"most":                {Handed{Prompt: 200, Moved: 192}, true},
		"half":                {Handed{Prompt: 200, Moved: 100}, true},
		"little":              {Handed{Prompt: 200, Moved: 99}, false},
		"nothing":             {Handed{Prompt: 200}, false},
		"no prompt":           {Handed{}, false},
		"a failure":           {Handed{Prompt: 200, Moved: 200, Failed: 1}, false},
		"a counter that fell": {Handed{Prompt: 200, Moved: -5}, false},
		"a restart between":   {Handed{Prompt: 200, Moved: 200, Failed: -1}, false},
	} {
		if got := c.h.moved(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (Handed{}).equal() || (Handed{Split: []int{1}, Unsplit: []int{2}}).equal() || !(Handed{Split: []int{1}, Unsplit: []int{1}}).equal() {
		t.Error("equal is wrong")
	}
	if math.IsNaN(ms(time.Now())) {
		t.Error("no time")
	}
}
