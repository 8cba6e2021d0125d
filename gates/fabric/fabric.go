// Package fabric is gate D: every directed edge between engine hosts carries the KV
// budget of the fleet's cache layout.
//
// It promises one sample per directed edge, in rounds in which no host sends or
// receives twice, with the route observed at both ends. It refuses to leave its
// testers running.
package fabric

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path"
	"strconv"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Gate is gate D.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "D", Name: "fabric", Title: "Fabric", Promise: "every directed edge carries the KV budget"}
}

const budgetKey = record.Key("D/budget")

func edgeKey(a, b string) record.Key { return record.NewKey("D", "edge", a, b) }

// Expect wants the budget and every directed edge between engine hosts.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	keys := []record.Key{budgetKey}
	hosts := f.EngineHosts()
	for _, a := range hosts {
		for _, b := range hosts {
			if a != b {
				keys = append(keys, edgeKey(a, b))
			}
		}
	}
	return keys
}

const shortLimit = fleet.Duration(time.Minute)

// Plan computes the budget, starts a tester on each host that is measured, runs the
// edges in rounds, and stops the testers whatever happens.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	if t := v.Fleet.Deploy.Fabric.Transport; t != "" && t != "tcp" {
		return p, problem.New(problem.Invalid, "transport_unmeasured", fmt.Sprintf("deploy.fabric.transport is %q, and this version measures tcp alone", t),
			"set transport to tcp to qualify the same links over TCP")
	}
	if v.Wants(budgetKey) {
		p.Steps = append(p.Steps, gates.Step{
			ID: "D/budget", Title: "compute the KV budget", Effect: gates.Observe, Yields: budgetKey, Limit: shortLimit,
			Local: &gates.LocalCall{Op: "budget"},
		})
	}
	var edges []Edge
	busy := map[string]bool{}
	for _, e := range Rounds(v.Fleet.EngineHosts()) {
		if v.Wants(edgeKey(e.From, e.To)) {
			edges = append(edges, e)
			busy[e.To] = true
		}
	}
	for _, h := range v.Fleet.EngineHosts() {
		if busy[h] {
			p.Steps = append(p.Steps, testerStep(v.Fleet, h))
		}
	}
	for _, e := range edges {
		p.Steps = append(p.Steps, edgeStep(v.Fleet, e))
	}
	for _, h := range v.Fleet.EngineHosts() {
		if busy[h] {
			undo := gates.StopUndo(v.Fleet, h, testerName, stopWithin)
			p.Steps = append(p.Steps, gates.Step{ID: "D/stop/" + h, Title: "stop the tester on " + h, Host: h, Effect: gates.Mutate, Argv: undo.Argv, Limit: undo.Limit, Last: true,
				Check: gates.HostCommand(v.Fleet, h, "absent", gates.StatusRequest{Root: v.Fleet.Deploy.Hosts[h].Root, Name: testerName}), Needs: []string{"D/tester/" + h}})
		}
	}
	return p, nil
}

const (
	testerName = gates.TesterProcess
	stopWithin = fleet.Duration(5 * time.Second)
)

// Address is where the tester of a host listens.
func Address(f fleet.Fleet, host string) string {
	port := f.Deploy.Hosts[host].FabricPort
	if port == 0 {
		port = f.Deploy.Fabric.Port
	}
	return net.JoinHostPort(f.FabricAddress(host), strconv.Itoa(port))
}

func testerStep(f fleet.Fleet, h string) gates.Step {
	root, addr := f.Deploy.Hosts[h].Root, Address(f, h)
	s := gates.LaunchStep(f, "D/tester/"+h, h, process.Spec{
		Name: testerName, Argv: []string{path.Join(root, gates.LinkCurrent, "narwhal"), "host", "fabric-serve", addr}, Launch: "fabric " + addr,
	}, stopWithin)
	s.Title = "start the fabric tester on " + h
	return s
}

func edgeStep(f fleet.Fleet, e Edge) gates.Step {
	fab := f.Deploy.Fabric
	return gates.Step{
		ID: "D/edge/" + e.From + "/" + e.To, Title: fmt.Sprintf("measure %s → %s", e.From, e.To), Host: e.From, Effect: gates.Observe, Yields: edgeKey(e.From, e.To),
		Limit: fab.Sample + shortLimit, Needs: []string{"D/tester/" + e.To}, Exclusive: []string{"send:" + e.From, "receive:" + e.To},
		Argv: gates.HostCommand(f, e.From, "fabric-measure", MeasureRequest{From: e.From, To: e.To, Address: Address(f, e.To), Streams: fab.Streams, For: fab.Sample}),
	}
}

// Edge is one direction between two hosts.
type Edge struct{ From, To string }

// Rounds orders all directed edges like a tournament: within a round each host meets
// one other and both directions run, so n hosts (n even) need n−1 rounds.
func Rounds(hosts []string) []Edge {
	ring := append([]string(nil), hosts...)
	if len(ring)%2 == 1 {
		ring = append(ring, "") // a host that meets "" rests
	}
	var out []Edge
	n := len(ring)
	for round := 0; round < n-1; round++ {
		for i := 0; i < n/2; i++ {
			a, b := ring[i], ring[n-1-i]
			if a != "" && b != "" {
				out = append(out, Edge{a, b}, Edge{b, a})
			}
		}
		last := ring[n-1]
		copy(ring[2:], ring[1:n-1])
		ring[1] = last
	}
	return out
}

// Budget is what an edge must carry.
type Budget struct {
	BlockTokens   int     `json:"block_tokens"`
	BytesPerBlock int64   `json:"bytes_per_block"`
	PromptTokens  int     `json:"prompt_tokens"`
	Payload       int64   `json:"payload_bytes_per_handoff"`
	PerSecond     float64 `json:"peak_handoffs_per_s"`
	Headroom      float64 `json:"headroom"`
	Required      float64 `json:"required_gbps"`
	Floor         float64 `json:"floor_gbps"` // the larger of required and deploy.fabric.min_gbps
	Layout        string  `json:"layout"`     // digest of the cache evidence
}

// BudgetOf computes the budget: 8 × payload × max(handoffs/s, burst ÷ budget) × headroom ÷ 10⁹
// Gbit/s, where the payload is the prompt's blocks.
func BudgetOf(fab fleet.Fabric, c engine.CacheLayout) (Budget, error) {
	if c.BlockSize <= 0 || c.BytesPerBlock <= 0 {
		return Budget{}, fmt.Errorf("compute the KV budget: the cache layout tells no bytes a block")
	}
	blocks := int64((fab.PromptTokens + c.BlockSize - 1) / c.BlockSize)
	b := Budget{BlockTokens: c.BlockSize, BytesPerBlock: c.BytesPerBlock, PromptTokens: fab.PromptTokens, Headroom: fab.Headroom, PerSecond: fab.HandoffsPerS}
	if fab.BudgetS > 0 {
		b.PerSecond = max(b.PerSecond, float64(fab.Burst)/fab.BudgetS)
	}
	b.Payload = blocks * c.BytesPerBlock
	b.Required = 8 * float64(b.Payload) * b.PerSecond * b.Headroom / 1e9
	b.Floor = max(b.Required, fab.MinGbps)
	return b, nil
}

// Locals are the operations of the gate that run on the workstation.
func (Gate) Locals() map[string]gates.Local {
	return map[string]gates.Local{"budget": func(_ context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
		v := env.View()
		if len(v.Fleet.Engines) == 0 {
			return nil, fmt.Errorf("compute the KV budget: the fleet has no engine")
		}
		key := record.NewKey("C", "cache", v.Fleet.Engines[0].IID)
		var c engine.CacheLayout
		if err := v.Decode(key, &c); err != nil {
			return nil, err
		}
		b, err := BudgetOf(v.Fleet.Deploy.Fabric, c)
		if err != nil {
			return nil, err
		}
		b.Layout = v.Digest(key)
		return json.Marshal(b)
	}}
}

// Facts are the routes seen at both ends of an edge.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	var s Sample
	if key.Kind() != "edge" || json.Unmarshal(data, &s) != nil {
		return nil
	}
	sub := key.Subjects()
	return map[string]string{"host/" + sub[0] + "/route/" + sub[1]: s.RouteFrom, "host/" + sub[1] + "/route/" + sub[0]: s.RouteTo}
}

// Judge compares every edge with the floor, which it computes again from the cache
// layout, and its routes with the interface that the fleet names.
func (Gate) Judge(v gates.View) []record.Finding {
	var out []record.Finding
	var b Budget
	if v.Decode(budgetKey, &b) != nil {
		return nil // the runner reports missing evidence
	}
	var c engine.CacheLayout
	if len(v.Fleet.Engines) > 0 && v.Decode(record.NewKey("C", "cache", v.Fleet.Engines[0].IID), &c) == nil {
		if again, err := BudgetOf(v.Fleet.Deploy.Fabric, c); err != nil || again.Floor != b.Floor {
			out = append(out, record.Finding{Code: "budget-differs", Want: gbps(again.Floor), Got: gbps(b.Floor), Evidence: string(budgetKey),
				Message: "the recorded budget does not follow from the cache layout", Hint: "narwhal gate run --again D"})
		}
	}
	for _, e := range Rounds(v.Fleet.EngineHosts()) {
		var s Sample
		if v.Decode(edgeKey(e.From, e.To), &s) == nil {
			out = append(out, judgeEdge(v.Fleet.Deploy.Fabric, e, s, b.Floor)...)
		}
	}
	return out
}

func judgeEdge(fab fleet.Fabric, e Edge, s Sample, floor float64) []record.Finding {
	var out []record.Finding
	at := string(edgeKey(e.From, e.To))
	if !(s.Gbps >= floor) {
		out = append(out, record.Finding{Code: "edge-slow", Host: e.From, Want: gbps(floor), Got: gbps(s.Gbps), Evidence: at,
			Message: fmt.Sprintf("edge %s → %s: %s measured, %s required", e.From, e.To, gbps(s.Gbps), gbps(floor)),
			Hint:    "the floor follows from deploy.fabric (prompt_tokens, handoffs_per_s, headroom, min_gbps) and the cache layout; check the link with narwhal gate run --again D"})
	}
	if fab.Interface != "" {
		for _, end := range []struct{ host, route string }{{e.From, s.RouteFrom}, {e.To, s.RouteTo}} {
			end, r := end.host, end.route
			if r == "" {
				r = "an unknown interface"
			}
			if name, _, _ := cutRoute(r); name != fab.Interface {
				out = append(out, record.Finding{Code: "edge-interface", Host: end, Want: fab.Interface, Got: r, Evidence: at,
					Message: fmt.Sprintf("edge %s → %s: host %s routes over %s, want %s", e.From, e.To, end, r, fab.Interface), Hint: "fix the route or deploy.fabric.interface"})
			}
		}
	}
	return out
}

func gbps(v float64) string { return fmt.Sprintf("%.3g Gbit/s", v) }
