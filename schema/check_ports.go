package schema

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// listener is a port, or a range of ports, that one machine is asked to open.
type listener struct {
	first, last int
	what        string
	path        trail
	engine      int // index, -1 = none
	ucx         bool
}

// machine tells hosts apart that may be one machine: the address and the way to it.
func machine(h fleet.Host) string {
	a := strings.ToLower(h.Address)
	if a == "localhost" || a == "::1" {
		a = "127.0.0.1"
	}
	return a + " via " + h.Jump
}

// ports collects the listeners of each machine and sweeps them in order of their first port.
func (c checker) ports(d *fleet.Deploy) {
	on := map[string][]listener{}
	var order []string
	open := func(host string, l listener) {
		h, ok := d.Hosts[host]
		if !ok || l.first < 1 {
			return
		}
		m := machine(h)
		if on[m] == nil {
			order = append(order, m)
		}
		on[m] = append(on[m], l)
	}
	c.routerPorts(d, open)
	tester := map[string]bool{}
	for i, e := range c.f.Engines {
		place, ok := d.Engines[e.IID]
		if !ok {
			continue
		}
		c.enginePorts(d, i, e, place, open)
		if h := d.Hosts[place.Host]; !tester[place.Host] {
			tester[place.Host] = true
			l := listener{what: "the fabric tester of host " + place.Host, engine: -1, path: deployPath("hosts", place.Host, "fabric_port"), first: h.FabricPort, last: h.FabricPort}
			if h.FabricPort == 0 {
				l.first, l.last = d.Fabric.Port, d.Fabric.Port
			}
			if t := d.Fabric.Transport; d.Fabric.Tool == "iperf3" || d.Fabric.Tool == "auto" || t == "rdma" || t == "ucx" {
				l.last++ // the other tool's server
			}
			open(place.Host, l)
		}
	}
	for _, m := range order {
		c.sweep(on[m])
	}
}

func (c checker) routerPorts(d *fleet.Deploy, open func(string, listener)) {
	listen := func(host, address string, p trail, what string) {
		_, port, err := net.SplitHostPort(address)
		n, convErr := strconv.Atoi(port)
		if err != nil || convErr != nil || n < 1 || n > 65535 {
			c.rep.add(fault{rule: "listen-port", path: p, got: quote(address), want: "HOST:PORT with a port from 1 to 65535"})
			return
		}
		open(host, listener{first: n, last: n, what: what, path: p, engine: -1})
	}
	listen(d.Router.Host, d.Router.Listen, deployPath("router", "listen"), "the router")
	if s := d.Router.Standby; s != nil {
		listen(s.Host, s.Listen, deployPath("router", "standby", "listen"), "the standby")
	}
	if m := d.Monitoring; m != nil {
		host := cmp.Or(m.Host, d.Router.Host)
		listen(host, m.Prometheus, deployPath("monitoring", "prometheus"), "Prometheus")
		if m.Grafana != "" {
			listen(host, m.Grafana, deployPath("monitoring", "grafana"), "Grafana")
		}
	}
}

func (c checker) enginePorts(d *fleet.Deploy, i int, e fleet.Engine, place fleet.Place, open func(string, listener)) {
	name := "engine " + quote(e.IID)
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" {
		return
	}
	http := portOf(u)
	open(place.Host, listener{first: http, last: http, what: name, path: engineField(i, "url"), engine: i})
	if a, err := url.Parse(e.AttestationURL); err == nil && a.Hostname() == u.Hostname() && portOf(a) != http {
		open(place.Host, listener{first: portOf(a), last: portOf(a), what: "the attestation of " + name, path: engineField(i, "attestation_url"), engine: i})
	}
	launch := place.Launch
	if launch == "" {
		launch = d.Defaults.Launch
	}
	p, ports := deployPath("launch", launch, "ports"), d.Launch[launch].Ports
	if place.Ports != nil {
		p, ports = deployPath("engines", e.IID, "ports"), *place.Ports
	}
	open(place.Host, listener{first: ports.SideChannel, last: ports.SideChannel, what: "the side channel of " + name, path: p.add(key("side_channel")), engine: i})
	open(place.Host, listener{first: ports.Rendezvous, last: ports.Rendezvous, what: "the rendezvous of " + name, path: p.add(key("rendezvous")), engine: i})
	if ports.UCX == "" {
		return
	}
	from, to, _ := strings.Cut(ports.UCX, "-")
	lo, _ := strconv.Atoi(from)
	hi, _ := strconv.Atoi(to)
	p = p.add(key("ucx"))
	if lo < 1 || hi > 65535 || lo > hi {
		if !c.rep.isBlamed(p) {
			c.rep.add(fault{rule: "port-range", path: p, got: quote(ports.UCX), want: "FIRST-LAST, ascending within 1 to 65535"})
		}
		return
	}
	open(place.Host, listener{first: lo, last: hi, what: "the transfer of " + name, path: p, engine: i, ucx: true})
}

func portOf(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	return map[string]int{"http": 80, "https": 443}[u.Scheme]
}

// sweep compares each listener with the one that reaches furthest so far.
func (c checker) sweep(ls []listener) {
	slices.SortStableFunc(ls, func(a, b listener) int { return cmp.Compare(a.first, b.first) })
	furthest := ls[0]
	for _, l := range ls[1:] {
		if l.first <= furthest.last {
			c.collide(furthest, l)
		}
		if l.last > furthest.last {
			furthest = l
		}
	}
}

func (c checker) collide(a, b listener) {
	hint := "give each its own port"
	if b.engine >= 0 && (b.ucx || strings.HasPrefix(b.what, "the side")) {
		hint = fmt.Sprintf("set deploy.engines.%s.ports for this engine", c.f.Engines[b.engine].IID)
	}
	if a.ucx && b.ucx {
		c.rep.add(fault{rule: "ucx-overlap", path: b.path, got: span(b), want: "a range of its own", hint: hint,
			says: fmt.Sprintf("ports %s of %s overlap %s of %s", span(b), b.what, span(a), a.what)})
		return
	}
	c.rep.add(fault{rule: "port-collision", path: b.path, got: span(b), want: "a port of its own", hint: hint,
		says: fmt.Sprintf("port %s of %s is taken by %s (%s)", span(b), b.what, a.what, a.path.String())})
}

func span(l listener) string {
	if l.first == l.last {
		return strconv.Itoa(l.first)
	}
	return fmt.Sprintf("%d-%d", l.first, l.last)
}
