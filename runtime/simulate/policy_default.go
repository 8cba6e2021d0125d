package simulate

import (
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// standing is the router's own policy: its scheduler and its controller.
type standing struct {
	book
	scratch sched.Scratch
}

func newStanding(_ *Config, b book) chooser { return &standing{book: b} }

func (s *standing) place(f *fleet, r *model.Request) placement {
	d := sched.Admit(&f.snap, r, f.now, &s.scratch)
	if !d.Placed {
		s.missed(f.now, control.Lacked(d.Refused))
		return placement{}
	}
	return placement{f.engine(d.Prefill), f.engine(d.Decode), d.Own, d.Parts.Queue}
}
