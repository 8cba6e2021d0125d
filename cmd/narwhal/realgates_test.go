//go:build realengines

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/fleet/remote/netns"
	"github.com/narwhal-fleet/narwhal/gates/fabric"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/gates/serve"
	"github.com/narwhal-fleet/narwhal/internal/realengines"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// TestRealGates takes a pair of real engines, one a host, through all gates, asks them through
// the tunnel, and goes back. On two busy cores it takes ten minutes.
func TestRealGates(t *testing.T) {
	hosts := netns.Up(t, 2)
	shapeLinks(t, hosts[:2])
	w := realWorld(t, hosts)
	for _, g := range []string{"A", "B", "C", "D", "E", "F", "G"} {
		begin := time.Now()
		r := w.long("gate", "run", g, "-f", w.fleet, "--yes", "--format", "json")
		t.Logf("gate %s took %s\n%s", g, time.Since(begin).Round(time.Second), tail(r.err))
		for more := 0; more < 2 && repeats(g, r); more++ {
			t.Logf("gate %s is repeated:\n%s", g, tail(r.err))
			args := []string{"gate", "run", g, "-f", w.fleet, "--yes", "--format", "json"}
			if r.code == 1 {
				args = append(args, "--again", g)
			}
			r = w.long(args...)
		}
		if r.code != 0 {
			engineLogs(t, hosts)
			t.Fatalf("gate %s: exit %d\n%s", g, r.code, tail(r.err))
		}
	}
	status := w.must(0, w.run("gate", "status", "-f", w.fleet, "--live", "--format", "json"))
	if got := w.reply(status).states(); got != allPassed {
		t.Errorf("gates are %s", got)
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	measured(t, w)
	t.Run("through the tunnel", func(t *testing.T) { sameThroughTunnel(t, w, hosts) })
	back := w.reply(w.must(0, w.long("gate", "rollback", "--to", "B", "-f", w.fleet, "--yes", "--format", "json")))
	for _, name := range []string{"router", "sidecar-p0", "engine-p0", "engine-d0"} {
		if !slices.ContainsFunc(back.Data.Stopped, func(s string) bool { return strings.Contains(s, name) }) {
			t.Errorf("%s is not among the stopped %v", name, back.Data.Stopped)
		}
	}
	for _, h := range hosts[:2] {
		out, err := exec.Command("ip", "netns", "pids", h.Namespace).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(out)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(line), "vllm") {
				t.Errorf("%s still runs process %s: %q", h.ID, pid, line)
			}
		}
	}
}

// repeats tells what a machine that was too busy explains, whose hints say to run it again: a
// measurement that failed, or a connection that was lost, also under a trial.
func repeats(gate string, r ran) bool {
	return r.code == 4 || r.code == 1 && (gate == "D" || gate == "F" || strings.Contains(r.err, "trial-tunnel"))
}

// long runs narwhal to its end, which real engines keep waiting for.
func (w *world) long(args ...string) ran {
	w.t.Helper()
	return finishWithin(w.t, w.command(args...), 25*time.Minute)
}

// realWorld is the fleet of two hosts with real engines. The limits are those of two cores that
// both engines, the router and this test share.
func realWorld(t *testing.T, hosts []netns.HostInfo) *world {
	launch := realengines.Launch(t, "eth1")
	w := sshWorld(t, hosts, "real", func(h netns.HostInfo) (fleet.Host, string) { return h.Fleet("root"), h.RootHome }, nil)
	w.rewrite(func(doc map[string]any) {
		doc["model"], doc["engine_contract"] = realengines.Model, realengines.Contract()
		doc["slo"] = map[string]any{"ttft_s": 10.0, "tpot_s": 1.0}
		delete(doc, "profiles") // the limits that hold for every fleet
		doc["engine"] = map[string]any{"chars_per_token": 1.0, "first_token_timeout_s": 45.0, "decode_read_timeout_s": 45.0, "health_timeout_s": 20.0, "tokenize_timeout_s": 10.0}
		doc["serving"] = map[string]any{"prefill_timeout_s": 120.0}
		d := doc["deploy"].(map[string]any)
		d["defaults"], d["launch"] = map[string]any{"launch": "cpu"}, map[string]any{"cpu": launch}
		for _, place := range d["engines"].(map[string]any) {
			delete(place.(map[string]any), "ports")
		}
		d["fabric"] = map[string]any{"interface": "eth1", "prompt_tokens": 512, "sample": "2s"}
		d["profile"] = map[string]any{"prefill_tokens": []any{128, 512, 1024, 1536}, "decode_requests": []any{1, 4, 8}, "decode_tokens": []any{128, 768},
			"output_tokens": 64, "pair_tokens": 200, "budget": "2m", "uncertainty": 1.0}
		d["trial"] = map[string]any{"rates": []any{0.5}, "requests": 20, "attainment": 0.8, "max_input_tokens": 400, "max_output_tokens": 8}
	})
	return w
}

// shapeLinks gives the inner links the rate of a network. Two hosts of one machine would else fill
// them with what its processors copy, and leave the engines none.
func shapeLinks(t *testing.T, hosts []netns.HostInfo) {
	t.Helper()
	for _, h := range hosts {
		cmd := exec.Command("ip", "netns", "exec", h.Namespace, "tc", "qdisc", "replace", "dev", "eth1", "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "25ms")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("shape the link of %s: %v: %s", h.ID, err, out)
		}
	}
}

// engineLogs shows the ends of what the engines wrote.
func engineLogs(t *testing.T, hosts []netns.HostInfo) {
	t.Helper()
	for _, h := range hosts {
		logs, _ := filepath.Glob(filepath.Join(h.RootHome, "narwhal", "run", "engine-*.log"))
		for _, path := range logs {
			b, _ := os.ReadFile(path)
			t.Logf("%s: %s\n%s", h.ID, filepath.Base(path), tail(string(b)))
		}
	}
}

// snapshot reads the record of the fleet's newest run.
func (w *world) snapshot(fleet string) *record.Snapshot {
	w.t.Helper()
	dir, err := record.Resolve(w.state, fleet, "latest")
	if err != nil {
		w.t.Fatal(err)
	}
	snap, err := record.Read(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return snap
}

// measured logs the notes and figures of the run, and wants to be told how well each curve is known.
func measured(t *testing.T, w *world) {
	t.Helper()
	snap := w.snapshot("real")
	var known []string
	for letter, g := range snap.State.Gates {
		for _, f := range g.Findings {
			t.Logf("note of gate %s: %s: %s", letter, f.Code, f.Message)
			if strings.Contains(f.Got, "known to ±") {
				known = append(known, f.Engine)
			}
		}
	}
	u := evidenceOf[fabric.UnderDecode](t, snap, "D/decode/alpha-1/alpha-2")
	t.Logf("link while engines decode: %.2g Gbit/s there, %.2g back; %.2g and %.2g without", u.Forward.Busy, u.Back.Busy, u.Forward.Quiet, u.Back.Quiet)
	for _, d := range u.Engines {
		t.Logf("engine %s: %.3g s a token on the idle link, %.3g s on the full one", d.IID, d.Quiet, d.Busy)
	}
	for _, iid := range []string{"p0", "d0"} {
		m := evidenceOf[preflight.Profiled](t, snap, preflight.ProfileKey(iid))
		t.Logf("profile of %s: %d samples of decode in %d rounds and %d ms, ended by %s", iid, len(m.Samples.Decode), m.Rounds, m.TookMS, m.Ended)
		if m.Ended != "settled" && !slices.Contains(known, iid) {
			t.Errorf("nothing says how well the curve of %s is known", iid)
		}
	}
	for _, pair := range []record.Key{"F/pair/p0/d0", "F/pair/d0/p0"} {
		h := evidenceOf[preflight.Handed](t, snap, pair)
		t.Logf("%s: %.0f of %d tokens by transfer; %.0f ms to prefill, %.0f to the first token, %.0f to the end", pair, h.Moved, h.Prompt, h.PrefillMS, h.FirstMS, h.DecodeMS)
	}
	for _, c := range evidenceOf[serve.Acceptance](t, snap, "G/acceptance").Rates {
		times, _ := json.Marshal(map[string]any{"ttft_ms": c.TTFT, "tpot_ms": c.TPOT})
		t.Logf("trial at %g/s: %d of %d within the SLO; %s", c.Rate, c.Qualified, c.Offered, times)
	}
}

// sameThroughTunnel asks the router for what an engine answers alone.
func sameThroughTunnel(t *testing.T, w *world, hosts []netns.HostInfo) {
	url, end := realTunnel(t, w)
	defer end()
	p, d := overSSH(t, hosts[0]), overSSH(t, hosts[1])
	before := transferred(t, d)
	const requests, length = 4, 300
	for i := range requests {
		ids := make([]int, length)
		for k := range ids {
			ids[k] = 300 + (i*7919+k*104729)%1700
		}
		want, err := p.Complete(t.Context(), engine.CompletionRequest{Model: realengines.Model, PromptIDs: ids, MaxTokens: 16, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		body, _ := json.Marshal(map[string]any{"model": realengines.Model, "prompt": ids, "max_tokens": 16, "temperature": 0, "ignore_eos": true, "return_token_ids": true})
		resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Choices []struct {
				Tokens []int `json:"token_ids"`
			}
		}
		err = json.NewDecoder(resp.Body).Decode(&got)
		_ = resp.Body.Close()
		if err != nil || len(got.Choices) != 1 || !slices.Equal(got.Choices[0].Tokens, want.TokenIDs) || len(want.TokenIDs) != 16 {
			t.Errorf("through the tunnel: %d %v %+v, the engine alone says %v", resp.StatusCode, err, got.Choices, want.TokenIDs)
		}
	}
	if moved := transferred(t, d) - before; moved < requests*length/2 {
		t.Errorf("%.0f tokens of %d prompts of %d came by transfer", moved, requests, length)
	}
}

// realTunnel opens the tunnel to the router.
func realTunnel(t *testing.T, w *world) (url string, end func()) {
	t.Helper()
	cmd := w.command("tunnel", "-f", w.fleet)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the tunnel ends with %v", err)
		}
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		end()
		t.Fatal("the tunnel ended")
	}
	return strings.TrimPrefix(lines.Text(), "router "), end
}

// overSSH is a client of an engine by way of its host's SSH.
func overSSH(t *testing.T, h netns.HostInfo) *engine.Client {
	t.Helper()
	f := fleet.Fleet{Deploy: &fleet.Deploy{Hosts: map[string]fleet.Host{h.ID: h.Fleet("root")}}}
	cfg, err := remote.FromFleet(f, h.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	host, err := remote.Open(ctx, cfg, remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := engine.NewClient(fmt.Sprintf("http://%s:8100", h.Inside), engine.Options{Transport: &http.Transport{DialContext: host.Dial}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); _ = host.Close() })
	return c
}

// transferred counts the prompt tokens that an engine got from its peers.
func transferred(t *testing.T, c *engine.Client) float64 {
	t.Helper()
	m, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := vllm.New().State(m)
	if err != nil {
		t.Fatal(err)
	}
	return s.Transferred
}
