package drills

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote/netns"
)

// inside runs a command in a host's network namespace and another one to undo it. {peer}
// is the other host's inner address, {own} the host's.
func inside(do, undo string) func(*scene) {
	return func(s *scene) {
		h, peer := s.w.spaces[1], s.w.spaces[0]
		run := func(line string) {
			line = strings.NewReplacer("{peer}", peer.Inside, "{own}", h.Inside).Replace(line)
			out, err := exec.Command("ip", append([]string{"netns", "exec", h.Namespace}, strings.Fields(line)...)...).CombinedOutput()
			if err != nil {
				s.t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
		run(do)
		s.heal(func() { run(undo) })
	}
}

// spaceFaults are on hosts with OpenSSH in network namespaces.
var spaceFaults = []fault{
	{id: "openssh-link-down", space: true, where: "network", how: "the fabric's interface is taken down", do: inside("ip link set eth1 down", "ip link set eth1 up"), code: "fabric-down", exit: 1, hint: "cable"},
	{id: "openssh-mtu", space: true, where: "network", how: "one end of the fabric has a smaller MTU", do: inside("ip link set eth1 mtu 1400", "ip link set eth1 mtu 1500"), code: "fabric-mtu", exit: 1, hint: "MTU"},
	{id: "openssh-blackhole", space: true, where: "network", how: "the way to the peer is a black hole", do: inside("ip route add blackhole {peer}/32", "ip route del blackhole {peer}/32"), args: []string{"gate", "run", "D", "--yes"}, gate: "D", code: "edge-unreachable", exit: 1, hint: "routes",
		late: "gate A only notes that the kernel tells no way, the measurement fails"},
	{id: "openssh-wrong-way", space: true, where: "network", how: "the way to the peer leaves through another interface", do: inside("ip route add {peer}/32 dev eth0", "ip route del {peer}/32 dev eth0"), code: "fabric-route", exit: 1, hint: "ip route get"},
	{id: "openssh-address", space: true, where: "network", how: "the fabric's interface lost its address", do: inside("ip addr del {own}/24 dev eth1", "ip addr add {own}/24 dev eth1"), code: "fabric-address", exit: 1, hint: "fabric_address"},
	{id: "openssh-cut", space: true, where: "network", how: "packets to a host vanish", do: both(set("2s", "deploy", "limits", "connect"), func(s *scene) {
		s.w.spaces[1].Cut(s.t)
		s.heal(func() { s.w.spaces[1].Mend(s.t) })
	}), code: "step-failed", exit: 4, says: "connect"},
	{id: "openssh-key", space: true, where: "host key", how: "the pinned key is another host's", do: func(s *scene) {
		s.deploy("hosts", s.w.spaces[1].ID)["host_keys"] = []any{s.w.spaces[0].HostKey}
	}, code: "step-failed", exit: 8, says: "changed", hint: "operator"},
	{id: "openssh-user", space: true, where: "fleet file", how: "the user has no account on the host", do: func(s *scene) { s.deploy("hosts", s.w.spaces[1].ID)["user"] = "nobody-here" }, code: "step-failed", exit: 4, says: "not let in"},
	{id: "openssh-root", space: true, where: "file on host", how: "the user may not write the root's folder", do: func(s *scene) {
		h := s.deploy("hosts", s.w.spaces[1].ID)
		h["user"], h["root"] = netns.User, "/root/narwhal"
	}, code: "root-not-writable", exit: 1, hint: "root"},
}

// spaces drills the faults of hosts with OpenSSH.
func spaces(t *testing.T, l *ledger) {
	var todo []fault
	for _, f := range table() {
		if f.space && wanted(f) {
			todo = append(todo, f)
		}
	}
	if len(todo) == 0 {
		t.Skip("no fault is wanted")
	}
	bin, err := binary()
	must(t, err)
	dir := t.TempDir()
	w := &world{t: t, bin: bin, dir: dir, fleet: filepath.Join(dir, "fleet.json"), stages: map[string]string{"": filepath.Join(dir, "stage-0")}, spaces: netns.Up(t, 2)}
	must(t, os.MkdirAll(w.stages[""], 0o700))
	w.doc = text(t, spaceDocument(w.spaces))
	w.reach("", "A")
	for _, f := range todo {
		t.Run(f.id, func(t *testing.T) {
			w.t = t
			l.add(t, w.drill(f))
		})
	}
}

// spaceDocument is a fleet of one engine a host.
func spaceDocument(hosts []netns.HostInfo) object {
	entries, places := object{}, object{}
	var engines []any
	for i, iid := range []string{"p0", "d0"} {
		h := hosts[i].Fleet("root")
		entries[hosts[i].ID] = object{"address": h.Address, "port": h.Port, "user": h.User, "host_keys": h.HostKeys, "identity": h.Identity, "ssh_config": false,
			"root": filepath.Join(hosts[i].RootHome, "narwhal")}
		engines = append(engines, object{"iid": iid, "role": []string{"prefill", "decode"}[i], "url": "http://" + hosts[i].Inside + ":8100",
			"attestation_url": "http://" + hosts[i].Inside + ":8110/v1/attestation"})
		places[iid] = object{"host": hosts[i].ID, "ports": object{"side_channel": 5600}}
	}
	return object{
		"schema": "narwhal.fleet", "schema_version": 2, "model": "narwhal-sim", "engines": engines, "slo": object{"ttft_s": 2.0, "tpot_s": 0.2},
		"deploy": object{
			"name": "spaces", "hosts": entries, "engines": places, "defaults": object{"launch": "sim"},
			"launch": object{"sim": object{"kind": "simulated", "ready_within": "30s", "stop_within": "10s"}},
			"router": object{"host": hosts[0].ID, "listen": "127.0.0.1:8000"},
			"fabric": object{"interface": "eth1", "prompt_tokens": 64, "sample": "100ms", "streams": 1, "under_decode": false},
			"trial":  object{"rates": []any{20}, "requests": 20, "attainment": 0.5},
			"policy": object{"max_clock_offset": "10s", "min_disk_free": "16MiB"},
		},
	}
}
