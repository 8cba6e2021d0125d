package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// plainPath has no character that a unit file reads otherwise.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_./@:+,=~-]*$`)

// supervise checks what units name, where systemd supervises.
func (c checker) supervise(d *fleet.Deploy) {
	plain := func(p trail, s string) {
		if !plainPath.MatchString(s) {
			c.add("unit-paths", p, fmt.Sprintf("%s stands in a unit file, which reads some characters otherwise", quote(s)), `use letters, digits and _ . / @ : + , = ~ - alone, or supervise: "own"`)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.Hosts)) {
		if c.f.Supervise(id) == fleet.SuperviseOwn {
			continue
		}
		plain(deployPath("hosts", id, "root"), d.Hosts[id].Root)
		if d.Router.Host == id || d.Router.Standby != nil && d.Router.Standby.Host == id {
			plain(deployPath("router", "lease", "path"), d.Router.Lease.Path)
		}
	}
}
