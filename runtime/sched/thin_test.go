package sched

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// decoding gives an engine residents that have so many tokens left to make.
func decoding(e model.EngineView, tokens int, left ...int) model.EngineView {
	var l residents
	e.DecodeRequests, e.DecodeTokens, e.DecodeRemaining = len(left), tokens*len(left), 0
	for _, n := range left {
		l = append(l, model.Resident{Tokens: tokens, Remaining: n})
		e.DecodeRemaining += n
	}
	e.Later = l
	return e
}

func many(n, left int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = left
	}
	return out
}

func queued(e model.EngineView, seconds float64) model.EngineView {
	e.PrefillFree = 100 + seconds
	return e
}

// 104 residents of 1000 tokens take the batch to its pace; one more is too many until some leave.
func TestBatchesThinOut(t *testing.T) {
	p, d := engine("p", model.Prefill), engine("d", model.Decode)
	counted := decoding(d, 1000, many(104, 5)...)
	counted.Later = nil
	for name, c := range map[string]struct {
		s       model.Snapshot
		p       string
		refused model.Reason
	}{
		"all stay":                   {s: snapshot(queued(p, 1), decoding(d, 1000, many(104, 500)...)), refused: model.ReasonTPOT},
		"some leave meanwhile":       {s: snapshot(queued(p, 1), decoding(d, 1000, append(many(60, 500), many(44, 5)...)...)), p: "p"},
		"too few leave":              {s: snapshot(queued(p, 1), decoding(d, 1000, append(many(102, 500), 5, 5)...)), refused: model.ReasonTPOT},
		"they leave too late":        {s: snapshot(queued(p, 0.2), decoding(d, 1000, many(104, 15)...)), refused: model.ReasonTPOT},
		"in time behind a queue":     {s: snapshot(queued(p, 0.2), queued(engine("q", model.Prefill), 1.5), decoding(d, 1000, many(104, 15)...)), p: "q"},
		"behind a queue too long":    {s: snapshot(queued(p, 0.2), queued(engine("q", model.Prefill), 2.5), decoding(d, 1000, many(104, 15)...)), refused: model.ReasonQueue},
		"their engine prefills":      {s: snapshot(queued(p, 0.2), queued(decoding(d, 1000, many(104, 5)...), 0.5)), refused: model.ReasonTPOT},
		"it has done so before":      {s: snapshot(queued(p, 1), queued(decoding(d, 1000, many(104, 5)...), 0.5)), p: "p"},
		"another engine has room":    {s: snapshot(p, decoding(d, 1000, many(104, 5)...), engine("d1", model.Decode)), p: "p"},
		"residents are only counted": {s: snapshot(queued(p, 1), counted), refused: model.ReasonTPOT},
	} {
		got := admit(c.s, request(500, 100), 100)
		if got.Prefill != c.p || got.Refused != c.refused {
			t.Errorf("%s: prefill on %q, refused %q, want %q and %q", name, got.Prefill, got.Refused, c.p, c.refused)
		}
	}
}

// Those who decode on an engine set the pace at which they leave it, not those whose prompts are
// still prefilled elsewhere.
func TestPaceIsOfThoseWhoDecode(t *testing.T) {
	d := decoding(engine("d", model.Decode), 1000, many(80, 24)...)
	late := d.Later.(residents)
	for range 80 {
		late = append(late, model.Resident{Ready: 105, Tokens: 1000, Remaining: 24})
	}
	d.Later, d.DecodeRequests, d.DecodeTokens, d.ComingRequests, d.ComingTokens = late, 160, 160000, 80, 80000
	if got := admit(snapshot(queued(engine("p", model.Prefill), 1.6), d), request(500, 100), 100); !got.Placed {
		t.Errorf("refused for %q: by then all who decode now have left", got.Refused)
	}
}

// genResidents fills the decode engines of a snapshot with residents that are known one by one.
func genResidents(t *rapid.T) model.Snapshot {
	s := genSnapshot(t)
	s.Params.Open, s.Params.Lend = false, rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "lend")
	for i := range s.Engines {
		if e := &s.Engines[i]; e.Role == model.Decode {
			left := rapid.SliceOfN(rapid.IntRange(1, 200), 0, 127).Draw(t, "left")
			*e = decoding(*e, rapid.IntRange(1, 2000).Draw(t, "tokens"), left...)
		}
	}
	return s
}

// Who is placed under a deadline is placed under every longer one.
func TestLongerDeadlineNeverRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genResidents(t)
		r := request(rapid.IntRange(1, 20000).Draw(t, "input"), rapid.IntRange(1, 500).Draw(t, "expected"))
		short := admit(s, r, 100)
		s.Params.TTFT *= 1 + rapid.Float64Range(0, 3).Draw(t, "longer")
		if long := admit(s, r, 100); short.Placed && !long.Placed {
			t.Fatalf("placed within the short deadline, refused for %s within the long one", long.Refused)
		}
	})
}

// A request is placed only if a pair keeps the promise: now, or when the prefill of the soonest or
// the latest engine within the deadline ends. It is refused only if no pair does, or the batch of
// each that does outgrows the pace.
func TestRefusedOnlyWithoutAPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genResidents(t)
		s.Params.Lend = 0
		r := request(rapid.IntRange(1, 20000).Draw(t, "input"), rapid.IntRange(1, 500).Draw(t, "expected"))
		d := admit(s, r, 100)
		if some, lasting := feasible(s, r); d.Placed && !some || !d.Placed && lasting {
			t.Fatalf("a pair keeps the promise: %v, and as its batch grows: %v, but %+v", some, lasting, d)
		}
	})
}

// feasible reports whether a pair keeps the promise, and whether a decode engine of one does beside
// all prefill engines as its batch grows.
func feasible(s model.Snapshot, r model.Request) (some, lasting bool) {
	w := weigh(&s, &r, 100, nil)
	_, some = exhaustive(s, r)
	look := func(thinned bool) {
		for j := range w.ds {
			d := &w.ds[j]
			e := &s.Engines[d.index]
			found, grows := false, false
			for i := range w.ps {
				p := &w.ps[i]
				if p.Dropped != "" || d.Dropped != "" || w.price(p, d) > s.Params.Budget() || w.room(p, d) != "" {
					continue
				}
				n, k := e.Occupied(100, 100+p.ends()+d.ahead, max(s.Params.TPOT, d.pace))
				if !thinned || e.Kappa()*e.Curve.Interval(n+1, k+r.Input) <= s.Params.TPOT {
					found, grows = true, grows || w.outgrows(p, d)
				}
			}
			some, lasting = some || found, lasting || found && !grows
		}
	}
	look(false)
	if lasting {
		return some, lasting
	}
	w.thins()
	look(true)
	return some, lasting
}

// BenchmarkAdmitDense refuses one request on a fleet whose batches all are at their pace.
func BenchmarkAdmitDense(b *testing.B) {
	for _, n := range []int{8, 64, 1024} {
		s := fleet(n)
		for i := range s.Engines {
			if e := &s.Engines[i]; e.Role == model.Decode {
				*e = decoding(*e, 1000, many(105+i%5, 300)...)
			}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, x := request(700, 200), Scratch{}
			b.ReportAllocs()
			for b.Loop() {
				if d := Admit(&s, &r, 100, &x); d.Placed {
					b.Fatal("placed")
				}
			}
		})
	}
}
