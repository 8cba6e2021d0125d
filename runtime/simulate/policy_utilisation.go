package simulate

import (
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// utilisation sets the split from how busy each role was measured to be, as an autoscaler
// does: when one role is above the planned share and the other would stay below it with an
// engine less, one engine moves. Prefill is measured as the share of time in work, decode as
// the share of seats or of cache in use, whichever is larger. Admission and placement are the
// router's own, without lending.
type utilisation struct {
	standing
	last            float64
	prefill, decode float64   // Σ over the ticks since
	ticks           float64   // how many
	busy            []float64 // seconds of work of each engine at the last tick
	lastTick        float64
}

func newUtilisation(c *Config, b book) chooser {
	return &utilisation{standing: standing{book: b}, busy: make([]float64, c.Model.Engines)}
}

// utilisationSpan is how many seconds are measured before a move.
const utilisationSpan = 10

func (u *utilisation) tick(f *fleet) []control.Move {
	p, d := u.measure(f)
	if f.now < u.last+utilisationSpan*(1-1e-9) {
		return nil
	}
	prefill, decode := u.prefill/u.ticks, u.decode/u.ticks
	u.last, u.prefill, u.decode, u.ticks = f.now, 0, 0, 0
	return control.Toward(u.ctl.Params, f.snap, shifted(prefill, decode, p, d, u.ctl.Params.Utilization))
}

// shifted is the number of prefill engines that measured shares ask for.
func shifted(prefill, decode float64, p, d int, planned float64) int {
	switch {
	case prefill > planned && d > 1 && decode*float64(d)/float64(d-1) < planned:
		return p + 1
	case decode > planned && p > 1 && prefill*float64(p)/float64(p-1) < planned:
		return p - 1
	}
	return p
}

// measure adds what the last interval shows and counts the live engines of each role.
func (u *utilisation) measure(f *fleet) (p, d int) {
	prefill, decode, span := 0.0, 0.0, f.now-u.lastTick
	for i, e := range f.engines {
		work := e.worked(f.now)
		share := (work - u.busy[i]) / span
		u.busy[i] = work
		switch {
		case !e.v.Live:
		case e.v.Role == model.Prefill:
			p, prefill = p+1, prefill+share
		default:
			seats := float64(e.v.DecodeRequests) / float64(e.model.MaxRunning)
			cache := float64(e.v.DecodeTokens) / float64(e.model.KVTokens)
			d, decode = d+1, decode+max(seats, cache)
		}
	}
	u.lastTick = f.now
	u.prefill += prefill / max(1, float64(p))
	u.decode += decode / max(1, float64(d))
	u.ticks++
	return p, d
}
