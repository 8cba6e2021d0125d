package fabric

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

const (
	shortLimit = fleet.Duration(time.Minute)
	testerName = gates.TesterProcess
	stopWithin = fleet.Duration(5 * time.Second)
	// maxHistory earlier samples go into a new one.
	maxHistory = 5
)

// Plan computes the budget, starts a tester on each host that is measured, runs the pairs in
// rounds, then the further tools, then all to one, and stops the testers whatever happens.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	f := v.Fleet
	if v.Wants(budgetKey) {
		p.Steps = append(p.Steps, gates.Step{
			ID: "D/budget", Title: "compute the KV budget", Effect: gates.Observe, Yields: budgetKey, Limit: shortLimit,
			Local: &gates.LocalCall{Op: "budget"},
		})
	}
	b := budgetAhead(v)
	measured := samples(v, b)
	busy := map[string]bool{}
	for _, s := range measured {
		for _, n := range s.Needs {
			busy[n] = true
		}
	}
	for _, h := range f.EngineHosts() {
		if busy[testerID(h)] {
			p.Steps = append(p.Steps, testerStep(f, h, b))
		}
	}
	p.Steps = append(p.Steps, measured...)
	for _, h := range f.EngineHosts() {
		if busy[testerID(h)] {
			undo := gates.StopUndo(f, h, testerName, stopWithin)
			p.Steps = append(p.Steps, gates.Step{ID: "D/stop/" + h, Title: "stop the tester on " + h, Host: h, Effect: gates.Mutate, Argv: undo.Argv, Limit: undo.Limit, Last: true,
				Check: gates.HostCommand(f, h, "absent", gates.StatusRequest{Root: f.Deploy.Hosts[h].Root, Name: testerName}), Needs: []string{testerID(h)}})
		}
	}
	return p, nil
}

// samples are the measuring steps in their order.
func samples(v gates.View, b Budget) []gates.Step {
	f := v.Fleet
	hosts := f.EngineHosts()
	sizes := sizesOf(b)
	var out []gates.Step
	for _, p := range pairs(hosts) {
		if v.Wants(pairKey(p)) {
			out = append(out, pairStep(v, p, sizes))
		}
	}
	for _, p := range decodePairs(f) {
		if v.Wants(decodeKey(p)) {
			out = append(out, decodeStep(f, p))
		}
	}
	for _, t := range toolsOf(f.Deploy.Fabric) {
		for i, e := range edges(hosts) { // A → B, then B → A
			if v.Wants(toolKey(t, e)) {
				out = append(out, toolStep(v, t, e, b, i%2 == 0))
			}
		}
	}
	if most := f.Deploy.Fabric.AtOnce; most > 0 {
		for i := range out {
			out[i].Exclusive = append(out[i].Exclusive, fmt.Sprintf("fabric-place:%d", i%most))
		}
	}
	for _, h := range incastHosts(f) {
		if v.Wants(incastKey(h)) {
			out = append(out, incastStep(f, h))
		}
	}
	return out
}

func testerID(h string) string { return "D/tester/" + h }

func testerStep(f fleet.Fleet, h string, budget Budget) gates.Step {
	root, addr := f.Deploy.Hosts[h].Root, Address(f, h)
	argv := []string{path.Join(root, gates.LinkCurrent, "narwhal"), "host", "fabric-serve", addr}
	launch := "fabric " + addr
	if servers := serversOf(f, h, budget); len(servers) > 0 {
		b, err := json.Marshal(servers)
		if err != nil {
			panic(fmt.Sprintf("marshal commands: %v", err)) // plain data always marshals
		}
		argv, launch = append(argv, string(b)), launch+" "+string(b)
	}
	s := gates.LaunchStep(f, testerID(h), h, process.Spec{Name: testerName, Argv: argv, Launch: launch}, stopWithin)
	s.Title = "start the fabric tester on " + h
	return s
}

// whole keeps a host to one measurement.
func whole(hosts ...string) []string {
	out := make([]string, len(hosts))
	for i, h := range hosts {
		out[i] = "fabric:" + h
	}
	return out
}

func pairStep(v gates.View, p Twosome, sizes []int64) gates.Step {
	f, fab := v.Fleet, v.Fleet.Deploy.Fabric
	return gates.Step{
		ID: "D/pair/" + p.A + "/" + p.B, Title: fmt.Sprintf("measure %s ↔ %s", p.A, p.B), Host: p.A, Effect: gates.Observe, Yields: pairKey(p),
		Limit: fab.Sample + shortLimit, Needs: []string{testerID(p.B)}, Exclusive: whole(p.A, p.B), InOrder: true,
		Argv: gates.HostCommand(f, p.A, "fabric-pair", PairRequest{A: p.A, B: p.B, Address: Address(f, p.B), Streams: fab.Streams, For: fab.Sample, Sizes: sizes, History: history(v, p)}),
	}
}

// history is what earlier evidence of a pair says: its own history, then itself.
func history(v gates.View, p Twosome) []Past {
	var old Pair
	at, taken := v.Taken(pairKey(p))
	if !taken || v.Decode(pairKey(p), &old) != nil || old.Fingerprint == "" || old.Unreachable != "" {
		return nil
	}
	all := append(old.History, Past{Fingerprint: old.Fingerprint, Time: at.UTC().Truncate(time.Second), Forward: old.Forward.Gbps, Back: old.Back.Gbps})
	return all[max(0, len(all)-maxHistory):]
}

func incastStep(f fleet.Fleet, h string) gates.Step {
	fab := f.Deploy.Fabric
	q := IncastRequest{Host: h, From: map[string]string{}, For: fab.Sample / parts * incastRepeats, Pulls: 1}
	var needs []string
	for _, o := range f.EngineHosts() {
		if o != h {
			q.From[o] = Address(f, o)
			needs = append(needs, testerID(o))
		}
	}
	q.Pulls = max(1, fab.Streams/len(q.From))
	return gates.Step{
		ID: "D/incast/" + h, Title: "measure all → " + h, Host: h, Effect: gates.Observe, Yields: incastKey(h),
		Limit: q.For + shortLimit, Needs: needs, Exclusive: whole(f.EngineHosts()...), InOrder: true, Argv: gates.HostCommand(f, h, "fabric-incast", q),
	}
}

func toolStep(v gates.View, t string, e Edge, b Budget, fromA bool) gates.Step {
	f := v.Fleet
	q := ToolRequest{Tool: t, From: e.From, To: e.To, Address: Address(f, e.To), Runs: runsOf(f, t, e, b, fromA), Repeats: runRepeats(t), For: fleet.Duration(runLength(f, t, b)),
		Optional: optional(f.Deploy.Fabric, t), History: toolHistory(v, t, e)}
	all := time.Duration(len(q.Runs)*q.Repeats) * (q.For.D() + startsWithin)
	return gates.Step{
		ID: fmt.Sprintf("D/tool/%s/%s/%s", t, e.From, e.To), Title: fmt.Sprintf("measure %s → %s with %s", e.From, e.To, t), Host: e.From, Effect: gates.Observe,
		Yields: toolKey(t, e), Limit: fleet.Duration(all) + shortLimit, Needs: []string{testerID(e.To)}, Exclusive: whole(e.From, e.To), InOrder: true,
		Argv: gates.HostCommand(f, e.From, "fabric-tool", q),
	}
}

// toolHistory is what earlier evidence of an edge by a tool says, as history does.
func toolHistory(v gates.View, t string, e Edge) []Past {
	var old ToolSample
	at, taken := v.Taken(toolKey(t, e))
	if !taken || v.Decode(toolKey(t, e), &old) != nil || old.Fingerprint == "" {
		return nil
	}
	all := append(old.History, Past{Fingerprint: old.Fingerprint, Time: at.UTC().Truncate(time.Second), Forward: old.Gbps})
	return all[max(0, len(all)-maxHistory):]
}
