package fabric

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

const again = "narwhal gate run --again D"

// evidence is what the judge reads, decoded once.
type evidence struct {
	fleet  fleet.Fleet
	fab    fleet.Fabric
	hosts  []string
	budget Budget
	pairs  map[Twosome]Pair
}

func read(v gates.View) (evidence, bool) {
	e := evidence{fleet: v.Fleet, fab: v.Fleet.Deploy.Fabric, hosts: v.Fleet.EngineHosts(), pairs: map[Twosome]Pair{}}
	if v.Decode(budgetKey, &e.budget) != nil {
		return e, false
	}
	for _, t := range pairs(e.hosts) {
		var p Pair
		if v.Decode(pairKey(t), &p) == nil {
			p.A, p.B = t.A, t.B // the key says whose they are
			e.pairs[t] = p
		}
	}
	return e, true
}

// Judge compares every edge with the floor, which it computes again from the cache layout,
// with its peers and its past, and looks at what a rate hides: losses, sizes that vanish,
// routes and errors. The runner reports missing evidence.
func (Gate) Judge(v gates.View) []record.Finding {
	e, ok := read(v)
	if !ok {
		return nil
	}
	var out []record.Finding
	var c engine.CacheLayout
	if len(v.Fleet.Engines) > 0 && v.Decode(cacheKey(v.Fleet), &c) == nil {
		if now, err := BudgetOf(e.fab, c); err != nil || now.Floor != e.budget.Floor || now.Payload != e.budget.Payload {
			out = append(out, record.Finding{Code: "budget-differs", Want: gbps(now.Floor), Got: gbps(e.budget.Floor), Evidence: string(budgetKey),
				Message: "the recorded budget does not follow from the cache layout", Hint: again})
		}
	}
	out = append(out, e.reached()...)
	if e.tcp() {
		out = append(out, e.rates()...)
		out = append(out, e.peers()...)
		out = append(out, e.past()...)
	}
	out = append(out, e.lossy()...)
	out = append(out, e.sizes()...)
	out = append(out, e.routes()...)
	out = append(out, e.damage()...)
	out = append(out, judgeDecode(v, e)...)
	out = append(out, judgeTools(v, e)...)
	return append(out, judgeIncast(v, e)...)
}

// tcp reports whether the fleet's KV goes over TCP, so that the tester's rates are its own.
func (e evidence) tcp() bool { return e.fab.Transport == "" || e.fab.Transport == "tcp" }

// each visits every measured direction in the order of the rounds.
func (e evidence) each(visit func(Edge, Direction, End, End, string)) {
	for _, t := range pairs(e.hosts) {
		p, ok := e.pairs[t]
		if !ok || p.Unreachable != "" {
			continue
		}
		for _, edge := range t.Edges() {
			d, from, to := p.Of(edge)
			visit(edge, d, from, to, string(pairKey(t)))
		}
	}
}

func (e evidence) reached() []record.Finding {
	var out []record.Finding
	for _, t := range pairs(e.hosts) {
		if p, ok := e.pairs[t]; ok && p.Unreachable != "" {
			out = append(out, record.Finding{Code: "edge-unreachable", Host: t.A, Want: "a connection to " + Address(e.fleet, t.B), Got: p.Unreachable, Evidence: string(pairKey(t)),
				Message: fmt.Sprintf("edge %s → %s: %s", t.A, t.B, p.Unreachable),
				Hint:    fmt.Sprintf("check the link, the routes and the firewall between them (ip route get %s on %s); then %s", e.fleet.FabricAddress(t.B), t.A, again)})
		}
	}
	return out
}

// rates holds every edge to the floor.
func (e evidence) rates() []record.Finding {
	var out []record.Finding
	floor := e.budget.Floor
	e.each(func(edge Edge, d Direction, from, to End, at string) {
		if loopback(from, to) { // what else the machine does says nothing of an edge
			d.Gbps = max(d.Gbps, able(d.Together))
		}
		name := fmt.Sprintf("edge %s → %s", edge.From, edge.To)
		switch {
		case !(d.Gbps >= floor) && d.AloneGbps >= floor:
			out = append(out, record.Finding{Code: "edge-duplex", Host: edge.From, Want: gbps(floor), Got: gbps(d.Gbps), Evidence: at,
				Message: fmt.Sprintf("%s: %s alone, and %s while %s → %s runs, %s required", name, gbps(d.AloneGbps), gbps(d.Gbps), edge.To, edge.From, gbps(floor)),
				Hint:    "both directions share something: look for half duplex (ethtool), a narrow PCI link (lspci -vv, LnkSta), or too few CPUs for the streams; then " + again})
		case !(d.Gbps >= floor):
			out = append(out, record.Finding{Code: "edge-slow", Host: edge.From, Want: gbps(floor), Got: gbps(d.Gbps), Evidence: at,
				Message: fmt.Sprintf("%s: %s measured, %s required", name, gbps(d.Gbps), gbps(floor)),
				Hint:    "the floor follows from deploy.fabric (prompt_tokens, handoffs_per_s, headroom, min_gbps) and the cache layout; check the link with " + again})
		default:
			m, ok := law(d.Curve, d.Gbps)
			if got := effective(m, d.Gbps, e.budget.Payload); ok && e.budget.Payload > 0 && got < e.budget.Required {
				out = append(out, record.Finding{Code: "payload-slow", Host: edge.From, Want: gbps(e.budget.Required), Got: gbps(got), Evidence: at,
					Message: fmt.Sprintf("%s: one payload of %d bytes moves at %s, %s required: it is short against the knee of %.3g bytes, and the link's %s count for longer ones alone",
						name, e.budget.Payload, gbps(got), gbps(e.budget.Required), m.start*m.rate, gbps(d.Gbps)),
					Hint: "a message takes long to begin: look at the round trip in the evidence, interrupt coalescing (ethtool -c) and power states of the CPUs; then " + again})
			}
		}
	})
	return out
}

func gbps(v float64) string { return fmt.Sprintf("%.3g Gbit/s", v) }
