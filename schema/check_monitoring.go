package schema

import (
	"cmp"
	"net"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// monitoring checks where Prometheus runs and what it reaches from there.
func (c checker) monitoring(d *fleet.Deploy) {
	m := d.Monitoring
	if m == nil {
		return
	}
	if m.Host != "" {
		if _, ok := d.Hosts[m.Host]; !ok {
			unknownName(c, "host-unknown", deployPath("monitoring", "host"), "host", m.Host, d.Hosts)
			return
		}
	}
	if m.Dir != "" {
		c.remotePath(deployPath("monitoring", "dir"), m.Dir)
	}
	host := cmp.Or(m.Host, d.Router.Host)
	reach := func(on, listen string, p trail) {
		if on != host && onLoopback(listen) && !onLoopback(net.JoinHostPort(d.Hosts[on].Address, "0")) {
			c.add("monitoring-reach", p, "is on loopback, where Prometheus on host "+quote(host)+" does not reach it", "give an address of its host")
		}
	}
	reach(d.Router.Host, d.Router.Listen, deployPath("router", "listen"))
	if s := d.Router.Standby; s != nil && d.Router.Lease.On() {
		reach(s.Host, s.Listen, deployPath("router", "standby", "listen"))
	}
}
