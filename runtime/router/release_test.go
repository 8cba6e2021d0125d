package router

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

func TestReleaseSchedule(t *testing.T) {
	var at []float64
	for n := 0; ; n++ {
		next, ok := nextRelease(100, n)
		if !ok {
			break
		}
		at = append(at, next-100)
	}
	if !slices.Equal(at, []float64{65, 125, 245, 485, 965, 1925, 3845}) {
		t.Errorf("rounds at %v", at)
	}
	if _, ok := nextRelease(0, -1); ok {
		t.Error("a round before the first")
	}
}

// The rounds that are due are those whose moment has come: they never go back, and the next
// one lies ahead.
func TestReleaseRoundsFollowTheClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stopped := rapid.Float64Range(0, 1e6).Draw(t, "stopped")
		now := stopped + rapid.Float64Range(0, 5000).Draw(t, "later")
		n := dueReleases(stopped, now)
		if next, ok := nextRelease(stopped, n); ok && next <= now {
			t.Errorf("%d rounds at %v, the next at %v", n, now, next)
		}
		if last, ok := nextRelease(stopped, n-1); ok && last > now {
			t.Errorf("%d rounds at %v, the last at %v", n, now, last)
		}
		if more := dueReleases(stopped, now+60); more < n {
			t.Errorf("%d rounds, and later %d", n, more)
		}
	})
}

// reads words what is due.
func readsOf(due []read) (list []string) {
	for _, x := range due {
		list = append(list, fmt.Sprintf("%s reads %s for %s", x.consumer.id, x.producer.id, x.stopped.id))
	}
	return list
}

// Each live consumer reads once a round from a producer that serves; a failed producer is
// replaced once, five seconds later; an engine that serves again is owed nothing.
func TestReleasesThatAreDue(t *testing.T) {
	b := startBed(t, 3, 2, quick(), still)
	o := b.router.own
	o.do(func() {
		step := func(at float64, want ...string) []read {
			due := o.releases(at)
			if got := readsOf(due); !slices.Equal(got, want) {
				t.Errorf("at %v: %q, want %q", at, got, want)
			}
			return due
		}
		p0, d0 := o.node("p0"), o.node("d0")
		step(0)
		o.eject(p0, causeHealth)
		step(10)
		step(74.9)
		due := step(75, "d0 reads p1 for p0", "d1 reads p1 for p0")
		step(75.1)
		o.endRead(due[0], crossing{produce: errSidecar})
		o.endRead(due[1], crossing{consume: errSidecar})
		retry := p0.released.retries[0].at
		step(retry - 0.1)
		again := step(retry, "d0 reads p2 for p0")
		o.endRead(again[0], crossing{produce: errSidecar})
		d0.draining, d0.state = true, stateDraining
		step(135, "d1 reads p1 for p0")
		d0.state = stateDrained
		step(140)
		step(204.9)
		step(255, "d1 reads p1 for p0", "d1 reads p1 for d0")
		if p0.released.rounds != 3 || d0.released.rounds != 1 {
			t.Errorf("rounds %d, %d", p0.released.rounds, d0.released.rounds)
		}
		o.readmit(p0, p0.facts, "health")
		step(5000, "d1 reads p0 for d0")
		step(6000)
		s := o.releaseState()
		if len(s) != 1 || fmt.Sprint(s["d0"].(object)["rounds"], s["d0"].(object)["next_round_s"]) != "7 <nil>" {
			t.Errorf("state %v", s)
		}
		d0.draining, d0.state = false, stateActive
	})
}

// The rounds of a router whose clock stands in a bubble: a pass each interval finds each
// moment, and nothing between. Under the whole-wave policy there are no rounds.
func TestReleaseRoundsOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &settings{Config: Config{Fleet: fleetDoc()}}
		set.dialect, _ = dialectOf("vllm")
		o := &owner{set: set, start: time.Now(), nodes: []*node{{id: "p0", role: "prefill", pinned: true}, {id: "p1", role: "prefill", pinned: true}, {id: "d0", role: "decode", pinned: true}}}
		o.nodes[0].ejected = causeHealth
		var at []string
		for range 4000 {
			if len(o.releases(o.now())) > 0 {
				at = append(at, fmt.Sprint(o.now()))
			}
			time.Sleep(time.Second)
		}
		set.Fleet.Recovery.EngineRestartPolicy = "whole_wave"
		o.nodes[0].released = nil
		if o.releases(0); len(o.releases(1e6)) != 0 {
			t.Error("reads under the whole-wave policy")
		}
		if got := strings.Join(at, " "); got != "65 125 245 485 965 1925 3845" {
			t.Errorf("reads at %s", got)
		}
	})
}

// A round moves KV between engines and leaves nothing behind.
func TestReleaseReads(t *testing.T) {
	b := startBed(t, 2, 2, quick(), still)
	o := b.router.own
	var due []read
	o.do(func() {
		o.eject(o.node("p0"), causeHealth)
		o.releases(0)
		due = o.releases(65)
	})
	b.inject("p1", simulated.Injection{Kind: "leg1-status", Status: 500, Count: 1})
	b.router.releasePeers(t.Context(), due)
	o.do(func() {
		if rel := o.node("p0").released; len(rel.retries) != 1 || rel.retries[0].failed.id != "p1" || rel.retries[0].consumer.id != "d0" {
			t.Errorf("%+v", rel)
		}
	})
	b.idleSoon()
	var text string
	eventually(t, "the state tells", func() bool { text = fmt.Sprint(b.state().PeerRelease["p0"]); return strings.Contains(text, "rounds") })
}
