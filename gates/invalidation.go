package gates

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Bond says which facts keep a kind of evidence valid. {x} stands for one segment
// of the key and is filled into the facts' names.
type Bond struct {
	Evidence string
	Facts    []string
}

// Invalidation is the whole table: evidence is repeated when, and only when, a fact
// that it is bound to has changed. A process id changes when the process is replaced;
// its launch fact changes only when it was launched differently or is gone.
var Invalidation = []Bond{
	{"A/inputs", []string{"fleet/document", "release"}},
	{"A/host/{h}", []string{"fleet/host/{h}", "fleet/files/{h}", "host/{h}/boot", "host/{h}/files", "host/{h}/machine"}},
	{"A/clock/{h}", []string{"fleet/host/{h}", "host/{h}/boot"}},
	{"A/hardware/{h}", []string{"fleet/host/{h}", "host/{h}/boot"}},
	{"A/network/{h}", []string{"fleet/host/{h}", "fleet/fabric-addresses", "host/{h}/boot"}},
	{"A/images/{h}", []string{"fleet/host/{h}", "fleet/images/{h}", "host/{h}/boot"}},
	{"A/model/{h}", []string{"fleet/host/{h}", "fleet/trees/{h}", "host/{h}/trees"}},

	{"B/manifest", []string{"release"}},
	{"B/ground/{h}", []string{"release", "fleet/host/{h}"}},
	{"B/lock/{h}", []string{"release", "fleet/host/{h}"}},
	{"B/proof/{h}", []string{"release", "fleet/host/{h}"}},
	{"B/files/{h}", []string{"fleet/host/{h}", "fleet/role/{h}", "host/{h}/files-dir"}},
	{"B/manager/{h}", []string{"fleet/host/{h}", "fleet/units/{h}", "host/{h}/boot"}},
	{"B/units/{h}", []string{"fleet/host/{h}", "fleet/units/{h}", "host/{h}/units"}},
	{"B/key/{h}", []string{"fleet/host/{h}", "host/{h}/key"}},
	{"B/release/{h}", []string{"release", "fleet/host/{h}", "host/{h}/release"}},

	{"C/ports/{e}", []string{"fleet/launch/{e}"}},
	{"C/launch/{e}", []string{"fleet/launch/{e}", "proc/engine-{e}/launch"}},
	{"C/live/{e}", []string{"fleet/model", "proc/engine-{e}/id"}},
	{"C/rank/{e}/{r}", []string{"fleet/launch/{e}", "proc/engine-{e}-rank-{r}/launch"}},
	{"C/joined/{e}/{r}", []string{"proc/engine-{e}/id", "proc/engine-{e}-rank-{r}/id"}},
	{"C/container/{e}", []string{"fleet/launch/{e}", "proc/engine-{e}/id"}},
	{"C/listener/{e}", []string{"fleet/launch/{e}", "proc/engine-{e}/id"}},
	{"C/cache/{e}", []string{"fleet/contract", "proc/engine-{e}/id"}},

	{"D/budget", []string{"fleet/fabric", "cache"}},
	{"D/pair/{a}/{b}", []string{"fleet/link", "fleet/host/{a}", "fleet/host/{b}", "host/{a}/route/{b}", "host/{b}/route/{a}"}},
	{"D/tool/{t}/{a}/{b}", []string{"fleet/link", "fleet/host/{a}", "fleet/host/{b}", "host/{a}/route/{b}", "host/{b}/route/{a}"}},
	{"D/decode/{a}/{b}", []string{"fleet/link", "fleet/host/{a}", "fleet/host/{b}", "fleet/engines/{a}", "fleet/engines/{b}", "host/{a}/route/{b}", "host/{b}/route/{a}"}},
	{"D/incast/{h}", []string{"fleet/link", "fleet/host/{h}", "routes/{h}"}},

	{"E/observed/{e}", []string{"fleet/launch/{e}", "proc/engine-{e}/id"}},
	{"E/sidecar/{e}", []string{"release", "fleet/attest/{e}", "fleet/contract", "fleet/unit/sidecar-{e}", "proc/engine-{e}/id", "proc/sidecar-{e}/id"}},
	{"E/statement/{e}", []string{"fleet/contract", "proc/engine-{e}/id", "proc/sidecar-{e}/id"}},

	{"F/engine/{e}", []string{"fleet/contract", "fleet/model", "proc/engine-{e}/id"}},
	{"F/abort/{e}", []string{"fleet/model", "proc/engine-{e}/id"}},
	{"F/lease/{e}", []string{"fleet/model", "proc/engine-{e}/id"}},
	{"F/restart/{e}", []string{"fleet/launch/{e}", "fleet/model", "proc/engine-{e}/launch"}},
	{"F/profile/{e}", []string{"fleet/launch/{e}", "fleet/model", "fleet/profile", "proc/engine-{e}/launch"}},
	{"F/store", []string{"fleet/contract", "profiles"}},
	{"F/pair/{p}/{d}", []string{"fleet/slo", "fleet/model", "proc/engine-{p}/id", "proc/engine-{d}/id", "path/{p}/{d}"}},

	{"G/router", []string{"release", "fleet/runtime", "fleet/router", "fleet/unit/router", "profiles/active", "proc/router/launch"}},
	{"G/drain", []string{"release", "fleet/runtime", "fleet/router", "profiles/active"}},
	{"G/drain-standby", []string{"release", "fleet/runtime", "fleet/router", "profiles/active"}},
	{"G/ready", []string{"proc/router/id"}},
	{"G/standby", []string{"release", "fleet/succession", "fleet/runtime", "fleet/router", "fleet/unit/standby", "profiles/active", "proc/standby/launch"}},
	{"G/standing", []string{"proc/router/id", "proc/standby/id"}},
	{"G/monitoring-check", []string{"release", "fleet/monitoring"}},
	{"G/monitoring-files", []string{"release", "fleet/monitoring"}},
	{"G/monitoring", []string{"release", "fleet/monitoring", "fleet/runtime", "proc/router/id"}},
	{"G/trial", []string{"fleet/slo", "fleet/trial", "proc/router/id"}},
	{"G/journal", []string{"fleet/trial", "proc/router/id"}},
	{"G/ring", []string{"fleet/trial", "proc/router/id"}},
	{"G/acceptance", []string{"fleet/slo", "fleet/trial", "proc/router/id"}},
	{"G/bundle", []string{"fleet/trial", "proc/router/id"}},
}

// bondsOf returns the facts that evidence is bound to, with their present values.
func bondsOf(k record.Key, facts map[string]string) map[string]string {
	bonds := map[string]string{}
	for _, b := range append(Invalidation[:len(Invalidation):len(Invalidation)], Beside...) {
		names, ok := match(b.Evidence, string(k))
		if !ok {
			continue
		}
		for _, f := range b.Facts {
			name := f
			for holder, value := range names {
				name = strings.ReplaceAll(name, holder, value)
			}
			bonds[name] = facts[name]
		}
	}
	return bonds
}

// match compares a key with a pattern and returns what the holders stand for.
func match(pattern, key string) (map[string]string, bool) {
	ps, ks := strings.Split(pattern, "/"), strings.Split(key, "/")
	if len(ps) != len(ks) {
		return nil, false
	}
	names := map[string]string{}
	for i, p := range ps {
		if strings.HasPrefix(p, "{") {
			name, err := url.PathUnescape(ks[i]) // as record.NewKey wrote it
			if err != nil {
				return nil, false
			}
			names[p] = name
		} else if p != ks[i] {
			return nil, false
		}
	}
	return names, true
}

// stale says why evidence no longer holds, "" when it does.
func stale(e record.Entry, facts map[string]string) string {
	for _, name := range sortedKeys(e.Bonds) {
		was, is := e.Bonds[name], facts[name]
		if was != is {
			return because(name, was, is)
		}
	}
	return ""
}

// aged says that evidence is older than the fleet's policy lets it be, "" otherwise.
func aged(f fleet.Fleet, e record.Entry) string {
	if f.Deploy == nil || f.Deploy.Policy.MaxEvidenceAge <= 0 || time.Since(e.Time) <= f.Deploy.Policy.MaxEvidenceAge.D() {
		return ""
	}
	return "it is older than policy.max_evidence_age, " + f.Deploy.Policy.MaxEvidenceAge.String()
}

// because names a change in words. Facts of a record may be anything.
func because(fact, was, is string) string {
	p := strings.SplitN(fact+"///", "/", 4)
	p[3] = strings.TrimRight(p[3], "/")
	switch {
	case p[0] == "proc" && is == Gone:
		return p[1] + " is not running"
	case p[0] == "proc" && is == Silent:
		return p[1] + " runs and does not answer"
	case p[0] == "proc" && p[2] == "launch":
		return p[1] + " was launched differently"
	case p[0] == "proc":
		return fmt.Sprintf("%s was restarted (%s, was %s)", p[1], short(is), short(was))
	case p[0] == "host" && p[2] == "boot":
		return "host " + p[1] + " was rebooted"
	case p[0] == "host" && p[2] == "route":
		return fmt.Sprintf("route %s → %s changed (%s, was %s)", p[1], p[3], is, was)
	case p[0] == "host":
		return fmt.Sprintf("%s on host %s changed", p[2], p[1])
	case p[0] == "path":
		return fmt.Sprintf("the KV path %s → %s changed", p[1], p[2])
	case p[0] == "routes":
		return fmt.Sprintf("the hosts around %s, or the routes to them, changed", p[1])
	case p[0] == "release":
		return "the narwhal binary changed"
	case p[0] == "cache":
		return "the cache layout changed"
	case p[0] == "profiles":
		return "the profiles changed"
	case p[0] == "fleet":
		return strings.TrimSpace("the fleet file changed: " + strings.Join(p[1:], " "))
	}
	return fact + " changed"
}

func short(s string) string {
	if len(s) > 24 {
		return s[:24] + "…"
	}
	if s == "" {
		return "unknown"
	}
	return s
}
