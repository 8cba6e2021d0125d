package bundle

import (
	"net"
	"path"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// item is one file to collect from a host.
type item struct {
	path     string // in the archive
	file     string // below the host's root
	limit    int64  // bytes
	tail     bool   // the end of a larger file will do
	lines    bool   // whole lines only
	parts    bool   // a journal, which goes on in files beside it
	optional bool   // its absence is nothing to report
}

// ask is one URL to ask from a host.
type ask struct {
	path string
	url  string
}

// placed is where a file below a host's root goes in the archive.
func placed(place, file string) string {
	for _, s := range []string{"router/", "standby/"} {
		if rest, ok := strings.CutPrefix(file, s); ok && rest != "journal.jsonl" {
			return path.Join(place, "files", component(rest))
		}
	}
	return path.Join(place, file)
}

// expected lists the files that a host of the fleet has when all gates have passed, and
// those that it may have.
func expected(f fleet.Fleet, host string) []item {
	base := path.Join("hosts", component(host))
	items := []item{{path: base + "/etc/host.json", file: "etc/host.json", limit: maxFile}}
	process := func(name string, optional bool) {
		to := base + "/run/" + component(name)
		items = append(items,
			item{path: to + ".json", file: "run/" + name + ".json", limit: maxFile, optional: optional},
			item{path: to + ".log", file: "run/" + name + ".log", limit: maxLog, tail: true, optional: optional})
	}
	for _, e := range f.Engines {
		if f.HostOf(e.IID) != host || strings.ContainsAny(e.IID, "/\x00\n") {
			continue
		}
		process("engine-"+e.IID, false)
		if e.AttestationURL != "" {
			process("sidecar-"+e.IID, false)
			items = append(items, item{path: base + "/attest/" + component(e.IID) + ".json", file: "attest/" + e.IID + ".json", limit: maxFile})
		}
	}
	process("fabric", true)
	for _, s := range surfaces(f, host) {
		process(s.process, s.optional)
		items = append(items, item{path: s.place + "/journal.jsonl", file: s.process + "/journal.jsonl", limit: maxJournal, tail: true, lines: true, parts: true, optional: s.optional})
	}
	return items
}

// surface is the router or its standby on a host.
type surface struct {
	process  string // which names its folder below the host's root too
	place    string // folder of the archive
	listen   string
	optional bool
}

// surfaces lists those of a host. Without a lease gate G starts no standby.
func surfaces(f fleet.Fleet, host string) (out []surface) {
	r := f.Deploy.Router
	if host == r.Host {
		out = append(out, surface{process: "router", place: "router", listen: r.Listen})
	}
	if s := r.Standby; s != nil && host == s.Host && r.Lease.On() {
		out = append(out, surface{process: "standby", place: "router/standby", listen: s.Listen, optional: true})
	}
	return out
}

// asks lists the URLs to ask from a host.
func asks(f fleet.Fleet, host string) []ask {
	var out []ask
	for _, e := range f.Engines {
		if f.HostOf(e.IID) != host {
			continue
		}
		base, url := path.Join("hosts", component(host), "engines", component(e.IID)), strings.TrimRight(e.URL, "/")
		out = append(out, ask{base + "/version.json", url + "/version"}, ask{base + "/models.json", url + "/v1/models"}, ask{base + "/metrics.txt", url + "/metrics"})
	}
	router := func(place, listen string) {
		url := "http://" + reachable(listen)
		out = append(out, ask{place + "/health.json", url + "/health"}, ask{place + "/ready.json", url + "/ready"},
			ask{place + "/state.json", url + "/narwhal/state"}, ask{place + "/metrics.txt", url + "/metrics"})
	}
	for _, s := range surfaces(f, host) {
		if s.listen != "" {
			router(s.place, s.listen)
		}
	}
	return out
}

// reachable is an address to connect to where something listens on listen.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}
