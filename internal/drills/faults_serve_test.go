package drills

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// inject makes the simulated engine of a host play a failure.
func inject(host int, body string) func(*scene) {
	return func(s *scene) {
		post := func(body string) {
			resp, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/simulated/inject", s.hosts[host].Ports.Engine), "application/json", strings.NewReader(body))
			must(s.t, err)
			_ = resp.Body.Close()
			if resp.StatusCode/100 != 2 {
				s.t.Fatalf("inject %s: status %d", body, resp.StatusCode)
			}
		}
		post(body)
		s.heal(func() { post(`{"kind":"clear"}`) })
	}
}

// rerun lets the command mend what died, so that the gates before hold.
func rerun(stage string) func(*scene) {
	return func(s *scene) {
		if r := s.w.run(s.state, nil, "gate", "run", stage, "-f", s.w.fleet, "--yes"); r.exit != 0 {
			s.t.Fatalf("the fleet does not come back: exit %d: %s", r.exit, tail(r.err))
		}
	}
}

// onlyF and onlyG keep the live look from finding the fault before the gate does.
var (
	onlyF = []string{"gate", "run", "--only", "F", "--yes"}
	onlyG = []string{"gate", "run", "--only", "G", "--yes"}
)

var preflightFaults = []fault{
	{id: "kv-wrong", stage: "E", where: "process", how: "KV that arrives is another prompt's", do: inject(1, `{"kind":"wrong-block","count":-1}`), args: onlyF, code: "handoff-output", exit: 1, hint: "block size", quick: true},
	{id: "kv-read-fails", stage: "E", where: "process", how: "reading KV fails", do: inject(1, `{"kind":"read-failure","count":-1}`), args: onlyF, code: "step-failed", exit: 4, says: "500"},
	{id: "kv-no-handoff", stage: "E", where: "process", how: "the producer answers without a handoff", do: inject(0, `{"kind":"drop-handoff","count":-1}`), args: onlyF, code: "step-failed", exit: 4, says: "F/pair/e0/e1"},
	{id: "kv-corrupt", stage: "E", where: "process", how: "the handoff names another engine", do: inject(0, `{"kind":"corrupt-handoff","count":-1,"field":"remote_engine_id","value":"stranger"}`), args: onlyF, code: "step-failed", exit: 4, says: "F/pair/e0/e1"},
	{id: "kv-side-dead", stage: "E", where: "process", how: "the producer's side channel is dead for new peers", do: both(kill(1, "engine-e1"), rerun("E"), inject(0, `{"kind":"side-dead"}`)), args: onlyF, code: "step-failed", exit: 4, says: "F/pair/e0/e1"},
	{id: "preflight-busy", stage: "E", where: "process", how: "an engine answers 503", do: inject(1, `{"kind":"busy","count":-1}`), args: onlyF, code: "step-failed", exit: 1, says: "503"},
	{id: "preflight-500", stage: "E", where: "process", how: "an engine answers 500", do: inject(1, `{"kind":"status","count":-1,"status":500}`), args: onlyF, code: "step-failed", exit: 1, says: "500"},
	{id: "preflight-garbage", stage: "E", where: "process", how: "an engine answers 200 and garbage", do: inject(1, `{"kind":"garbage","count":-1}`), args: onlyF, code: "step-failed", exit: 1},
	{id: "preflight-eof", stage: "E", where: "process", how: "streams end without an end", do: inject(1, `{"kind":"eof","count":-1,"after":3}`), args: onlyF, code: "step-failed", exit: 4},
	{id: "preflight-error", stage: "E", where: "process", how: "streams end with an error event", do: inject(1, `{"kind":"error","count":-1,"after":3}`), args: onlyF, code: "step-failed", exit: 4},
	{id: "preflight-reset", stage: "E", where: "process", how: "connections break after three tokens", do: inject(1, `{"kind":"reset","count":-1,"after":3}`), args: onlyF, code: "step-failed", exit: 4},
	{id: "preflight-leg2", stage: "E", where: "process", how: "decoding after a handoff is refused", do: inject(1, `{"kind":"leg2-status","count":-1,"status":400}`), args: onlyF, code: "step-failed", exit: 4, says: "400"},
	{id: "restart-unattested", stage: "E", where: "process", how: "no sidecar speaks for an engine that is to be restarted", do: both(set(true, "deploy", "policy", "restart_drill"), kill(0, "sidecar-e0"), func(s *scene) { s.heal(func() { rerun("E")(s) }) }), args: onlyF, code: "restart-unattested", exit: 1, hint: "--again E"},
	{id: "preflight-floor-tpot", stage: "E", where: "fleet file", how: "no engine is as fast as the limit between tokens", do: set(0.0001, "slo", "tpot_s"), args: []string{"gate", "run", "F", "--yes"}, code: "slo-below-floor", exit: 1, hint: "slo.tpot_s"},
	{id: "preflight-floor-ttft", stage: "E", where: "fleet file", how: "no engine is as fast as the first token's limit", do: set(0.0001, "slo", "ttft_s"), args: []string{"gate", "run", "F", "--yes"}, code: "slo-below-floor", exit: 1, hint: "slo.ttft_s"},
}

var serveFaults = []fault{
	{id: "router-port", stage: "F", where: "port", how: "somebody holds the router's port", do: taken(portRouter, 0), code: "step-failed", exit: 4, says: "cannot listen", quick: true},
	{id: "trial-attainment", stage: "F", where: "fleet file", how: "more is offered than engines carry", do: set(object{"rates": []any{400}, "requests": 400, "attainment": 0.99, "max_input_tokens": 4000, "max_output_tokens": 64}, "deploy", "trial"), code: "attainment", exit: 1, hint: "rates"},
	{id: "trial-engines-busy", stage: "F", where: "process", how: "engines refuse during the trial", do: both(inject(0, `{"kind":"status","count":-1,"status":500}`), inject(1, `{"kind":"status","count":-1,"status":500}`)), args: onlyG, code: "attainment", exit: 1, hint: "engines"},
	{id: "trial-engines-cut", stage: "F", where: "process", how: "answers end in the middle during the trial", do: both(inject(0, `{"kind":"eof","count":-1,"after":2}`), inject(1, `{"kind":"eof","count":-1,"after":2}`)), args: onlyG, code: "attainment", exit: 1, hint: "engines"},
	{id: "trial-slow", stage: "F", where: "process", how: "engines became forty times slower", do: both(inject(0, `{"kind":"slow","factor":40}`), inject(1, `{"kind":"slow","factor":40}`)), args: onlyG, code: "attainment", exit: 1, hint: "engines"},
	{id: "router-disk", stage: "F", where: "file on host", how: "the disk of the router's host is full", do: func(s *scene) {
		must(s.t, os.RemoveAll(filepath.Join(s.hosts[0].Root, "router")))
		s.w.sbx.Server(0).FillAfter(100)
		s.heal(func() { s.w.sbx.Server(0).FillAfter(-1) })
	}, code: "step-failed", exit: 4, says: "bytes"},
	{id: "router-killed", stage: "G", where: "process", how: "the router is killed", do: kill(0, "router"), args: []string{"gate", "status", "--live"}, gate: "G", code: "stale", exit: 0, hint: "router"},
	{id: "router-frozen", stage: "G", where: "process", how: "the router hangs", do: freeze(0, "router"), args: []string{"gate", "status", "--live"}, gate: "G", code: "stale", exit: 0, hint: "does not answer"},
	{id: "router-replaced", stage: "G", where: "process", how: "the router is killed and another process takes its port", do: both(kill(0, "router"), taken(portRouter, 0)), args: []string{"gate", "run", "G", "--yes"}, gate: "G", code: "step-failed", exit: 4, says: "cannot listen"},
	{id: "served-engine-killed", stage: "G", where: "process", how: "an engine of a served fleet is killed", do: kill(1, "engine-e1"), args: []string{"gate", "status", "--live"}, gate: "C", code: "stale", exit: 0, hint: "engine-e1"},
	{id: "served-slo", stage: "G", where: "fleet file", how: "the limits changed after the trial", do: set(1.5, "slo", "ttft_s"), args: []string{"gate", "status"}, gate: "G", code: "stale", exit: 0, still: true, hint: "fleet file changed"},
	{id: "served-host-gone", stage: "G", where: "network", how: "a host of a served fleet is gone", do: func(s *scene) {
		s.w.sbx.Server(1).Refuse(true)
		s.heal(func() { s.w.sbx.Server(1).Refuse(false) })
	}, args: []string{"gate", "run", "--yes"}, gate: "A", code: "operation_failed", exit: 4, still: true},
	{id: "rollback-unknown", stage: "G", where: "command line", how: "a rollback to no gate", do: nothing, args: []string{"gate", "rollback", "--to", "Z", "--yes"}, gate: "Rollback", code: "unknown_gate", exit: 2, hint: "A to G", still: true},
	{id: "rollback-unapproved", stage: "G", where: "command line", how: "nobody approved the rollback", do: nothing, args: []string{"gate", "rollback", "--to", "C"}, gate: "Rollback", code: "approval_missing", exit: 6, hint: "--dry-run", still: true},
	{id: "rollback-leased", stage: "G", where: "network", how: "another operator holds the lease", do: func(s *scene) {
		put(s, "somebody\n99999999999\nana@desk pid 7\n", s.hosts[0].Root, "lease")
		s.heal(func() { _ = os.Remove(filepath.Join(s.hosts[0].Root, "lease")) })
	}, args: []string{"gate", "rollback", "--to", "C", "--yes"}, gate: "Rollback", code: "fleet_leased", exit: 5, hint: "expires", still: true},
	{id: "rollback-host-gone", stage: "G", where: "network", how: "a host is gone during a rollback", do: func(s *scene) {
		s.w.sbx.Server(1).Refuse(true)
		s.w.sbx.Server(1).Drop()
		s.heal(func() { s.w.sbx.Server(1).Refuse(false) })
	}, args: []string{"gate", "rollback", "--to", "C", "--yes"}, gate: "Rollback", code: "residue", exit: 7, hint: "same rollback again"},
	{id: "rollback-owner-record", stage: "G", where: "file on host", how: "the record of a process that a rollback ends is damaged", do: func(s *scene) {
		s.file(filepath.Join(s.hosts[1].Root, "run", "sidecar-e1.json"), `{"name":"side`, 0o600)
	}, args: []string{"gate", "rollback", "--to", "C", "--yes"}, gate: "Rollback", code: "owner_unknown", exit: 6, hint: "ss -ltnp", still: true},
	{id: "rollback-owner-port", stage: "G", where: "port", how: "the router is gone and somebody else listens where it did", do: both(kill(0, "router"), taken(portRouter, 0)), args: []string{"gate", "rollback", "--to", "F", "--yes"}, gate: "Rollback", code: "owner_unknown", exit: 6, hint: "ss -ltnp"},
	{id: "rollback-engine-lost", stage: "G", where: "process", how: "an engine that the rollback keeps is dead and its port is taken", do: both(kill(1, "engine-e1"), taken(portEngine, 1)), args: []string{"gate", "rollback", "--to", "C", "--yes"}, gate: "Rollback", code: "process-differs", exit: 7, hint: "gate log"},
	{id: "rollback-files", stage: "G", where: "file on host", how: "a role file that the rollback keeps was changed, and the disk is full", do: func(s *scene) {
		put(s, "{}", s.hosts[1].Root, "etc", "host.json")
		s.w.sbx.Server(1).FillAfter(0)
		s.heal(func() { s.w.sbx.Server(1).FillAfter(-1) })
	}, args: []string{"gate", "rollback", "--to", "C", "--yes"}, gate: "Rollback", code: "file-differs", exit: 7, hint: "gate log"},
	{id: "bundle-host-gone", stage: "G", where: "network", how: "a host is gone while a bundle is collected", do: func(s *scene) {
		s.w.sbx.Server(1).Refuse(true)
		s.heal(func() { s.w.sbx.Server(1).Refuse(false) })
	}, args: []string{"bundle", "collect", "-o", "{dir}/gone.tar.gz"}, gate: "Bundle", code: "bundle_incomplete", exit: 3, still: true},
	{id: "bundle-unwritable", stage: "G", where: "workstation", how: "the bundle's folder is not there", do: nothing, args: []string{"bundle", "collect", "-o", "/no/such/x.tar.gz"}, gate: "Bundle", code: "bundle_unwritable", exit: 4, hint: "-o", still: true},
}
