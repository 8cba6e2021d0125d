package sched

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// upTo is residents of all ages: their last tokens come one after another.
func upTo(n, most int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 1 + i*most/n
	}
	return out
}

// 100 residents of 1000 tokens leave room for one more at the promised pace, and for none once each
// of them has made another 30 tokens and all are still there.
func TestBatchesThatGrowTogether(t *testing.T) {
	p, d := engine("p", model.Prefill), engine("d", model.Decode)
	together, counted := decoding(d, 1000, many(100, 200)...), decoding(d, 1000, many(100, 200)...)
	counted.Later = nil
	other := decoding(engine("e", model.Decode), 1000, upTo(100, 200)...)
	for name, c := range map[string]struct {
		s       model.Snapshot
		answer  int
		d       string
		refused model.Reason
	}{
		"they came together":           {s: snapshot(p, together), answer: 200, refused: model.ReasonTPOT},
		"they came one after another":  {s: snapshot(p, decoding(d, 1000, upTo(100, 200)...)), answer: 200, d: "d"},
		"another batch does not":       {s: snapshot(p, together, other), answer: 200, d: "e"},
		"the answer is over before":    {s: snapshot(p, together), answer: 40, d: "d"},
		"they are almost done":         {s: snapshot(p, decoding(d, 1000, many(100, 10)...)), answer: 200, d: "d"},
		"they have left by then":       {s: snapshot(queued(p, 1), decoding(d, 1000, many(100, 18)...)), answer: 200, d: "d"},
		"residents are only counted":   {s: snapshot(p, counted), answer: 200, d: "d"},
		"nobody is there":              {s: snapshot(p, decoding(d, 0)), answer: 1 << 31, d: "d"},
		"far from the pace, they grow": {s: snapshot(p, decoding(d, 500, many(100, 200)...)), answer: 200, d: "d"},
	} {
		if got := admit(c.s, request(500, c.answer), 100); got.Decode != c.d || got.Refused != c.refused {
			t.Errorf("%s: decode on %q, refused %q, want %q and %q", name, got.Decode, got.Refused, c.d, c.refused)
		}
	}
}

// Of many batches that grow together so many are read; then one is taken by its sums, as it is where
// residents are only counted.
func TestReadingIsBounded(t *testing.T) {
	for n, placed := range map[int]bool{mostGrown: false, mostGrown + 1: true} {
		s := snapshot(engine("p", model.Prefill))
		for i := range n {
			s.Engines = append(s.Engines, decoding(engine(string(rune('a'+i)), model.Decode), 1000, many(100, 200)...))
		}
		if got := admit(s, request(500, 200), 100); got.Placed != placed {
			t.Errorf("%d engines: placed %v (%s)", n, got.Placed, got.Refused)
		}
	}
}
