package fabric

import (
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

const (
	// decodeTakes times the fleet's outlier is the part of its rate that a link may lose to
	// decoding beyond the floor: processors that decode are busy, and the windows are short.
	decodeTakes = 2
	// stretched times as long, and leastStretch seconds more, a token may take while the link
	// is full: a scheduler's slice is no fault of the fabric.
	stretched    = 3
	leastStretch = 0.005
	// stalled seconds without a token are a stall where they are also several times the longest
	// wait on an idle link; on a loopback, where one machine does all, four times as many.
	stalled      = 0.5
	stalledTimes = 4
)

// judgeDecode holds every pair under decode to the floor and to what it carries without, and
// the engines' tokens to what they take on an idle link and to the fleet's limit.
func judgeDecode(v gates.View, e evidence) []record.Finding {
	var out []record.Finding
	for _, t := range decodePairs(e.fleet) {
		var u UnderDecode
		if v.Decode(decodeKey(t), &u) != nil {
			continue
		}
		u.A, u.B = t.A, t.B
		at := string(decodeKey(t))
		if u.Unreachable != "" {
			if p, ok := e.pairs[t]; !ok || p.Unreachable == "" { // else it is found already
				out = append(out, record.Finding{Code: "edge-unreachable", Host: t.A, Want: "a connection to " + Address(e.fleet, t.B), Got: u.Unreachable, Evidence: at,
					Message: fmt.Sprintf("edge %s → %s, while engines decode: %s", t.A, t.B, u.Unreachable), Hint: "check the link between them; then " + again})
			}
			continue
		}
		asked, failed := 0, 0
		for _, d := range ofFleet(enginesOf(e.fleet, t), u.Engines) {
			if d.Failed != "" {
				failed++
				out = append(out, record.Finding{Code: "decode-unasked", Host: e.fleet.HostOf(d.IID), Engine: d.IID, Want: "streams that decode", Got: d.Failed, Evidence: at,
					Message: fmt.Sprintf("%s ↔ %s: engine %s does not decode: %s", t.A, t.B, d.IID, d.Failed),
					Hint:    "what decoding and transfers take from each other is unknown; see that the engine answers /v1/completions from host " + t.A + ", and its key; then " + again})
			} else if !d.Lent {
				asked++
			}
		}
		if asked == 0 {
			if failed == 0 { // by their roles, which is no fault
				out = append(out, record.Finding{Code: "decode-unasked", Note: true, Host: t.A, Want: "an engine that decodes", Got: fmt.Sprintf("none of %d", len(u.Engines)), Evidence: at,
					Message: fmt.Sprintf("%s ↔ %s: both hosts' engines prefill alone, so their link was not measured under decode", t.A, t.B),
					Hint:    "where the controller makes one of them decode later, switch it and run " + again})
			}
			continue
		}
		out = append(out, e.slowUnderDecode(t, u, at)...)
		for _, d := range u.Engines {
			out = append(out, e.stalls(t, u, d, at)...)
		}
	}
	return out
}

// ofFleet gives each engine of a pair its part, and one that has none its failure.
func ofFleet(engines []fleet.Engine, told []Decoded) []Decoded {
	var out []Decoded
	for _, e := range engines {
		i := slices.IndexFunc(told, func(d Decoded) bool { return d.IID == e.IID })
		if i < 0 {
			out = append(out, Decoded{IID: e.IID, Failed: "it was not asked"})
			continue
		}
		out = append(out, told[i])
	}
	return out
}

// slowUnderDecode is what decoding takes from the link.
func (e evidence) slowUnderDecode(t Twosome, u UnderDecode, at string) []record.Finding {
	var out []record.Finding
	for _, edge := range t.Edges() {
		l := u.Forward
		if edge.From == t.B {
			l = u.Back
		}
		if p, ok := e.pairs[t]; ok {
			if d, _, _ := p.Of(edge); !(d.Gbps >= e.budget.Floor) && !u.Loopback {
				continue // slow without decode, which is found already
			}
		}
		got, quiet, want := median(l.Busy), able(l.Quiet), e.budget.Floor
		if u.Loopback { // what else the machine does says nothing of an edge
			got = able(l.Busy)
		}
		why, note := fmt.Sprintf("%s required", gbps(want)), false
		if got >= want {
			share := decodeTakes * e.fab.Outlier
			if u.Loopback || share <= 0 || able(l.Busy) >= (1-share)*quiet {
				continue
			}
			got, want, note = able(l.Busy), (1-share)*quiet, true // the fleet's need is met
			why = "more is lost than the difference that deploy.fabric.outlier allows, twice"
		}
		out = append(out, record.Finding{Code: "edge-slow-under-decode", Note: note, Host: edge.From, Want: gbps(want), Got: gbps(got), Evidence: at,
			Message: fmt.Sprintf("edge %s → %s: %s while engines decode, %s while none does: %s", edge.From, edge.To, gbps(got), gbps(quiet), why),
			Hint:    "decoding and the KV share something: processors (pin the engine's, and those of the interface's interrupts), a PCI switch, memory of one NUMA node, or the link itself where tensor parallelism uses it; then " + again})
	}
	return out
}

// stalls is what a full link takes from an engine's decoding.
func (e evidence) stalls(t Twosome, u UnderDecode, d Decoded, at string) []record.Finding {
	if d.Failed != "" || d.Lent {
		return nil
	}
	quiet, busy := median(d.Quiet), median(d.Busy)
	still := stalled
	if u.Loopback {
		still *= stalledTimes
	}
	limit := e.fleet.SLO.TPOTS
	var why, want, got string
	switch {
	case d.BusyLongest > still && d.BusyLongest > stalledTimes*d.QuietLongest:
		want, got = seconds3(d.QuietLongest)+" at most, as on an idle link", seconds3(d.BusyLongest)
		why = fmt.Sprintf("it brought no token for %s, and for %s at most while the link was idle", got, seconds3(d.QuietLongest))
	case u.Loopback:
		return nil
	case limit > 0 && busy > limit && quiet <= limit && busy-quiet > leastStretch:
		want, got = seconds3(limit)+" a token", seconds3(busy)
		why = fmt.Sprintf("a token takes %s, %s while the link was idle; slo.tpot_s is %s", got, seconds3(quiet), seconds3(limit))
	case busy > stretched*quiet && busy-quiet > leastStretch:
		want, got = seconds3(quiet)+" a token, as on an idle link", seconds3(busy)
		why = fmt.Sprintf("a token takes %s, and %s while the link was idle", got, seconds3(quiet))
	default:
		return nil
	}
	return []record.Finding{{Code: "decode-stalls-under-transfer", Host: e.fleet.HostOf(d.IID), Engine: d.IID, Want: want, Got: got, Evidence: at,
		Message: fmt.Sprintf("engine %s, while %s ↔ %s is full: %s", d.IID, t.A, t.B, why),
		Hint:    "a transfer holds up what decoding needs: the interface's interrupts on the engine's processors, the network that its tokens or its tensor parallelism take, or PCI; then " + again}}
}

func seconds3(v float64) string { return fmt.Sprintf("%.3g s", v) }
