package preflight

import (
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// PairsNone asks for no handoff.
const PairsNone = "none"

// PairsOf lists the directed pairs that a check asks. A check switches no role, so that pairs which
// the roles of the file do not let hand over are none.
func PairsOf(f fleet.Fleet, which string) ([][2]string, error) {
	switch which {
	case PairsNone:
		return nil, nil
	case fleet.PairsMesh, fleet.PairsRing:
		return slices.DeleteFunc(f.Pairs(which), func(p [2]string) bool { return !f.HandsOver(p[0], p[1]) }), nil
	}
	return nil, fmt.Errorf("no pairs are called %q: %s, %s or %s", which, fleet.PairsRing, fleet.PairsMesh, PairsNone)
}
