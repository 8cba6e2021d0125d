package simulate

import (
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// shortest is a router that counts requests and nothing else: the prefill engine and the
// decode engine with the fewest, the first of several. It refuses nobody while there are
// engines and never moves a role.
type shortest struct{ book }

func newShortest(_ *Config, b book) chooser { return &shortest{b} }

func (s *shortest) place(f *fleet, r *model.Request) placement {
	p, d := -1, -1
	for i := range f.snap.Engines {
		switch e := &f.snap.Engines[i]; {
		case !e.Live:
		case r.Unsplit:
			if p < 0 || e.PrefillRequests+e.DecodeRequests < f.snap.Engines[p].PrefillRequests+f.snap.Engines[p].DecodeRequests {
				p, d = i, i
			}
		case e.Role == model.Prefill:
			if p < 0 || e.PrefillRequests < f.snap.Engines[p].PrefillRequests {
				p = i
			}
		case d < 0 || e.DecodeRequests < f.snap.Engines[d].DecodeRequests:
			d = i
		}
	}
	if p < 0 || d < 0 {
		return placement{}
	}
	return f.on(p, d, r)
}

func (s *shortest) tick(*fleet) []control.Move { return nil }

// on is the placement on two engines, as the ledger notes it.
func (f *fleet) on(p, d int, r *model.Request) placement {
	v := &f.snap.Engines[p]
	return placement{f.engines[p], f.engines[d], v.Prefill(r.Input), v.Backlog(f.now)}
}
