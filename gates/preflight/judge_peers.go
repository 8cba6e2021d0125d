package preflight

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// judgePeers compares the decode pace of engines of one launch, point by point: an engine is as
// slow as the median of its points over the median of its peers there.
func judgePeers(v gates.View, profiled map[string]Profiled) []record.Finding {
	byLaunch := map[string][]string{}
	for _, e := range v.Fleet.EngineIDs() {
		if _, ok := profiled[e]; ok {
			l := v.Fleet.Deploy.Engines[e].Launch
			byLaunch[l] = append(byLaunch[l], e)
		}
	}
	var out []record.Finding
	for _, e := range v.Fleet.EngineIDs() {
		peers := byLaunch[v.Fleet.Deploy.Engines[e].Launch]
		m, ok := profiled[e]
		if !ok || len(peers) < leastPeers {
			continue
		}
		at := map[batch][]float64{}
		for _, p := range peers {
			for b, gap := range gaps(profiled[p].Samples) {
				at[b] = append(at[b], gap)
			}
		}
		var ratios []float64
		for b, gap := range gaps(m.Samples) {
			if len(at[b]) >= leastPeers {
				ratios = append(ratios, gap/median(at[b]))
			}
		}
		if len(ratios) > 0 && median(ratios) > slowFrom {
			x := &finder{fleet: v.Fleet, engine: e, evidence: ProfileKey(e)}
			x.add("slow-decode", fmt.Sprintf("at most %.1f times the pace of the %d engines of its launch", slowFrom, len(peers)), fmt.Sprintf("%.2f times, in the middle of %d points", median(ratios), len(ratios)),
				"look for throttling (narwhal gate run --again A), another process on the device, a slower clock; then "+again)
			out = append(out, x.found...)
		}
	}
	return out
}

// gaps are the medians of the decode points.
func gaps(s profile.Samples) map[batch]float64 {
	out := map[batch]float64{}
	for _, c := range decodeCells(s) {
		out[c.at] = median(c.values)
	}
	return out
}
