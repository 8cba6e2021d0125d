package fleet

import "slices"

// Which directed pairs of engines hand over.
const (
	PairsMesh  = "mesh"  // every one, n·(n−1) of n engines
	PairsHosts = "hosts" // the ring and, for each directed pair of hosts that it leaves out, one: about n + h·(h−1) of h hosts
	PairsRing  = "ring"  // each engine to the next one, n
)

// HandoffPairs are the directed pairs whose handoffs gate F wants, as deploy.profile.pairs says.
func (f Fleet) HandoffPairs() [][2]string {
	if f.Deploy == nil || f.Deploy.Profile.Pairs == "" {
		return f.Pairs(PairsMesh)
	}
	return f.Pairs(f.Deploy.Profile.Pairs)
}

// Pairs lists directed pairs, ordered so that disjoint ones stand together. Where an engine plays
// one role only, what is no mesh holds handoffs from prefill to decode, in which each has its turn.
func (f Fleet) Pairs(which string) [][2]string {
	ids := f.EngineIDs()
	if which == PairsMesh {
		return shifted(ids, len(ids)-1)
	}
	out := shifted(ids, min(1, len(ids)-1))
	if roled := f.acrossRoles(); len(roled) > 0 {
		out = roled
	}
	if which == PairsHosts {
		out = append(out, f.acrossHosts(out)...)
	}
	return out
}

// shifted pairs each engine with the ones at the distances 1 to most in the list, which closes to a ring.
func shifted(ids []string, most int) [][2]string {
	var out [][2]string
	for shift := 1; shift <= most; shift++ {
		for i := range ids {
			out = append(out, [2]string{ids[i], ids[(i+shift)%len(ids)]})
		}
	}
	return out
}

// acrossRoles is the ring where a process prefills or decodes and does not do both; nil elsewhere, and
// for a fleet of one role.
func (f Fleet) acrossRoles() (out [][2]string) {
	var from, to []string
	for _, e := range f.Engines {
		if f.gives(e) {
			from = append(from, e.IID)
		}
		if f.takes(e) {
			to = append(to, e.IID)
		}
	}
	if !f.oneRoleEach() || len(from) == 0 || len(to) == 0 {
		return nil
	}
	for i := range max(len(from), len(to)) {
		out = append(out, [2]string{from[i%len(from)], to[i%len(to)]})
	}
	return out
}

// oneRoleEach reports whether the role of a process is more than a label.
func (f Fleet) oneRoleEach() bool { return f.Engine.Dialect == "sglang" }

// HandsOver reports whether the roles of the file let one engine hand over to another: any where a
// role is a label, only from prefill to decode where it is a state of the process.
func (f Fleet) HandsOver(from, to string) bool {
	if !f.oneRoleEach() {
		return true
	}
	for _, e := range f.Engines {
		if e.IID == from && !f.gives(e) || e.IID == to && !f.takes(e) {
			return false
		}
	}
	return true
}

func (f Fleet) gives(e Engine) bool { return !f.oneRoleEach() || e.Role == RolePrefill }
func (f Fleet) takes(e Engine) bool { return !f.oneRoleEach() || e.Role != RolePrefill }

// acrossHosts has one pair of engines for each directed pair of hosts that others leave out. The
// engines of a host take turns.
func (f Fleet) acrossHosts(others [][2]string) (out [][2]string) {
	var hosts []string
	from, to := map[string][]string{}, map[string][]string{}
	for _, e := range f.Engines {
		h := f.HostOf(e.IID)
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
		if f.gives(e) {
			from[h] = append(from[h], e.IID)
		}
		if f.takes(e) {
			to[h] = append(to[h], e.IID)
		}
	}
	met := map[[2]string]bool{}
	for _, p := range others {
		met[[2]string{f.HostOf(p[0]), f.HostOf(p[1])}] = true
	}
	for shift := 1; shift < len(hosts); shift++ {
		for i, a := range hosts {
			b := hosts[(i+shift)%len(hosts)]
			if g, t := from[a], to[b]; !met[[2]string{a, b}] && len(g) > 0 && len(t) > 0 {
				out = append(out, [2]string{g[shift%len(g)], t[shift%len(t)]})
			}
		}
	}
	return out
}
