package fabric

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
)

// TestChangedLinkIsAnotherFact measures a pair on real links, then changes what its way is: a
// look tells what the pair's facts tell until then, and something else after.
func TestChangedLinkIsAnotherFact(t *testing.T) {
	w := shaped(t, 2, 150, 300*time.Millisecond)
	a, b := w.hosts[0], w.hosts[1]
	facts := Gate{}.Facts(pairKey(Twosome{a.ID, b.ID}), w.ask(a, "fabric-pair", PairRequest{A: a.ID, B: b.ID, Address: Address(w.fleet, b.ID), Streams: 1, For: fleet.Duration(100 * time.Millisecond)}))
	look := func() (atA, atB string) {
		for _, side := range []struct {
			on, to int
			fact   *string
		}{{0, 1, &atA}, {1, 0, &atB}} {
			var s gates.Seen
			if err := json.Unmarshal(w.ask(w.hosts[side.on], "look", gates.Looking{Root: "/opt/n", Peers: map[string]string{"o": w.hosts[side.to].Inside}}), &s); err != nil {
				t.Fatal(err)
			}
			*side.fact = s.Facts["route/o"]
		}
		return atA, atB
	}
	wasA, wasB := facts["host/"+a.ID+"/route/"+b.ID], facts["host/"+b.ID+"/route/"+a.ID]
	if isA, isB := look(); isA == "" || isA != wasA || isB != wasB {
		t.Errorf("a look sees %q and %q, the pair saw %q and %q", isA, isB, wasA, wasB)
	}
	w.ip("-n", b.Namespace, "link", "set", "eth1", "mtu", "1500")
	if isA, isB := look(); isA != wasA || isB == wasB {
		t.Errorf("with another MTU of one end: %q and %q, before %q and %q", isA, isB, wasA, wasB)
	}
	w.ip("-n", a.Namespace, "route", "add", b.Inside+"/32", "via", b.Inside, "dev", "eth1")
	if isA, _ := look(); isA == wasA {
		t.Errorf("by a gateway: still %q", isA)
	}
}
