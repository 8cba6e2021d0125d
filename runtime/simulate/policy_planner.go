package simulate

import "github.com/narwhal-fleet/narwhal/runtime/control"

// planner goes at once to the split that the demand over the window asks for, once a step of
// the controller. Admission and placement are the router's own, without lending.
type planner struct {
	standing
	last float64
}

func newPlanner(_ *Config, b book) chooser { return &planner{standing: standing{book: b}} }

func (p *planner) tick(f *fleet) []control.Move {
	par := p.ctl.Params
	if f.now < p.last+par.Step*(1-1e-9) {
		return nil
	}
	p.last = f.now
	want, ok := p.ctl.Target(f.snap)
	if !ok {
		return nil
	}
	return control.Toward(par, f.snap, want)
}
