package gates

import (
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// ActivationKey names what a router was told when it took up profiles while it served.
const ActivationKey = record.Key("G/activation")

// Beside are the bonds of evidence that a replacement makes and no gate expects.
var Beside = []Bond{
	{string(ActivationKey), []string{"profiles", "proc/router/id"}},
	{"G/out/{e}", []string{"proc/engine-{e}/id"}},
	{"G/back/{e}", []string{"proc/engine-{e}/id"}},
}

// profilesActive is the fact about the profiles with which the router was started, as long as
// that process took up every later store.
const profilesActive = "profiles/active"

// routerKey names the evidence of the router's process.
const routerKey = record.Key("G/router")

// activeProfiles returns the value of profilesActive: with which profiles the router with this id
// was started, if it took up those of now; those of now, if it took up none; and Untaken those of
// now, if it took up others.
func activeProfiles(f fleet.Fleet, s record.State, router string) string {
	now := evidenceDigest(f, s, "F", "profile")
	e, ok := s.Evidence(ActivationKey)
	was, started := s.Evidence(routerKey)
	switch {
	case !ok || e.Stale || e.Bonds["proc/router/id"] != router || !started:
		return now
	case e.Bonds["profiles"] != now:
		return Untaken + now
	}
	return startedWith(was)
}

// Untaken begins the value of profiles that the router has not, having taken up others.
const Untaken = "untaken "

// startedWith are the profiles with which a router was started.
func startedWith(e record.Entry) string { return e.Bonds[profilesActive] }

// voidActivation withdraws what a router took up when a plan starts another one.
func (r *Runner) voidActivation(p Plan) error {
	e, ok := r.Record.State().Evidence(ActivationKey)
	if !ok || e.Stale {
		return nil
	}
	r.mu.Lock()
	launch := r.facts["proc/"+routerProcess+"/launch"]
	r.mu.Unlock()
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Yields == routerKey })
	if i < 0 || launch != "" && launch != Gone && strings.Contains(strings.Join(p.Steps[i].Argv, " "), launch) {
		return nil
	}
	_, err := r.append(record.KindStale, "G", "", "", record.Stale{Key: ActivationKey, Because: "the router is started anew"})
	return err
}
