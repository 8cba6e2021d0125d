package schema

import (
	"fmt"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func deployPath(names ...string) trail {
	p := trail{key("deploy")}
	for _, n := range names {
		p = p.add(key(n))
	}
	return p
}

// processName is an iid that can name processes, files and evidence.
var processName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// deploy checks narwhal's own section.
func (c checker) deploy() {
	d := c.f.Deploy
	if d == nil {
		return
	}
	for i, e := range c.f.Engines {
		if !processName.MatchString(e.IID) {
			c.fault("engine-id-name", fmt.Sprintf("engines[%d].iid", i), fmt.Sprintf("%q names processes and files on its host", e.IID), "use a form like p0 or decode-1")
		}
	}
	c.places(d)
	c.routers(d)
	c.router(d.Router)
	c.monitoring(d)
	c.jumps(d)
	c.supervise(d)
	for _, id := range slices.Sorted(maps.Keys(d.Hosts)) {
		c.host(id, d.Hosts[id])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Launch)) {
		c.launch(name, d.Launch[name])
	}
	c.secret(deployPath("sign", "passphrase"), d.Sign.Passphrase)
	c.ports(d)
	c.layout(d)
	c.points("prefill_tokens", d.Profile.PrefillTokens)
	c.points("decode_requests", d.Profile.DecodeRequests)
	c.points("decode_tokens", d.Profile.DecodeTokens)
}

// points refuses a repeated point, which would make a fit look better supported than it is.
func (c checker) points(name string, points []int) {
	seen := map[int]bool{}
	for i, n := range points {
		if seen[n] {
			c.add("profile-points", deployPath("profile", name).add(at(i)), fmt.Sprintf("%d is given twice", n), "")
		}
		seen[n] = true
	}
}

func (c checker) add(rule string, p trail, says, hint string) {
	c.rep.add(fault{rule: rule, path: p, says: says, hint: hint})
}

func known[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// unknownName reports a name that a map lacks.
func unknownName[T any](c checker, rule string, p trail, what, name string, m map[string]T) {
	hint := "add it to the section, or correct the name"
	if near := nearest(name, known(m)); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	c.rep.add(fault{rule: rule, path: p, got: quote(name), want: "the name of a " + what,
		says: fmt.Sprintf("no %s is named %s", what, quote(name)), hint: hint})
}

func (c checker) places(d *fleet.Deploy) {
	engines := make(map[string]bool, len(c.f.Engines))
	for _, e := range c.f.Engines {
		engines[e.IID] = true
		place, ok := d.Engines[e.IID]
		p := deployPath("engines", e.IID)
		if !ok {
			c.add("place-missing", p, "engine "+quote(e.IID)+" has no place", "add it to deploy.engines with its host")
			continue
		}
		if _, ok := d.Hosts[place.Host]; !ok {
			unknownName(c, "host-unknown", p.add(key("host")), "host", place.Host, d.Hosts)
		}
		c.ranks(d, e.IID, place)
		if place.Launch == "" && d.Defaults.Launch == "" {
			c.add("launch-missing", p.add(key("launch")), "no launch is named, and there is no default", "set deploy.defaults.launch")
		} else if _, ok := d.Launch[place.Launch]; !ok && place.Launch != "" {
			unknownName(c, "launch-unknown", p.add(key("launch")), "launch", place.Launch, d.Launch)
		}
	}
	for _, iid := range known(d.Engines) {
		if !engines[iid] {
			unknownName(c, "place-engine", deployPath("engines", iid), "engine", iid, engines)
		}
	}
	if name := d.Defaults.Launch; name != "" {
		if _, ok := d.Launch[name]; !ok {
			unknownName(c, "launch-unknown", deployPath("defaults", "launch"), "launch", name, d.Launch)
		}
	}
}

func (c checker) routers(d *fleet.Deploy) {
	if _, ok := d.Hosts[d.Router.Host]; !ok {
		unknownName(c, "host-unknown", deployPath("router", "host"), "host", d.Router.Host, d.Hosts)
	}
	s := d.Router.Standby
	if s == nil {
		return
	}
	if _, ok := d.Hosts[s.Host]; !ok {
		unknownName(c, "host-unknown", deployPath("router", "standby", "host"), "host", s.Host, d.Hosts)
	}
	if s.Host == d.Router.Host {
		c.add("standby-host", deployPath("router", "standby", "host"), "the standby runs beside the router and would fail with its host", "")
	}
	switch {
	case !d.Router.Lease.On():
		c.add("standby-lease", deployPath("router", "standby"), "has no lease to share with the router, so that gate G does not start it", "add deploy.router.lease: a path on a folder of both hosts, or etcd")
	case s.Host != d.Router.Host && onLoopback(d.Router.Listen) && !onLoopback(net.JoinHostPort(d.Hosts[d.Router.Host].Address, "0")):
		c.add("standby-reach", deployPath("router", "listen"), "is on loopback, where the standby's host does not reach it", "give an address of the router's host")
	}
}

// onLoopback reports whether an address of the form HOST:PORT is one of its own machine only.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// jumps follows every chain once.
func (c checker) jumps(d *fleet.Deploy) {
	const walking, done = 1, 2
	state := map[string]int{}
	for _, id := range known(d.Hosts) {
		var chain []string
		at := id
		for at != "" && state[at] == 0 {
			state[at] = walking
			chain = append(chain, at)
			next := d.Hosts[at].Jump
			p := deployPath("hosts", at, "jump")
			if _, ok := d.Hosts[next]; !ok && next != "" {
				unknownName(c, "host-unknown", p, "host", next, d.Hosts)
				break
			}
			if state[next] == walking {
				i := slices.Index(chain, next)
				c.add("jump-cycle", p, "jumps in a circle: "+strings.Join(append(slices.Clone(chain[i:]), next), " → "), "")
				break
			}
			at = next
		}
		for _, h := range chain {
			state[h] = done
		}
	}
}

// wideRoots are folders that other programs own too.
var wideRoots = []string{"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var"}

func (c checker) host(id string, h fleet.Host) {
	root := deployPath("hosts", id, "root")
	if c.remotePath(root, h.Root) && slices.Contains(wideRoots, path.Clean(h.Root)) {
		c.add("root-too-wide", root, fmt.Sprintf("%s belongs to the system", path.Clean(h.Root)), "name a folder of narwhal's own, such as /opt/narwhal")
	}
	for i, f := range h.Files {
		c.remotePath(append(deployPath("hosts", id, "files"), at(i)), f)
	}
	c.hostSecrets(id, h)
}

// remotePath reports a path on a host that is not absolute or escapes.
func (c checker) remotePath(p trail, s string) bool {
	switch {
	case strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		c.add("path-escape", p, "holds a control character", "")
	case hasDotDot(s):
		c.add("path-escape", p, fmt.Sprintf("%s holds ..", quote(s)), "write the path without ..")
	case !strings.HasPrefix(s, "/"):
		c.add("path-absolute", p, fmt.Sprintf("%s is not absolute", quote(s)), "begin with /")
	default:
		return true
	}
	return false
}
