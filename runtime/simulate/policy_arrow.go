package simulate

import (
	"math"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// arrow follows Arrow (arXiv:2505.11916) as far as it is on record. The paper's text was not at
// hand; what stands here is what others say of it, and is marked as assumed where they are silent.
//
// On record, by its abstract: instances without a state of their own serve either phase, and how
// many serve which follows from metrics of the cluster as it runs. On record, by the reference,
// which names its placement after section 5.3 of the paper and numbers its parts:
//
//   - Algorithm 1 places by pairs of costs in lexical order: first the other phase's work on the
//     engine, then its own; an engine within the promise goes before one that is not. Nobody is
//     refused.
//   - Algorithm 2 watches and moves: when the load of one role is at its promise and that of the
//     other below half of it, one engine changes, an engine that still has work of the other phase
//     first, then the one with least work; between two moves to decode lies a cooldown.
//   - Algorithm 3 is the engine's own order: decoding goes on while prompts are prefilled in
//     chunks beside it, and KV that is to come is fetched in order of arrival once there is room.
//
// Assumed: loads are looked at once an interval and their thresholds are the router's; the
// place to decode is settled when the prefill has ended; a chunk is arrowChunk tokens; a step
// with a chunk takes the sum of both; chunks are of one prompt at a time. The authors' serving
// system (xllm-service, its SLO policy) instead moves at placement: a prefill engine when no
// decode engine would keep the pace, a decode engine when it has nothing left. That is another
// rule than the one above, and is not built.
type arrow struct {
	book
	lastToDecode float64
}

// arrowChunk is how many tokens of a prompt an engine prefills beside a decode step.
const arrowChunk = 2048

func newArrow(_ *Config, b book) chooser {
	return &arrow{book: b, lastToDecode: math.Inf(-1)}
}

func (a *arrow) place(f *fleet, r *model.Request) placement {
	p, d := f.lexPrefill(r.Input), f.lexDecode(r.Input, nil)
	if p < 0 || d < 0 {
		return placement{}
	}
	return f.on(p, d, r)
}

func (a *arrow) settle(f *fleet, j *job) *engine { return f.settled(j) }

func (a *arrow) tick(f *fleet) []control.Move {
	par := a.ctl.Params
	prefill, decode, p, d := a.loads(f)
	switch {
	case p == 0 || d == 0:
	case prefill >= par.Expand && decode <= par.Shrink && d > par.MinDecode:
		return control.Toward(par, f.snap, p+1)
	case decode >= par.Expand && prefill <= par.Shrink && p > par.MinPrefill && f.now-a.lastToDecode >= par.Cooldown:
		a.lastToDecode = f.now
		return control.Toward(par, f.snap, p-1)
	}
	return nil
}

// loads are the mean loads of the roles, 1 at the promise, and how many live engines they have.
func (a *arrow) loads(f *fleet) (prefill, decode float64, p, d int) {
	par := &f.snap.Params
	for _, e := range f.engines {
		switch {
		case !e.v.Live:
		case e.v.Role == model.Prefill:
			wait, _ := e.queued(f.now)
			p, prefill = p+1, prefill+wait/par.TTFT
		default:
			d++
			requests, _ := e.resident(f.now)
			if idle := e.v.Curve.Interval(0, 0); requests == 0 {
			} else if idle >= par.TPOT {
				decode += e.v.Gap / par.TPOT
			} else {
				decode += max(0, e.v.Gap-idle) / (par.TPOT - idle)
			}
		}
	}
	return prefill / max(1, float64(p)), decode / max(1, float64(d)), p, d
}
