package preflight

import (
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// concurrent reports whether the fleet's engines answer both legs at once.
func concurrent(f fleet.Fleet) bool {
	d, err := proberOf(f.Engine.Dialect)
	return err == nil && d.Concurrent()
}

// together is the engine with which e is asked where the fleet's engines answer in pairs, by its
// place among those of its role, and what a step on them must have to itself.
func together(f fleet.Fleet, e fleet.Engine) (*PeerAt, []string) {
	out := devices(e)
	if !concurrent(f) {
		return nil, out
	}
	var alike, others []fleet.Engine
	for _, x := range f.Engines {
		if roleOf(x) == roleOf(e) {
			alike = append(alike, x)
		} else {
			others = append(others, x)
		}
	}
	place := slices.IndexFunc(alike, func(x fleet.Engine) bool { return x.IID == e.IID })
	if len(others) == 0 {
		return nil, out
	}
	p := others[place%len(others)]
	for _, x := range devices(p) {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return &PeerAt{IID: p.IID, URL: p.URL, Role: roleOf(p), Fixed: e.Pin || p.Pin}, out
}

// judgeTogether compares what pairs made of the prompt that all of them get, and notes what could
// not be asked of engines that play one role.
func judgeTogether(v gates.View) (out []record.Finding) {
	if !concurrent(v.Fleet) {
		return nil
	}
	answers := map[string][]string{}
	var skipped, all int
	for _, p := range v.Fleet.HandoffPairs() {
		var h Handed
		if v.Decode(pairKey(p[0], p[1]), &h) != nil {
			continue
		}
		if all++; h.Skipped != "" {
			skipped++
			continue
		}
		text := fmt.Sprint(h.Common)
		answers[text] = append(answers[text], p[0]+" → "+p[1])
	}
	most, handed := "", 0
	for text, pairs := range answers {
		handed += len(pairs)
		if most == "" || len(pairs) > len(answers[most]) || len(pairs) == len(answers[most]) && text < most {
			most = text
		}
	}
	for _, p := range v.Fleet.HandoffPairs() {
		var h Handed
		if v.Decode(pairKey(p[0], p[1]), &h) == nil && h.Skipped == "" && fmt.Sprint(h.Common) != most {
			got := fmt.Sprint(h.Common)
			out = append(out, record.Finding{Code: "handoff-output", Host: v.Fleet.HostOf(p[1]), Engine: p[1], Evidence: string(pairKey(p[0], p[1])), Want: fmt.Sprintf("tokens %s, as %d of %d pairs", most, len(answers[most]), handed), Got: got,
				Message: fmt.Sprintf("handoff %s → %s: got %s to a prompt that all pairs got, %d of %d answered %s", p[0], p[1], got, len(answers[most]), handed, most), Hint: "the KV that arrived is not the prompt's: compare page size, layout and versions of the two engines"})
		}
	}
	note := func(f record.Finding) {
		f.Note, f.Evidence, f.Message = true, "F/pair", "got "+f.Got+", want "+f.Want
		out = append(out, f)
	}
	if handed == 0 && all > 0 {
		out = append(out, record.Finding{Code: "handoff-none", Want: "a pair that hands over", Got: fmt.Sprintf("%d pairs, none in the roles prefill and decode", all), Evidence: "F/pair",
			Message: "no pair of engines plays the roles prefill and decode", Hint: "launch engines of both roles (--disaggregation-mode), or switch one"})
	} else if skipped > 0 {
		note(record.Finding{Code: "handoff-roles", Want: "a handoff of every directed pair", Got: fmt.Sprintf("%d of %d, the others play the same role or the other way round", handed, all),
			Hint: "a role that the controller changes later is proven by no handoff: switch roles and run narwhal gate run --again F"})
	}
	if handed == 1 {
		note(record.Finding{Code: "handoff-uncompared", Want: "tokens that another pair gave too", Got: "one pair, whose answers are equal each time",
			Hint: "no engine of one role can run a prompt unsplit: compare with an engine of the same model that has none"})
	}
	return append(out, judgeLent(v)...)
}

// judgeLent notes profiles of which one half was measured at the peer.
func judgeLent(v gates.View) (out []record.Finding) {
	for _, e := range v.Fleet.EngineIDs() {
		var m Profiled
		if v.Decode(ProfileKey(e), &m) != nil || m.Role == "" {
			continue
		}
		other := engine.RoleDecode
		if m.Role == engine.RoleDecode {
			other = engine.RolePrefill
		}
		x := &finder{fleet: v.Fleet, engine: e, evidence: ProfileKey(e)}
		x.add("profile-lent", "curves of both roles, measured on the engine", fmt.Sprintf("that of %s measured on %s", other, m.Peer), "it holds while the two engines are alike; switch its role and run narwhal gate run --again F to measure it there")
		x.found[len(x.found)-1].Note = true
		out = append(out, x.found...)
	}
	return out
}
