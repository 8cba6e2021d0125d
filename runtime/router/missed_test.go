package router

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// The controller hears of a request that was refused for want of engines, and of one that was late,
// and of no other.
func TestTheControllerHearsOfMisses(t *testing.T) {
	slow := func(c *Config) { c.Fleet.SLO.TPOTS, c.Fleet.Serving.Admission = 1e-4, "open" }
	dear := func(c *Config) {
		for i := range c.Profiles.Rows {
			c.Profiles.Rows[i].TTFTB = 1
		}
	}
	for _, c := range []struct {
		name           string
		change         tweak
		busy           bool
		prompt, status int
		want           [2]float64
	}{
		{name: "within the promise", change: func(*Config) {}, prompt: 20, status: 200},
		{name: "slow to decode", change: slow, prompt: 20, status: 200, want: [2]float64{0, 1}},
		{name: "slow at the second attempt", change: slow, busy: true, prompt: 20, status: 200},
		{name: "too long for any", change: dear, prompt: 2000, status: 429},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBed(t, 1, 1, quick(), c.change)
			if c.busy {
				b.inject("d0", simulated.Injection{Kind: "busy"})
			}
			a := b.complete(map[string]any{"prompt": make([]int, c.prompt), "max_tokens": 5, "ignore_eos": true})
			if a.status != c.status {
				t.Errorf("%d %s", a.status, a.body)
			}
			b.vacant()
			if got := b.misses(); got != c.want {
				t.Errorf("heard of %v", got)
			}
		})
	}
}

// A request that is refused because every seat is taken lacked decoding.
func TestTheControllerHearsOfARefusal(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		for i := range c.Profiles.Rows {
			c.Profiles.Rows[i].DecodeMaxRequests = 1
		}
	})
	ask := map[string]any{"prompt": make([]int, 20), "max_tokens": 1500, "ignore_eos": true}
	done := make(chan answer, 1)
	go func() { done <- b.complete(ask) }()
	b.decodes()
	if a := b.complete(ask); a.status != 429 || !strings.Contains(a.body, "slot_wait") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := b.misses(); got != [2]float64{0, 1} {
		t.Errorf("heard of %v", got)
	}
	if a := <-done; a.status != 200 {
		t.Errorf("the first: %d %s", a.status, a.body)
	}
}

// misses are those that the controller was told of, for want of prefill and of decoding.
func (b *testbed) misses() (n [2]float64) {
	type bucket struct{ Missed [2]float64 }
	var s struct {
		Open   bucket
		Closed []bucket
	}
	var raw []byte
	var err error
	b.router.own.do(func() { raw, err = json.Marshal(b.router.own.ctl) })
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		b.t.Fatal(fmt.Errorf("read the controller's state: %w", err))
	}
	for _, k := range append(s.Closed, s.Open) {
		n[0], n[1] = n[0]+k.Missed[0], n[1]+k.Missed[1]
	}
	return n
}
