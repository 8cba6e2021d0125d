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
	optional bool   // its absence is nothing to report
}

// ask is one URL to ask from a host.
type ask struct {
	path string
	url  string
}

// placed is where a file below a host's root goes in the archive.
func placed(place, file string) string {
	if rest, ok := strings.CutPrefix(file, "router/"); ok && rest != "journal.jsonl" {
		return path.Join(place, "files", component(rest))
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
	if place := routerPlace(f, host); place != "" {
		process("router", false)
		items = append(items, item{path: place + "/journal.jsonl", file: "router/journal.jsonl", limit: maxJournal, tail: true, lines: true})
	}
	return items
}

// routerPlace is the folder of the archive for the router's or the standby's files.
func routerPlace(f fleet.Fleet, host string) string {
	r := f.Deploy.Router
	switch {
	case host == r.Host:
		return "router"
	case r.Standby != nil && host == r.Standby.Host:
		return "router/standby"
	}
	return ""
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
	r := f.Deploy.Router
	if host == r.Host && r.Listen != "" {
		router("router", r.Listen)
	}
	if s := r.Standby; s != nil && host == s.Host && s.Listen != "" {
		router("router/standby", s.Listen)
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
