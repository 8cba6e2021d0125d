package simulate

import (
	"math"
	"testing"
)

// Of three prompts that were placed at once each takes twice what was predicted: those that are left
// are priced by what is learned of the engine, also beside residents, who stand still from one
// prefill to the next.
func TestQueueIsPricedByWhatIsLearned(t *testing.T) {
	for _, c := range []struct {
		residents int
		learned   []bool // when the first and the second prefill end
	}{{0, []bool{true, true}}, {1, []bool{false, true}}} {
		w := bed(t, "default")
		e, d := w.engines[0], w.engines[2]
		e.live = c.residents
		var jobs []*job
		for i := range 3 {
			j := &job{id: string(rune('a' + i)), input: 100, output: 10, told: 10, p: e, d: d, own: 0.1, queue: 0.1 * float64(i), placed: 1}
			reserve(j, 1)
			e.addPrefill(j)
			jobs = append(jobs, j)
		}
		for i, learned := range c.learned {
			now := 1.2 + 0.2*float64(i)
			before := e.v.PrefillCorrection
			e.prefills.pop()
			prefillEnded(jobs[i], now)
			kappa := e.v.PrefillCorrection
			if kappa > before != learned {
				t.Errorf("%d residents, prefill %d: the correction was %v and is %v", c.residents, i, before, kappa)
			}
			if left := 0.1 * kappa * float64(2-i); math.Abs(e.prefillFree-now-left) > 1e-9 || math.Abs(e.whole-left) > 1e-9 {
				t.Errorf("%d residents, prefill %d: %v s are left, want %v", c.residents, i, e.prefillFree-now, left)
			}
			if due := 1 + 0.3*kappa; math.Abs(jobs[2].due()-due) > 1e-9 {
				t.Errorf("%d residents, prefill %d: the last is due at %v, want %v", c.residents, i, jobs[2].due(), due)
			}
		}
	}
}
