package drills

import (
	"os"
	"strings"
)

// iperf is what iperf3 prints of a run that went well, as far as gate D reads it.
const iperf = `{"start":{"version":"iperf 3.12","test_start":{"protocol":"TCP"}},"end":{"sum_sent":{"retransmits":0},"sum_received":{"seconds":1,"bytes":1250000000,"bits_per_second":10000000000}}}`

// tester makes gate D ask iperf3 too; the client of host-1 answers with the script.
func tester(script string) func(*scene) {
	return both(set("iperf3", "deploy", "fabric", "tool"), tool(0, "iperf3", script), tool(1, "iperf3", script))
}

// client answers where iperf3 is the client; the server is the real one.
func client(text string) func(*scene) {
	return tester(`case " $* " in *" --server "*) exec /usr/bin/iperf3 "$@";; esac
cat <<'EOF'
` + text + `
EOF`)
}

var fabricFaults = []fault{
	{id: "fabric-port", stage: "C", where: "port", how: "somebody holds the tester's port", do: taken(portFabric, 1), code: "edge-unreachable", exit: 1, hint: "firewall"},
	{id: "fabric-floor", stage: "C", where: "fleet file", how: "the floor is above what the link carries", do: set(900000, "deploy", "fabric", "min_gbps"), code: "edge-slow", exit: 1, hint: "deploy.fabric", quick: true},
	{id: "fabric-payload", stage: "C", where: "fleet file", how: "the budget is above what the link carries", do: both(set(1000000, "deploy", "fabric", "prompt_tokens"), set(100000, "deploy", "fabric", "handoffs_per_s")), code: "edge-slow", exit: 1, hint: "deploy.fabric"},
	{id: "iperf-slow", stage: "C", where: "host tool output", how: "iperf3 measures a hundredth of the floor", do: both(set(1, "deploy", "fabric", "min_gbps"), client(strings.NewReplacer("1250000000", "1250000", "10000000000", "10000000").Replace(iperf))), code: "tool-slow", exit: 1},
	{id: "iperf-cut", stage: "C", where: "host tool output", how: "the output of iperf3 ends in the middle", do: client(iperf[:len(iperf)/2]), code: "step-failed", exit: 4, says: "iperf3"},
	{id: "iperf-refused", stage: "C", where: "host tool output", how: "iperf3 tells an error and succeeds", do: client(`{"error":"unable to connect to server: Connection refused"}`), code: "step-failed", exit: 4, says: "Connection refused"},
	{id: "iperf-plain", stage: "C", where: "host tool output", how: "iperf3 prints its table in place of JSON", do: client("[ ID] Intervall  Übertragung  Bitrate\n[  5] 0,00-1,00 sek 1,10 GByte 9,45 Gbit/s"), code: "step-failed", exit: 4, says: "iperf3"},
	{id: "iperf-impossible", stage: "C", where: "host tool output", how: "iperf3 tells a rate that no link has", do: client(strings.NewReplacer("1250000000", "1250000000000000000", "10000000000", "10000000000000000000").Replace(iperf)), code: "step-failed", exit: 4, says: "iperf3"},
	{id: "iperf-contradiction", stage: "C", where: "host tool output", how: "the rate is not the bytes in the seconds", do: client(strings.Replace(iperf, `"bits_per_second":10000000000`, `"bits_per_second":99000000000`, 1)), code: "step-failed", exit: 4, says: "rate"},
	{id: "iperf-udp", stage: "C", where: "host tool output", how: "iperf3 measured UDP", do: client(strings.Replace(iperf, "TCP", "UDP", 1)), code: "step-failed", exit: 4, says: "protocol"},
	{id: "iperf-flood", stage: "C", where: "host tool output", how: "iperf3 prints 100 MB", do: tester(`case " $* " in *" --server "*) exec /usr/bin/iperf3 "$@";; esac; head -c 100000000 /dev/zero | tr '\0' '['`), code: "step-failed", exit: 4},
	{id: "iperf-hostile", stage: "C", where: "host tool output", how: "iperf3 prints terminal sequences", do: client("\033[2J\033]0;owned\007" + iperf), code: "step-failed", exit: 4, says: "iperf3"},
	{id: "iperf-absent", stage: "C", where: "file on host", how: "iperf3 is not installed", do: both(set("iperf3", "deploy", "fabric", "tool"), tool(0, "iperf3", "exit 127"), tool(1, "iperf3", "exit 127")), code: "step-failed", exit: 4},
	{id: "ucx-absent", stage: "C", where: "file on host", how: "ucx_perftest is not installed", do: set("ucx", "deploy", "fabric", "transport"), code: "step-failed", exit: 4, says: "ucx_perftest"},
	{id: "ucx-cut", stage: "C", where: "host tool output", how: "ucx_perftest prints its header and no result", do: both(set("ucx", "deploy", "fabric", "transport"), perftest("ucx_perftest", "+--------------+\\n| bandwidth |\\n")), code: "step-failed", exit: 4, says: "ucx_perftest"},
	{id: "rdma-tool-absent", stage: "C", where: "file on host", how: "ib_write_bw is not installed", do: both(set("rdma", "deploy", "fabric", "transport"), set("mlx5_0:1", "deploy", "fabric", "device")), code: "step-failed", exit: 4, says: "ib_write_bw"},
	{id: "rdma-tool-words", stage: "C", where: "host tool output", how: "ib_write_bw complains and succeeds", do: both(set("rdma", "deploy", "fabric", "transport"), set("mlx5_0:1", "deploy", "fabric", "device"), perftest("ib_write_bw", "IB device mlx5_0 not found\\n"), perftest("ib_read_bw", "IB device mlx5_0 not found\\n")), code: "step-failed", exit: 4, says: "ib_"},
	{id: "fabric-engine-died", stage: "C", where: "process", how: "an engine dies and its port is taken before gate D", do: both(kill(1, "engine-e1"), taken(portEngine, 1)), code: "port-taken", exit: 1, gate: "C", args: []string{"gate", "run", "D", "--yes"}},
}

func perftest(name, text string) func(*scene) {
	return both(tool(0, name, `printf '`+text+`'`), tool(1, name, `printf '`+text+`'`))
}

// attestFaults are between a measured fabric and engines that attest.
var attestFaults = []fault{
	{id: "sidecar-port", stage: "D", where: "port", how: "somebody holds the sidecar's port", do: taken(portSidecar, 1), code: "step-failed", exit: 4, says: "cannot listen", quick: true},
	{id: "sidecar-no-url", stage: "D", where: "fleet file", how: "an engine has no address for its sidecar", do: edit(func(d object) { delete(engine(d, 1), "attestation_url") }), code: "sidecar-address", exit: 1, hint: "attestation_url"},
	{id: "sidecar-url-odd", stage: "D", where: "fleet file", how: "the sidecar's address has no port", do: edit(func(d object) { engine(d, 1)["attestation_url"] = "http://127.0.0.1/v1/attestation" }), code: "sidecar-address", exit: 1, hint: "attestation_url"},
	{id: "sidecar-key-foreign", stage: "D", where: "key", how: "the sidecar signs with another host's key", do: func(s *scene) {
		b, err := os.ReadFile(s.hosts[0].Root + "/etc/sidecar.key")
		must(s.t, err)
		s.file(s.hosts[1].Root+"/etc/sidecar.key", string(b), 0o600)
	}, args: []string{"gate", "run", "--only", "E", "--yes"}, code: "statement-unknown-key", exit: 1, hint: "again"},
	{id: "sidecar-key-garbage", stage: "D", where: "key", how: "the sidecar's key is no key", do: func(s *scene) { s.file(s.hosts[1].Root+"/etc/sidecar.key", "no key", 0o600) }, args: []string{"gate", "run", "--only", "E", "--yes"}, code: "statement-unknown-key", exit: 1, hint: "again"},
	{id: "attest-engine-killed", stage: "D", where: "process", how: "an engine is gone when it is asked", do: kill(1, "engine-e1"), args: []string{"gate", "run", "--only", "E", "--yes"}, code: "step-failed", exit: 4, says: "does not run"},
	{id: "attest-engine-frozen", stage: "D", where: "process", how: "an engine hangs when it is asked", do: freeze(1, "engine-e1"), args: []string{"gate", "run", "--only", "E", "--yes"}, code: "step-failed", exit: 4},
	{id: "sidecar-killed", stage: "E", where: "process", how: "a sidecar is killed", do: kill(1, "sidecar-e1"), args: []string{"gate", "status", "--live"}, gate: "E", code: "stale", exit: 0, hint: "sidecar-e1"},
	{id: "sidecar-spoofed", stage: "E", where: "process", how: "a sidecar is killed and another process takes its port", do: both(kill(1, "sidecar-e1"), taken(portSidecar, 1)), args: []string{"gate", "run", "E", "--yes"}, gate: "E", code: "step-failed", exit: 4, says: "cannot listen"},
	{id: "attest-engine-swapped", stage: "E", where: "process", how: "an engine is killed after it attested", do: kill(1, "engine-e1"), args: []string{"gate", "status", "--live"}, gate: "E", code: "stale", exit: 0, hint: "engine-e1"},
}
