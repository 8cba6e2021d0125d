package schema

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// leastKeepalive is the shortest silence that is worth a frame.
const leastKeepalive = 100 * time.Millisecond

// router checks how the router serves, leads and writes.
func (c checker) router(r fleet.Router) {
	p := deployPath("router", "http")
	for _, d := range []struct {
		name  string
		value fleet.Duration
	}{{"header_timeout", r.HTTP.HeaderTimeout}, {"idle_timeout", r.HTTP.IdleTimeout}} {
		if d.value <= 0 {
			c.add("router-timeouts", p.add(key(d.name)), "is 0, so that a silent client would hold its connection for ever", "")
		}
	}
	if k := r.HTTP.Keepalive.D(); k > 0 && k < leastKeepalive {
		c.add("router-timeouts", p.add(key("keepalive")), fmt.Sprintf("is %s, want 0s or at least %s", k, leastKeepalive), "")
	}
	c.hostFile(p.add(key("tenants")), r.HTTP.Tenants)
	c.secret(p.add(key("control_token")), r.HTTP.ControlToken)
	c.lease(r.Lease)
}

// hostFile checks a file reference that is read on a host.
func (c checker) hostFile(p trail, ref string) {
	if name, ok := strings.CutPrefix(ref, "file:"); ok {
		c.remotePath(p, name)
	}
}

func (c checker) lease(l fleet.RouterLease) {
	const at = "deploy.router.lease."
	p := deployPath("router", "lease")
	if l.Path != "" {
		c.remotePath(p.add(key("path")), l.Path)
	}
	if l.Path != "" && l.Etcd != nil {
		c.add("lease-store", p.add(key("path")), "is given beside etcd; routers that look at different stores could both serve", "keep one of the two")
	}
	if l.Renew <= 0 {
		c.fault("lease-times", at+"renew", "is 0", "a fifth of ttl is usual")
	} else if l.TTL <= l.Renew+l.Margin {
		c.relation("lease-times", at+"ttl", []string{at + "renew", at + "margin"},
			fmt.Sprintf("ttl %s is not above renew %s and margin %s together", l.TTL, l.Renew, l.Margin), "a claim must outlive one renewal that fails")
	}
	if l.Etcd == nil {
		return
	}
	if l.TTL.D()%time.Second != 0 {
		c.relation("lease-seconds", at+"ttl", []string{at + "etcd"}, fmt.Sprintf("etcd counts whole seconds, got %s", l.TTL), "")
	}
	c.etcd(*l.Etcd)
}

// etcd checks endpoints and what proves the router to them.
func (c checker) etcd(e fleet.Etcd) {
	p := deployPath("router", "lease", "etcd")
	clear := c.endpoints(p.add(key("endpoints")), e.Endpoints)
	for _, f := range []struct{ name, ref string }{{"ca", e.CA}, {"cert", e.Cert}, {"key", e.Key}} {
		c.hostFile(p.add(key(f.name)), f.ref)
		if f.ref != "" && clear {
			c.add("etcd-credentials", p.add(key(f.name)), "has no effect on an endpoint without https", "")
		}
	}
	c.secret(p.add(key("password")), e.Password)
	for _, pair := range []struct{ name, value, other, needed string }{
		{"user", e.User, "password", string(e.Password)}, {"password", string(e.Password), "user", e.User},
		{"cert", e.Cert, "key", e.Key}, {"key", e.Key, "cert", e.Cert},
	} {
		if pair.value != "" && pair.needed == "" {
			c.add("etcd-credentials", p.add(key(pair.name)), "is given without "+pair.other, "")
		}
	}
	if e.Password != "" && clear {
		c.add("etcd-clear", p.add(key("password")), "would go over the network as it is: an endpoint is http", "use https endpoints")
	}
}

// endpoints reports ports and repeats, and tells whether an endpoint is without https.
func (c checker) endpoints(p trail, list []string) (clear bool) {
	seen := map[string]bool{}
	for i, text := range list {
		u, err := url.Parse(text)
		if err != nil {
			c.add("etcd-endpoints", p.add(at(i)), "is no URL", "")
			continue
		}
		clear = clear || u.Scheme == "http"
		if n, err := strconv.Atoi(u.Port()); err != nil || n < 1 || n > 65535 {
			c.add("etcd-endpoints", p.add(at(i)), "has no port from 1 to 65535", "")
		}
		if host := strings.ToLower(u.Host); seen[host] {
			c.add("etcd-endpoints", p.add(at(i)), fmt.Sprintf("%s is given twice", quote(u.Host)), "")
		} else {
			seen[host] = true
		}
	}
	return clear
}
