package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever happens, no block is lost or held twice, and everything ends.
func TestBlocksBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig()
		cfg.Blocks = rapid.IntRange(17, 60).Draw(t, "blocks")
		cfg.MaxNumSeqs = rapid.IntRange(1, 5).Draw(t, "seqs")
		cfg.LeaseS = 0.2
		c := New(cfg)
		var live []*Seq
		now := start
		for i := range rapid.IntRange(1, 40).Draw(t, "ops") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1:
				s, _ := seq(fmt.Sprint("s", i), prompt(rapid.IntRange(0, 3).Draw(t, "p"), rapid.IntRange(1, 40).Draw(t, "n")), rapid.IntRange(1, 20).Draw(t, "out"))
				s.Export = rapid.Bool().Draw(t, "export")
				if rapid.Bool().Draw(t, "import") {
					s.Import = &Remote{Blocks: make([]int, 20)}
				}
				submit(t, c, now, s)
				live = append(live, s)
			case 2:
				if len(live) > 0 {
					c.Abort(now, live[rapid.IntRange(0, len(live)-1).Draw(t, "victim")])
				}
			case 3:
				for _, s := range live {
					if f := s.Sink.(*probe).fetch; f != nil && s.phase == fetching {
						contents := make([][]int32, f.Missing)
						var err error
						if rapid.Bool().Draw(t, "fails") {
							err = errors.New("x")
						}
						c.Fetched(now, s, contents, err, rapid.Bool().Draw(t, "recompute"))
						break
					}
				}
			default:
				c.Advance(now)
			}
			balance(t, c)
		}
		for range 1000 {
			for _, s := range live {
				if s.phase == fetching {
					c.Fetched(now, s, nil, errors.New("x"), false)
				}
			}
			at, ok := c.Next()
			if !ok {
				break
			}
			if at.After(now) {
				now = at
			}
			c.Advance(now)
			balance(t, c)
		}
		for _, s := range live {
			if s.phase != finished {
				t.Fatalf("%s did not end", s.ID)
			}
		}
		if c.pool.free != cfg.Blocks-1 {
			t.Fatalf("%d of %d blocks free at the end", c.pool.free, cfg.Blocks-1)
		}
	})
}

func balance(t *rapid.T, c *Core) {
	refs := make([]int, len(c.pool.blocks))
	for _, s := range slices.Concat(c.running, c.queue, c.held) {
		for _, b := range s.blocks {
			refs[b]++
		}
	}
	for _, p := range c.pins {
		for _, b := range p.Blocks {
			refs[b]++
		}
	}
	free := 0
	for i := 1; i < len(refs); i++ {
		if c.pool.blocks[i].refs != refs[i] {
			t.Fatalf("block %d has %d holders, counted %d", i, refs[i], c.pool.blocks[i].refs)
		}
		if refs[i] == 0 {
			free++
		}
	}
	if free != c.pool.free {
		t.Fatalf("%d free, counted %d", free, c.pool.free)
	}
}

func TestSameSeedSameTimes(t *testing.T) {
	run := func() []note {
		cfg := testConfig()
		cfg.Jitter, cfg.Seed = 0.3, 7
		c := New(cfg)
		s, pr := seq("a", prompt(1, 20), 30)
		submit(t, c, start, s)
		drive(t, c, at(1e6))
		return pr.got
	}
	a, b := run(), run()
	if !slices.Equal(a, b) || a[1].at.Sub(a[0].at) == a[2].at.Sub(a[1].at) {
		t.Fatal("jitter is not seeded")
	}
}

func BenchmarkDecodeStep(b *testing.B) {
	cfg := testConfig()
	cfg.MaxNumSeqs, cfg.MaxModelLen, cfg.Blocks = 64, 1<<20, 1<<19
	c := New(cfg)
	for i := range 64 {
		s, _ := seq(fmt.Sprint(i), prompt(i, 64), 1<<19)
		s.Sink = quiet{}
		submit(b, c, start, s)
	}
	for b.Loop() {
		at, _ := c.Next()
		c.Advance(at)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/token")
}

type quiet struct{}

func (quiet) Token(*Seq, int32, time.Time) bool { return false }
func (quiet) Fetch(*Seq, Fetch)                 {}
func (quiet) Done(*Seq, Result, time.Time)      {}
