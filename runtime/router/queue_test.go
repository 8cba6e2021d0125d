package router

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// With a queue, requests over the limit wait in order for a seat instead of being refused.
func TestAdmissionQueue(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.MaxConcurrent, c.Fleet.Serving.QueueCapacity, c.Fleet.Serving.QueueTimeoutS = 1, 6, 15
	})
	var wg sync.WaitGroup
	for range 7 {
		wg.Go(func() {
			if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 20}); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
	s := b.state()
	if high := s.Admission["queue_high_water"].(float64); high < 1 || s.Admission["queued"] != 0.0 || s.Admission["inflight"] != 0.0 {
		t.Errorf("%v", s.Admission)
	}
	waited := 0
	for _, r := range b.rows() {
		if r.QueueWait > 0 {
			waited++
		}
	}
	if waited == 0 {
		t.Error("no row tells of a wait")
	}
}

// A wait that is too long is answered 429 with the time until a seat, before it where that is
// known: by how seats came free lately, or by the first-token budget.
func TestRow11QueueAnswersWhenItKnows(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, budget float64
		ends            int // of other requests, one each half second
		least, most     float64
		after           string
	}{
		"at the bound":        {timeout: 0.3, budget: 60, least: 0.3, most: 3, after: "1"},
		"budget gone":         {timeout: 30, budget: 0.3, least: 0.3, most: 3, after: "1"},
		"known beforehand":    {timeout: 0.3, budget: 60, ends: 10, most: 0.25, after: "1"},
		"soon enough by that": {timeout: 0.9, budget: 60, ends: 10, least: 0.9, most: 4, after: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBed(t, 1, 1, quick(), func(cfg *Config) {
				cfg.MaxConcurrent, cfg.Fleet.Serving.QueueCapacity = 1, 4
				cfg.Fleet.Serving.QueueTimeoutS, cfg.Fleet.SLO.TTFTS = c.timeout, c.budget
			})
			o := b.router.own
			o.do(func() {
				o.seatOrWait()
				for i := range c.ends {
					o.n.drain.ended(o.now() - float64(c.ends-i)/2)
				}
			})
			a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2})
			row := b.rows()[0]
			if a.status != 429 || a.header.Get("Retry-After") != c.after || row.Terminal != journal.Expired || *row.Reason != model.ReasonQueueTimeout {
				t.Errorf("%d %v %s: %s", a.status, a.header, a.body, row.Terminal)
			}
			if row.Duration < c.least || row.Duration > c.most {
				t.Errorf("answered after %v s", row.Duration)
			}
		})
	}
}

// A waiter's time is up, its client leaves, or the seat comes: nothing of it stays behind.
func TestQueueWaitsEnd(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.MaxConcurrent, c.Fleet.Serving.QueueCapacity, c.Fleet.Serving.QueueTimeoutS = 1, 2, 0.2
	})
	var held *waiter
	b.router.own.do(func() { held = b.router.own.seatOrWait() })
	if held != nil {
		t.Fatal("no seat")
	}
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 429 || !strings.Contains(a.body, `"type":"server_overloaded_error"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	var first, second *waiter
	b.router.own.do(func() {
		o := b.router.own
		first, second = o.seatOrWait(), o.seatOrWait()
		if !o.drop(first) {
			t.Error("a waiter without a seat cannot leave")
		}
		o.leaveSeat()
		if o.drop(second) || o.n.inflight != 1 {
			t.Error("the seat was not handed on")
		}
		o.leaveSeat()
	})
	select {
	case <-second.handed:
	case <-time.After(time.Second):
		t.Error("the second waiter does not know of its seat")
	}
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
