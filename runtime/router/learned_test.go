package router

import (
	"math"
	"testing"
	"time"
)

// Of three prompts that were placed at once each takes twice what was predicted: those that are left
// are priced by what is learned of the engine, also beside residents, who have no time of it from
// one prefill to the next.
func TestQueueIsPricedByWhatIsLearned(t *testing.T) {
	for _, c := range []struct {
		residents int
		learned   []bool // when the first and the second prefill end
	}{{0, []bool{true, true}}, {1, []bool{false, true}}} {
		o := &owner{set: &settings{}}
		reactive := &o.set.Fleet.Controller.Reactive
		reactive.DecodeCorrectionMin, reactive.DecodeCorrectionMax, reactive.DecodeCorrectionAlpha = 0.5, 2, 0.2
		o.set.interval = time.Second
		row := startReplayRow(t)
		n := &node{curve: row.Curve(), kappa: 1, prefillKappa: 1, decoding: map[*claim]struct{}{}}
		o.nodes = []*node{n}
		for range c.residents {
			n.decoding[&claim{d: n}] = struct{}{}
		}
		own := n.curve.Prefill(4000)
		for i := range 3 {
			n.prefilling = append(n.prefilling, &claim{p: n, input: 4000, at: 10, own: own, work: own, queue: own * float64(i)})
		}
		last := n.prefilling[2]
		for i, learned := range c.learned {
			now, before := 10+2*own*float64(i+1), n.prefillKappa
			o.prefilled(n.prefilling[0], now, true)
			if n.prefillKappa > before != learned {
				t.Errorf("%d residents, prefill %d: the correction was %v and is %v", c.residents, i, before, n.prefillKappa)
			}
			if left := own * n.prefillKappa * float64(2-i); math.Abs(n.prefillFree-now-left) > 1e-9 {
				t.Errorf("%d residents, prefill %d: %v s are left, want %v", c.residents, i, n.prefillFree-now, left)
			}
			if due := 10 + 3*own*n.prefillKappa; math.Abs(last.due()-due) > 1e-9 {
				t.Errorf("%d residents, prefill %d: the last is due at %v, want %v", c.residents, i, last.due(), due)
			}
		}
	}
}
