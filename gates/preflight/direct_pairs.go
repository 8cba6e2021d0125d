package preflight

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// PairsNone asks for no handoff.
const PairsNone = "none"

// PairsOf lists the directed pairs that a check asks.
func PairsOf(f fleet.Fleet, which string) ([][2]string, error) {
	switch which {
	case PairsNone:
		return nil, nil
	case fleet.PairsMesh, fleet.PairsRing:
		return f.Pairs(which), nil
	}
	return nil, fmt.Errorf("no pairs are called %q: %s, %s or %s", which, fleet.PairsRing, fleet.PairsMesh, PairsNone)
}
