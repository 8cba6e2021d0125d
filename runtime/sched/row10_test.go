package sched

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Who is refused for the queue could be served in no other order either: wherever it is put among
// those that wait, it or one that was admitted comes too late. docs/decisions/0010 has why.
func TestRow10NoOrderServesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const token = 1e-6
		curve := profile.Curve{B: 0.001, Intercept: token, MinRequests: 1, MaxRequests: 1 << 20, MinKVTokens: 1, MaxKVTokens: 1 << 40}
		s := model.Snapshot{Params: model.Params{TTFT: 2, TPOT: 1}, Engines: []model.EngineView{
			{ID: "p", Role: model.Prefill, Live: true, Curve: curve, Risk: 1}, {ID: "d", Role: model.Decode, Live: true, Curve: curve, Risk: 1}}}
		type waiting struct{ arrived, work float64 }
		var queue []waiting // the first is in work
		free, now := 0.0, 0.0
		for i := range rapid.IntRange(1, 40).Draw(t, "requests") {
			now += float64(rapid.IntRange(0, 600).Draw(t, "gap")) / 1000
			rest := func() (sum float64) { // behind the one in work
				for _, w := range queue[min(1, len(queue)):] {
					sum += w.work
				}
				return sum
			}
			for len(queue) > 0 && free-rest() <= now {
				queue = queue[1:]
			}
			r := model.Request{ID: fmt.Sprint(i), Arrived: now, Input: rapid.IntRange(1, 1900).Draw(t, "input"), Expected: 1}
			s.At, s.Engines[0].PrefillFree, s.Engines[0].PrefillRequests = now, free, len(queue)
			d := Admit(&s, &r, now, nil)
			own := 0.001 * float64(r.Input)
			if d.Placed {
				free = max(free, now) + own
				queue = append(queue, waiting{now, own})
				continue
			}
			if d.Refused != model.ReasonQueue {
				t.Fatalf("refused for %s", d.Refused)
			}
			for at := 1; at <= len(queue); at++ { // nobody is put before what is in work
				ends, late := free-rest(), false
				for k := 1; k <= len(queue); k++ {
					if k == at {
						ends += own
						late = late || ends+token > now+2-1e-9
					}
					if k < len(queue) {
						ends += queue[k].work
						late = late || ends+token > queue[k].arrived+2+1e-9
					}
				}
				if !late {
					t.Fatalf("at %.3f a request of %.3f s fits at place %d of %v", now, own, at, queue)
				}
			}
		}
	})
}
