package fabric

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

const (
	// leastLost and lossShare make a lossy link: single datagrams on an idle one.
	leastLost = 3
	lossShare = 0.001
	// againShare of the segments sent again, againTimes as much as the median edge, and
	// leastAgain of them: every stream loses some while it finds its speed.
	leastAgain = 200
	againShare = 0.01
	againTimes = 5
)

// lossy finds links that lose packets: single datagrams on the idle link, and segments sent
// again far beyond the other edges.
func (e evidence) lossy() []record.Finding {
	lost, shares := map[Edge]bool{}, map[Edge]float64{}
	of := map[Edge]Direction{}
	var all []float64
	e.each(func(edge Edge, d Direction, from, to End, _ string) {
		of[edge] = d
		if loopback(from, to) {
			return
		}
		if n := d.Lost(); n >= leastLost && float64(n) >= lossShare*float64(d.Datagrams) {
			lost[edge] = true
		}
		if d.Segments > 0 {
			shares[edge] = float64(d.Retransmits) / float64(d.Segments)
			all = append(all, shares[edge])
		}
	})
	var out []record.Finding
	for _, c := range blame(e.hosts, lost) {
		d := of[c.edge]
		out = append(out, record.Finding{Code: "edge-lossy", Host: c.at(), Want: "none lost", Got: fmt.Sprintf("%d of %d lost", d.Lost(), d.Datagrams), Evidence: string(pairKey(pairOf(e.hosts, c.edge))),
			Message: fmt.Sprintf("%s: %d of %d single datagrams were lost on the idle link", c.name(), d.Lost(), d.Datagrams),
			Hint:    "look for a bad cable or transceiver (the counters in the evidence, ethtool -S, ethtool -m) and for a policer or a full table on the way; then " + again})
	}
	often := map[Edge]bool{}
	mid := median(all)
	for edge, s := range shares {
		often[edge] = len(all) >= minPeers && !lost[edge] && of[edge].Retransmits >= leastAgain && s > againShare && s > againTimes*mid
	}
	for _, c := range blame(e.hosts, often) {
		d := of[c.edge]
		out = append(out, record.Finding{Code: "edge-retransmits", Host: c.at(), Want: fmt.Sprintf("%.3g %%, as the median edge", 100*mid), Got: fmt.Sprintf("%.3g %%", 100*shares[c.edge]),
			Evidence: string(pairKey(pairOf(e.hosts, c.edge))),
			Message:  fmt.Sprintf("%s: %d of %d segments were sent again", c.name(), d.Retransmits, d.Segments),
			Hint:     "packets are lost under load alone: look for small switch buffers, a policer, a rate limit or pause frames that one side ignores; then " + again})
	}
	return out
}
