package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote/netns"
)

// TestOpenSSH takes a fleet through its gates on hosts with a real OpenSSH server in
// network namespaces of their own: as root, and as an ordinary user behind a jump host.
func TestOpenSSH(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	hosts := netns.Up(t, 2)
	gate := hosts[2]
	t.Run("root", func(t *testing.T) {
		w := sshWorld(t, hosts, "rooted", func(h netns.HostInfo) (fleet.Host, string) { return h.Fleet("root"), h.RootHome }, nil)
		w.rewrite(func(doc map[string]any) { // a standby on the other host reaches the router there
			r := doc["deploy"].(map[string]any)["router"].(map[string]any)
			r["listen"], r["standby"] = hosts[0].Inside+":8000", map[string]any{"host": hosts[1].ID}
			r["lease"] = map[string]any{"path": filepath.Join(w.dir, "lease.json")}
		})
		if back := pipelineOverSSH(t, w, hosts); !slices.Contains(back.Data.Stopped, "standby") {
			t.Errorf("the standby is not among the stopped %v", back.Data.Stopped)
		}
	})
	t.Run("ordinary user behind a jump host", func(t *testing.T) {
		jump := gate.Fleet(netns.User)
		w := sshWorld(t, hosts, "jumped", func(h netns.HostInfo) (fleet.Host, string) { return h.Behind(netns.GateID, netns.User), h.UserHome }, &jump)
		pipelineOverSSH(t, w, hosts)
	})
}

// pipelineOverSSH runs, is killed, loses a host, goes on, repeats nothing, goes back.
func pipelineOverSSH(t *testing.T, w *world, hosts []netns.HostInfo) reply {
	w.env = []string{"NARWHAL_CRASH_AFTER=25"}
	if r := w.gates(); r.code != -1 {
		t.Fatalf("exit %d, want a killed process\n%s", r.code, tail(r.err))
	}
	w.env = nil
	hosts[1].Cut(t)
	gone := w.gates()
	hosts[1].Mend(t)
	if jumped := strings.Contains(w.fleet, "jumped"); gone.code != 4 && !jumped {
		t.Errorf("with a host cut off: exit %d, want 4\n%s", gone.code, tail(gone.err))
	}
	if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	if r := w.must(0, w.run("gate", "run", "-f", w.fleet, "--yes")); !strings.Contains(r.out, "nothing to do") {
		t.Errorf("the second run says %s", tail(r.out))
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	back := w.reply(w.must(0, w.run("gate", "rollback", "--to", "B", "-f", w.fleet, "--yes", "--format", "json")))
	if len(back.Data.Residue) != 0 {
		t.Errorf("left behind: %v", back.Data.Residue)
	}
	for _, name := range []string{"router", "sidecar-p0", "engine-p0", "engine-d0"} {
		if !strings.Contains(strings.Join(back.Data.Stopped, " "), name) {
			t.Errorf("%s is not among the stopped %v", name, back.Data.Stopped)
		}
	}
	return back
}

// sshWorld writes a fleet file for two hosts. Engines listen on the inner network, which
// the test's side cannot reach: everything must go through SSH.
func sshWorld(t *testing.T, hosts []netns.HostInfo, name string, reach func(netns.HostInfo) (fleet.Host, string), jump *fleet.Host) *world {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{t: t, bin: bin, dir: dir, state: filepath.Join(dir, "state"), fleet: filepath.Join(dir, name+".json")}
	entries, places := map[string]any{}, map[string]any{}
	var engines []any
	for i, iid := range []string{"p0", "d0"} {
		h, home := reach(hosts[i])
		h.Root = filepath.Join(home, "narwhal")
		entries[hosts[i].ID] = hostEntry(h)
		role := []string{"prefill", "decode"}[i]
		engines = append(engines, map[string]any{"iid": iid, "role": role, "url": fmt.Sprintf("http://%s:8100", hosts[i].Inside),
			"attestation_url": fmt.Sprintf("http://%s:8110/v1/attestation", hosts[i].Inside)})
		places[iid] = map[string]any{"host": hosts[i].ID, "ports": map[string]any{"side_channel": 5600}}
	}
	if jump != nil {
		entries[netns.GateID] = hostEntry(*jump)
	}
	doc := map[string]any{
		"schema": "narwhal.fleet", "schema_version": 2, "model": "narwhal-sim", "engines": engines,
		"slo":      map[string]any{"ttft_s": 2.0, "tpot_s": 0.2},
		"profiles": map[string]any{"max_decode_fit_mape": 0.9, "max_decode_cv_mape": 3}, "engine": map[string]any{"tokenize": false, "chars_per_token": 4.0},
		"controller": map[string]any{"reactive": map[string]any{"movement_margin": 0.9}},
		"deploy": map[string]any{
			"name": name, "hosts": entries, "engines": places, "defaults": map[string]any{"launch": "sim"},
			"launch": map[string]any{"sim": map[string]any{"kind": "simulated", "ready_within": "30s", "stop_within": "10s"}},
			"router": map[string]any{"host": hosts[0].ID, "listen": "127.0.0.1:8000"},
			"fabric": map[string]any{"interface": "eth1", "prompt_tokens": 64, "sample": "100ms", "streams": 1, "under_decode": false},
			"profile": map[string]any{"prefill_tokens": []any{512, 1024, 2048}, "prefill_repeats": 3, "decode_requests": []any{1, 6},
				"decode_tokens": []any{64, 512}, "output_tokens": 8, "pair_tokens": 64, "budget": "500ms"},
			"trial":  map[string]any{"rates": []any{20}, "requests": 20, "attainment": 0.5, "max_input_tokens": 400, "max_output_tokens": 8},
			"policy": map[string]any{"max_clock_offset": "10s", "min_disk_free": "16MiB"},
		},
	}
	b, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.fleet, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func hostEntry(h fleet.Host) map[string]any {
	e := map[string]any{"address": h.Address, "port": h.Port, "user": h.User, "host_keys": h.HostKeys, "identity": h.Identity, "ssh_config": false}
	if h.Jump != "" {
		e["jump"] = h.Jump
	}
	if h.Root != "" {
		e["root"] = h.Root
	}
	return e
}
