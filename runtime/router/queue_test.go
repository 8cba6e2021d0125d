package router

import (
	"strings"
	"sync"
	"testing"
	"time"
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
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 504 || !strings.Contains(a.body, `"type":"queue_expired"`) {
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
