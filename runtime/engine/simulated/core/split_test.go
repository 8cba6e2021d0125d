package core

import (
	"slices"
	"testing"
	"time"
)

// export runs leg 1 and returns its pin.
func export(t testing.TB, c *Core, now time.Time, id string, p []int32) *Pin {
	t.Helper()
	s, pr := seq(id, p, 1)
	s.Export = true
	submit(t, c, now, s)
	drive(t, c, now.Add(time.Second))
	if pr.result == nil || pr.result.Pin == nil {
		t.Fatal("no handoff")
	}
	return pr.result.Pin
}

// load runs leg 2 on d, reading from p.
func load(t testing.TB, d, p *Core, now time.Time, ids []int32, blocks []int, out int) *probe {
	t.Helper()
	s, pr := seq("leg2", ids, out)
	s.Import = &Remote{Blocks: blocks}
	submit(t, d, now, s)
	if pr.fetch == nil {
		t.Fatal("no fetch asked for")
	}
	contents, ok := p.Read(pr.fetch.Blocks)
	if !ok || len(contents) != pr.fetch.Missing {
		t.Fatalf("read %d of %d", len(contents), pr.fetch.Missing)
	}
	d.Fetched(now, s, contents, nil, false)
	drive(t, d, now.Add(time.Minute))
	return pr
}

func unsplit(t testing.TB, p []int32, out int) []int32 {
	t.Helper()
	c := New(testConfig())
	s, pr := seq("u", p, out)
	submit(t, c, start, s)
	drive(t, c, at(1e6))
	return pr.ids()
}

func TestSplitEqualsUnsplit(t *testing.T) {
	p, d := New(testConfig()), New(testConfig())
	ids := prompt(3, 21)
	pin := export(t, p, start, "r", ids)
	if len(pin.Blocks) != 6 || pin.Tokens != 21 {
		t.Fatalf("%+v", pin)
	}
	got := load(t, d, p, at(1000), ids, pin.Blocks, 8)
	if want := unsplit(t, ids, 8); !slices.Equal(got.ids(), want) {
		t.Fatalf("split %v unsplit %v", got.ids(), want)
	}
	if d.Stats.Transferred != 21 || d.Stats.LocalCompute != 0 || d.Stats.ExternalHits != 21 {
		t.Fatalf("%+v", d.Stats)
	}
	if !p.Notice(at(2000), "r") || p.Pins() != 0 || p.Gauges().Usage != 0 {
		t.Fatal("notice does not free")
	}
	if p.Notice(at(2000), "r") || p.Stats.LateNotices != 1 {
		t.Fatal("late notice not counted")
	}
}

func TestWrongKVChangesTheText(t *testing.T) {
	ids := prompt(3, 20)
	want := unsplit(t, ids, 8)
	t.Run("recycled", func(t *testing.T) {
		p, d := New(testConfig()), New(testConfig())
		pin := export(t, p, start, "r", ids)
		p.Recycle(at(1500))
		if got := load(t, d, p, at(2000), ids, pin.Blocks, 8).ids(); slices.Equal(got, want) {
			t.Fatal("recycled blocks gave the right text")
		}
	})
	t.Run("intact after notice", func(t *testing.T) {
		p, d := New(testConfig()), New(testConfig())
		pin := export(t, p, start, "r", ids)
		p.Notice(at(1500), "r")
		if got := load(t, d, p, at(2000), ids, pin.Blocks, 8).ids(); !slices.Equal(got, want) {
			t.Fatal("intact blocks gave another text")
		}
	})
	t.Run("other prompt of equal length", func(t *testing.T) {
		p, d := New(testConfig()), New(testConfig())
		pin := export(t, p, start, "r", ids)
		other := prompt(60, 20)
		if got := load(t, d, p, at(2000), other, pin.Blocks, 8).ids(); slices.Equal(got, unsplit(t, other, 8)) {
			t.Fatal("foreign blocks gave the right text")
		}
	})
	t.Run("shorter prompt", func(t *testing.T) {
		p, d := New(testConfig()), New(testConfig())
		pin := export(t, p, start, "r", ids)
		if got := load(t, d, p, at(2000), ids[:8], pin.Blocks, 8).ids(); slices.Equal(got, unsplit(t, ids[:8], 8)) {
			t.Fatal("a prefix gave the right text")
		}
	})
	t.Run("order of blocks", func(t *testing.T) {
		p, d := New(testConfig()), New(testConfig())
		pin := export(t, p, start, "r", ids)
		slices.Reverse(pin.Blocks)
		if got := load(t, d, p, at(2000), ids, pin.Blocks, 8).ids(); slices.Equal(got, want) {
			t.Fatal("reordered blocks gave the right text")
		}
	})
}
