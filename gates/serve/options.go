package serve

import (
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// options are the flags of a router for what its section of the fleet file says beside the
// defaults. Secrets go as references, which the router resolves on its host.
func options(r fleet.Router) (argv []string) {
	text := func(flag, value string) {
		if value != "" {
			argv = append(argv, flag, value)
		}
	}
	seconds := func(flag string, d fleet.Duration, usual time.Duration) {
		if d > 0 && time.Duration(d) != usual {
			text(flag, strconv.FormatFloat(time.Duration(d).Seconds(), 'g', -1, 64))
		}
	}
	h, l, j := r.HTTP, r.Lease, r.Journal
	if h.MaxHeaderBytes > 0 && h.MaxHeaderBytes != fleet.DefaultHeaderBytes {
		text("--max-header-bytes", strconv.Itoa(h.MaxHeaderBytes))
	}
	seconds("--header-timeout", h.HeaderTimeout, fleet.DefaultHeaderTimeout)
	seconds("--idle-timeout", h.IdleTimeout, fleet.DefaultIdleTimeout)
	seconds("--keep-alive", h.Keepalive, 0)
	if h.ContinueStreams {
		argv = append(argv, "--continue-streams")
	}
	if r.LendFrom != fleet.DefaultLendFrom {
		text("--lend-from", strconv.FormatFloat(r.LendFrom, 'g', -1, 64))
	}
	if r.PrefixAffinity != fleet.DefaultAffinity {
		argv = append(argv, "--prefix-affinity="+strconv.FormatBool(r.PrefixAffinity))
	}
	text("--tenants", filePath(h.Tenants))
	text("--control-token", string(h.ControlToken))
	text("--lease-path", l.Path)
	if e := l.Etcd; e != nil {
		text("--lease-etcd", strings.Join(e.Endpoints, ","))
		text("--lease-etcd-key", strings.TrimRight(e.Prefix, "/")+"/lease")
		text("--lease-etcd-user", e.User)
		text("--lease-etcd-password", string(e.Password))
		text("--lease-etcd-ca", filePath(e.CA))
		text("--lease-etcd-cert", filePath(e.Cert))
		text("--lease-etcd-private", filePath(e.Key))
	}
	if l.On() {
		seconds("--lease-ttl", l.TTL, 0)
		seconds("--lease-renew-interval", l.Renew, 0)
		seconds("--lease-safety-margin", l.Margin, 0)
	}
	if j.RotateBytes != fleet.DefaultRotateBytes {
		text("--journal-max-mb", strconv.FormatInt((j.RotateBytes+1<<20-1)>>20, 10))
	}
	if j.Keep != fleet.DefaultKeep && j.RotateBytes > 0 {
		text("--journal-keep", strconv.Itoa(j.Keep))
	}
	if j.Lossless {
		argv = append(argv, "--journal-lossless")
	}
	return argv
}

// filePath is the path of a file reference.
func filePath(ref string) string { return strings.TrimPrefix(ref, "file:") }
