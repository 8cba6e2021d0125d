package serve

import (
	"slices"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// backWithin is for how long a router that does not let an engine serve again is asked anew.
const backWithin = fleet.Duration(time.Minute)

// activateArgs names whose profiles a router takes up.
type activateArgs struct {
	Engines []string `json:"engines"`
}

// Out takes engines out of service, and waits until they have no requests.
func (Gate) Out(_ gates.View, o gates.Outing) []gates.Step {
	s := outingStep("out", "take "+strings.Join(o.Engines, ", ")+" out of service", o, o.Drain+shortLimit)
	s.Effect = gates.Disrupt
	return []gates.Step{s}
}

// Back lets engines serve again.
func (Gate) Back(_ gates.View, o gates.Outing) []gates.Step {
	s := outingStep("back", "take "+strings.Join(o.Engines, ", ")+" back into service", o, backWithin*fleet.Duration(len(targetsOf(o)))+shortLimit)
	s.Effect = gates.Mutate
	return []gates.Step{s}
}

func outingStep(op, title string, o gates.Outing, limit fleet.Duration) gates.Step {
	id, key := op+"/fleet", record.Key("")
	switch {
	case len(o.Engines) == 1:
		id, key = op+"/"+o.Engines[0], record.NewKey("G", op, o.Engines[0])
	case !o.All:
		id = op + "/some"
	}
	return local(id, title, key, op, limit, o)
}

// Activate places the profiles where the router and the standby read them, and lets both take
// those of the engines up.
func (Gate) Activate(v gates.View, o gates.Outing) ([]gates.Step, error) {
	var out []gates.Step
	var before []string
	surfaces := []surface{theRouter(v.Fleet)}
	if standsBy(v.Fleet) != nil {
		surfaces = append(surfaces, theStandby(v.Fleet))
	}
	for _, s := range surfaces {
		p, err := partsOf(v, s)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(p.files, func(f gates.Step) bool { return f.File != nil && f.File.Evidence == storeKey })
		out, before = append(out, p.files[i]), append(before, p.files[i].ID)
	}
	s := local("activate", "let the router take up the profiles of "+strings.Join(o.Engines, ", "), gates.ActivationKey, "activate", 2*shortLimit, activateArgs{o.Engines})
	s.Effect, s.Needs = gates.Mutate, before
	return append(out, s), nil
}
