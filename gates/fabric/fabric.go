// Package fabric is gate D: every directed edge between engine hosts carries the KV
// budget of the fleet's cache layout, and as much as its peers do.
//
// It promises one measurement per pair of hosts, both directions at once and each alone, in
// rounds in which no host is measured twice; datagrams that find what a rate hides; all
// others sending to each host at once; and the routes observed at both ends. Over RDMA and UCX
// it promises the rates that their tools tell, by message size and repeat, and each sample
// lists what they cannot tell. It refuses to leave its testers running, and to count bytes that do not carry a sample's nonce.
package fabric

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/route"
)

// Gate is gate D.
type Gate struct{}

// Info names the gate.
func (Gate) Info() gates.Info {
	return gates.Info{Letter: "D", Name: "fabric", Title: "Fabric", Promise: "every directed edge carries the KV budget"}
}

const budgetKey = record.Key("D/budget")

func pairKey(p Twosome) record.Key { return record.NewKey("D", "pair", p.A, p.B) }

func incastKey(host string) record.Key { return record.NewKey("D", "incast", host) }

func toolKey(tool string, e Edge) record.Key { return record.NewKey("D", "tool", tool, e.From, e.To) }

// Expect wants the budget, every pair of engine hosts, idle and under decode, what each takes in from all others,
// and every directed edge by each further tool.
func (Gate) Expect(f fleet.Fleet) []record.Key {
	keys := []record.Key{budgetKey}
	hosts := f.EngineHosts()
	for _, p := range pairs(hosts) {
		keys = append(keys, pairKey(p))
	}
	for _, p := range decodePairs(f) {
		keys = append(keys, decodeKey(p))
	}
	for _, t := range toolsOf(f.Deploy.Fabric) {
		for _, e := range edges(hosts) {
			keys = append(keys, toolKey(t, e))
		}
	}
	for _, h := range incastHosts(f) {
		keys = append(keys, incastKey(h))
	}
	return keys
}

// incastHosts are those that take in from several others; with two hosts the pair says all.
func incastHosts(f fleet.Fleet) []string {
	hosts := f.EngineHosts()
	if !f.Deploy.Fabric.Incast || len(hosts) < 3 {
		return nil
	}
	return hosts
}

// Address is where the tester of a host listens.
func Address(f fleet.Fleet, host string) string {
	return net.JoinHostPort(f.FabricAddress(host), strconv.Itoa(port(f, host)))
}

func port(f fleet.Fleet, host string) int {
	if p := f.Deploy.Hosts[host].FabricPort; p != 0 {
		return p
	}
	return f.Deploy.Fabric.Port
}

// Facts are the ways seen at both ends of a pair, as a live look tells them: an MTU or a
// speed that is negotiated anew makes the pair stale.
func (Gate) Facts(key record.Key, data []byte) map[string]string {
	var p Pair
	if key.Kind() != "pair" || json.Unmarshal(data, &p) != nil {
		return nil
	}
	sub := key.Subjects()
	if len(sub) != 2 {
		return nil
	}
	facts := map[string]string{"host/" + sub[0] + "/route/" + sub[1]: p.EndA.way()}
	if p.Unreachable == "" { // else the other end told nothing
		facts["host/"+sub[1]+"/route/"+sub[0]] = p.EndB.way()
	}
	return facts
}

// way is the fact of how an end sees the other.
func (e End) way() string {
	return route.Way{Route: e.Route, Gateway: e.Gateway, MTU: e.MTU, SpeedMbps: e.SpeedMbps}.String()
}

// cutRoute splits "interface source".
func cutRoute(r string) (iface, src string) {
	iface, src, _ = strings.Cut(r, " ")
	return iface, src
}
