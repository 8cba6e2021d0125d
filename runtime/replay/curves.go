package replay

import (
	"encoding/json"
	"maps"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// activatedEvent is the event of a profile that was replaced while the router served.
const activatedEvent = "profile_activated"

// activation is another curve of one engine from a moment on, router clock.
type activation struct {
	at    float64
	iid   string
	curve profile.Curve
}

// activated notes the curve of an event; one that holds none leaves the curve as it was, and
// decisions made with it differ.
func (p *player) activated(e *journal.Event) {
	var a struct {
		IID   string        `json:"iid"`
		Curve profile.Curve `json:"curve"`
	}
	b, err := json.Marshal(e.Fields)
	if err != nil || json.Unmarshal(b, &a) != nil || a.IID == "" {
		return
	}
	p.changed = append(p.changed, activation{e.At, a.IID, a.Curve})
}

// curves are those of a moment. A row is written at its request's end: its decision may be
// older than an activation before it in the journal.
func (p *player) curves(at float64) map[string]profile.Curve {
	if len(p.changed) == 0 {
		return p.meta.Curves
	}
	out := map[string]profile.Curve{}
	maps.Copy(out, p.meta.Curves)
	for _, a := range p.changed {
		if a.at <= at {
			out[a.iid] = a.curve
		}
	}
	return out
}
