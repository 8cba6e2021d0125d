package schema

import (
	"fmt"
	"github.com/narwhal-fleet/narwhal/fleet"
)

// roles compares floors, pins and opening roles.
func (c checker) roles() {
	k := c.f.Controller
	n := len(c.f.Engines)
	alone := n == 1 && k.MinPrefill == 1 && k.MinDecode == 1
	if (k.MinPrefill > n || k.MinDecode > n-k.MinPrefill) && !alone { // their sum may be none
		field, other := "controller.min_decode", "controller.min_prefill"
		if k.MinDecode == 1 {
			field, other = other, field
		}
		c.relation("floors", field, []string{other, "engines"}, fmt.Sprintf("min_prefill %d and min_decode %d are more than %d engines", k.MinPrefill, k.MinDecode, n), "")
		return
	}
	pinned := map[string]int{}
	prefill := 0
	for _, e := range c.f.Engines {
		if e.Pin {
			pinned[e.Role]++
		}
		if e.Role == fleet.RolePrefill {
			prefill++
		}
	}
	c.pins(pinned, n)
	if n > 1 && prefill == n && pinned[fleet.RolePrefill] == 0 {
		c.fault("roles-one-sided", "engines", "every engine starts as prefill; the decode floor is breached at once", "let one start as decode")
	}
}

func (c checker) pins(pinned map[string]int, n int) {
	if n < 2 {
		return
	}
	k := c.f.Controller
	for _, r := range []struct {
		role, other string
		floor       int
	}{{fleet.RolePrefill, fleet.RoleDecode, k.MinPrefill}, {fleet.RoleDecode, fleet.RolePrefill, k.MinDecode}} {
		free := n - pinned[r.other]
		switch {
		case free == 0 && c.f.Deploy != nil:
			c.fault("roles-impossible", "engines", "every engine is pinned to "+r.other+"; none may "+verb(r.role), "unpin one engine")
		case free < r.floor:
			c.fault("pins-breach-floor", "engines", fmt.Sprintf("%d engines may %s, but controller.min_%s is %d", free, verb(r.role), r.role, r.floor), "unpin an engine")
		}
	}
}

func verb(role string) string { return role }
