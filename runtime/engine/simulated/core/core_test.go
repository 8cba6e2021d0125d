package core

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

var start = time.Unix(1_800_000_000, 0)

func testConfig() Config {
	return Config{Model: "m", Simulated: fleet.Simulated{
		PrefillA: 0.01, PrefillB: 0.001, DecodeD: 0.005, DecodeE: 0.001, BlockSize: 4, Blocks: 65,
		MaxModelLen: 64, MaxNumSeqs: 8, MaxBatched: 32, LeaseS: 30, PrefixCaching: true,
	}}.WithDefaults()
}

type note struct {
	id int32
	at time.Time
}

// probe records what happens to one sequence.
type probe struct {
	got    []note
	fetch  *Fetch
	result *Result
	ended  time.Time
	stopAt int
}

func (p *probe) Token(_ *Seq, id int32, now time.Time) bool {
	p.got = append(p.got, note{id, now})
	return p.stopAt > 0 && len(p.got) == p.stopAt
}
func (p *probe) Fetch(_ *Seq, f Fetch)                { p.fetch = &f }
func (p *probe) Done(_ *Seq, r Result, now time.Time) { p.result, p.ended = &r, now }

func (p *probe) ids() []int32 {
	var out []int32
	for _, n := range p.got {
		out = append(out, n.id)
	}
	return out
}

func prompt(from, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(from + i*i%97)
	}
	return ids
}

func seq(id string, p []int32, out int) (*Seq, *probe) {
	pr := &probe{}
	return &Seq{ID: id, Prompt: p, MaxTokens: out, Sink: pr}, pr
}

// drive advances the core to each of its own times until it is idle or the limit passed.
func drive(t testing.TB, c *Core, until time.Time) time.Time {
	t.Helper()
	now := start
	for range 100_000 {
		at, ok := c.Next()
		if !ok || at.After(until) {
			return now
		}
		now = at
		c.Advance(at)
	}
	t.Fatal("core does not come to rest")
	return now
}

type fataler interface{ Fatal(...any) }

func submit(t fataler, c *Core, now time.Time, s ...*Seq) {
	if err := c.Submit(now, s...); err != nil {
		t.Fatal(err)
	}
}

func at(ms float64) time.Time { return start.Add(time.Duration(ms * float64(time.Millisecond))) }

func TestLatencyFormula(t *testing.T) {
	c := New(testConfig())
	a, pa := seq("a", prompt(0, 10), 3)
	submit(t, c, start, a)
	drive(t, c, at(1e6))
	// prefill 10 + 10·1 = 20 ms, then two decode steps of 5 + 1 ms
	want := []time.Time{at(20), at(26), at(32)}
	for i, w := range want {
		if !pa.got[i].at.Equal(w) {
			t.Fatalf("token %d at %v, want %v", i, pa.got[i].at.Sub(start), w.Sub(start))
		}
	}
	if pa.result.Reason != "length" || pa.result.Pin != nil {
		t.Fatalf("%+v", pa.result)
	}
}

func TestRunningSequencesAdvanceTogether(t *testing.T) {
	c := New(testConfig())
	a, pa := seq("a", prompt(0, 10), 6)
	b, pb := seq("b", prompt(50, 8), 6)
	submit(t, c, start, a)
	submit(t, c, at(1), b) // while the first step runs
	drive(t, c, at(1e6))
	// the second step prefills b and decodes a: 10 + 8 + 5 + 1
	if got := pb.got[0].at; !got.Equal(at(44)) || !pa.got[1].at.Equal(got) {
		t.Fatal(pa.got, pb.got)
	}
	for i := range 4 {
		if !pa.got[i+2].at.Equal(pb.got[i+1].at) {
			t.Fatal("steps are not shared")
		}
	}
}

func TestLongPromptTakesSeveralSteps(t *testing.T) {
	c := New(testConfig())
	a, pa := seq("a", prompt(0, 60), 1)
	submit(t, c, start, a)
	drive(t, c, at(1e6))
	if !pa.got[0].at.Equal(at(80)) { // 10+32, then 10+28
		t.Fatal(pa.got[0].at.Sub(start))
	}
}

func TestPrefixCacheSavesCompute(t *testing.T) {
	c := New(testConfig())
	a, pa := seq("a", prompt(0, 20), 4)
	b, pb := seq("b", prompt(0, 20), 4)
	d, _ := seq("d", prompt(0, 20), 4)
	d.Salt = "x"
	submit(t, c, start, a)
	drive(t, c, at(1000))
	submit(t, c, at(1000), b)
	drive(t, c, at(2000))
	submit(t, c, at(2000), d)
	drive(t, c, at(3000))
	if b.Cached() != 16 || !slices.Equal(pa.ids(), pb.ids()) {
		t.Fatal(b.Cached(), pa.ids(), pb.ids())
	}
	if got := pb.got[0].at.Sub(at(1000)); got != 14*time.Millisecond {
		t.Fatal(got)
	}
	if d.Cached() != 0 {
		t.Fatal("a salted prompt hit another's cache")
	}
	if c.Stats.LocalHit != 16 || c.Stats.LocalCompute != 44 {
		t.Fatalf("%+v", c.Stats)
	}
}

func TestAnswerContinues(t *testing.T) {
	ids := prompt(9, 11)
	all := unsplit(t, ids, 10)
	rest := unsplit(t, append(slices.Clone(ids), all[:4]...), 6)
	if !slices.Equal(all[4:], rest) {
		t.Fatal("a resumed prompt answers otherwise")
	}
}

func TestLeaseExpiresAndHeartbeatExtends(t *testing.T) {
	c := New(testConfig())
	export(t, c, start, "a", prompt(1, 12))
	export(t, c, at(1000), "b", prompt(40, 12))
	if c.Gauges().Usage == 0 || c.Pins() != 2 {
		t.Fatal("nothing pinned")
	}
	c.Extend(at(25_000), "b") // to 45 s
	drive(t, c, at(32_000))
	if c.Pins() != 1 || c.Stats.Expired != 1 {
		t.Fatal(c.Pins(), c.Stats.Expired)
	}
	if next, ok := c.Next(); !ok || !next.Equal(at(45_000)) {
		t.Fatal(next.Sub(start))
	}
	drive(t, c, at(60_000))
	if c.Pins() != 0 || c.Gauges().Usage != 0 {
		t.Fatal("lease did not end")
	}
	if _, ok := c.Next(); ok {
		t.Fatal("idle core wants to wake")
	}
}

func TestPinnedBlocksHoldBackPrefills(t *testing.T) {
	cfg := testConfig()
	cfg.Blocks = 17 // 16 usable, 64 tokens
	c := New(cfg)
	export(t, c, start, "a", prompt(1, 40))
	s, pr := seq("b", prompt(50, 40), 1)
	submit(t, c, at(1000), s)
	drive(t, c, at(20_000))
	if pr.result != nil || c.Gauges().Capacity != 1 {
		t.Fatal("the prefill did not wait")
	}
	drive(t, c, at(40_000))
	if pr.result == nil {
		t.Fatal("the prefill still waits after the lease")
	}
}

func TestPreemptionKeepsTheText(t *testing.T) {
	cfg := testConfig()
	cfg.Blocks, cfg.PrefixCaching = 18, false
	c := New(cfg)
	a, pa := seq("a", prompt(1, 24), 20)
	b, pb := seq("b", prompt(50, 24), 20)
	submit(t, c, start, a, b)
	drive(t, c, at(1e6))
	if c.Stats.Preemptions == 0 {
		t.Fatal("nothing preempted")
	}
	if !slices.Equal(pa.ids(), unsplit(t, prompt(1, 24), 20)) || !slices.Equal(pb.ids(), unsplit(t, prompt(50, 24), 20)) {
		t.Fatal("preemption changed an answer")
	}
}

func TestFailedRead(t *testing.T) {
	for _, recompute := range []bool{false, true} {
		c := New(testConfig())
		s, pr := seq("a", prompt(1, 20), 5)
		s.Import = &Remote{Blocks: []int{1, 2, 3, 4, 5}}
		submit(t, c, start, s)
		if g := c.Gauges(); g.Deferred != 1 || g.Running != 0 {
			t.Fatalf("%+v", g)
		}
		c.Fetched(at(5), s, nil, errors.New("x"), recompute)
		drive(t, c, at(1e6))
		if c.Stats.ExternalHits != 20 || c.Stats.Transferred != 0 {
			t.Fatalf("%+v", c.Stats)
		}
		if recompute {
			if !slices.Equal(pr.ids(), unsplit(t, prompt(1, 20), 5)) || c.Stats.LocalCompute != 20 {
				t.Fatal("recompute gave another text")
			}
		} else if !errors.Is(pr.result.Err, ErrLoad) || c.Stats.Failed != 1 {
			t.Fatalf("%+v", pr.result)
		}
		if c.Gauges().Usage != 0 {
			t.Fatal("blocks leak")
		}
	}
}

func TestPauseFreezeDie(t *testing.T) {
	c := New(testConfig())
	c.Pause(start, true)
	s, pr := seq("a", prompt(1, 8), 2)
	submit(t, c, start, s)
	if g := c.Gauges(); g.Running+g.Capacity+g.Deferred != 0 {
		t.Fatal("a paused engine shows its queue")
	}
	c.Pause(at(100), false)
	c.Freeze(at(101), true)
	if _, ok := c.Next(); ok {
		t.Fatal("a frozen core wants to wake")
	}
	c.Advance(at(9000))
	if len(pr.got) != 0 {
		t.Fatal("a frozen core answered")
	}
	c.Freeze(at(9001), false)
	drive(t, c, at(20_000))
	if len(pr.got) != 2 {
		t.Fatal("no answer after the thaw")
	}
	s2, pr2 := seq("b", prompt(1, 8), 50)
	submit(t, c, at(30_000), s2)
	c.Die(at(30_001))
	if pr2.result == nil || !errors.Is(pr2.result.Err, ErrDead) {
		t.Fatal("death left a sequence alive")
	}
	if err := c.Submit(at(30_002), s2); !errors.Is(err, ErrDead) {
		t.Fatal(err)
	}
}

func TestStopBySinkAndAbort(t *testing.T) {
	c := New(testConfig())
	a, pa := seq("a", prompt(1, 8), 20)
	pa.stopAt = 3
	a.Export = true
	b, pb := seq("b", prompt(30, 8), 20)
	submit(t, c, start, a, b)
	c.Advance(at(40))
	if !c.Abort(at(41), b) || c.Abort(at(41), b) {
		t.Fatal("abort")
	}
	drive(t, c, at(1e6))
	if pa.result.Reason != "stop" || len(pa.got) != 3 || pa.result.Pin != nil {
		t.Fatalf("%+v", pa.result)
	}
	if pb.result != nil || c.Stats.Length+c.Stats.Stopped+c.Stats.Failed != 1 {
		t.Fatal("an abort was counted")
	}
	if c.Gauges().Usage != 0 {
		t.Fatal("blocks leak")
	}
}
