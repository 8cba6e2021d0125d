package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// identities are the processes of a world that run, by name.
func (w *world) identities() map[string]string {
	out := map[string]string{}
	for _, h := range w.sbx.Hosts {
		for _, r := range process.List(filepath.Join(h.Root, "run")) {
			if r.Alive() {
				out[r.Name] = r.Identity.String()
			}
		}
	}
	return out
}

// onlyChanged wants these processes to be other ones than before, and no more.
func (w *world) onlyChanged(t *testing.T, before map[string]string, want ...string) {
	t.Helper()
	if got := changed(before, w.identities()); !slices.Equal(got, want) {
		t.Errorf("other processes: %v", got)
	}
}

// changed are the names whose process is another one.
func changed(before, after map[string]string) (out []string) {
	for name, id := range before {
		if after[name] != id {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// steady streams from the router until stop, and counts what was refused or broken.
type steady struct {
	whole, refused, broken atomic.Int64
	last                   atomic.Value
}

func (s *steady) run(ctx context.Context, addr string) {
	for ctx.Err() == nil {
		resp, err := http.Post("http://"+addr+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a whale","max_tokens":90,"ignore_eos":true,"stream":true}`))
		if err != nil {
			s.refused.Add(1)
			s.last.Store(err.Error())
			continue
		}
		if resp.StatusCode != http.StatusOK {
			b, _ := io.ReadAll(resp.Body)
			s.refused.Add(1)
			s.last.Store(string(b))
		} else if last, fault := read(resp.Body); fault != nil || last != "data: [DONE]" {
			s.broken.Add(1)
			s.last.Store(last)
		} else {
			s.whole.Add(1)
		}
		_ = resp.Body.Close()
	}
}

// under runs do while streams are open, none of which may break or be refused.
func (w *world) under(t *testing.T, do func()) {
	t.Helper()
	s := &steady{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx, w.router()) }()
	await(t, "a stream to end", func() bool { return s.whole.Load() > 0 })
	do()
	cancel()
	<-done
	if s.refused.Load() > 0 || s.broken.Load() > 0 {
		t.Errorf("%d streams whole, %d refused, %d broken, the last: %v", s.whole.Load(), s.refused.Load(), s.broken.Load(), s.last.Load())
	}
}

func (w *world) router() string { return fmt.Sprintf("127.0.0.1:%d", w.sbx.Hosts[0].Ports.Router) }

func (w *world) replace(args ...string) ran {
	w.t.Helper()
	return w.run(append([]string{"gate", "replace", "-f", w.fleet, "--format", "json"}, args...)...)
}

// relaunch gives an engine another launch in the fleet file, or the former one.
func (w *world) relaunch(engine string, seed float64) {
	w.rewrite(func(doc map[string]any) {
		d := doc["deploy"].(map[string]any)
		launch, place := d["launch"].(map[string]any), d["engines"].(map[string]any)[engine].(map[string]any)
		delete(place, "launch")
		if seed == 0 {
			delete(launch, "other")
			return
		}
		b, _ := json.Marshal(launch["simulated"])
		var other map[string]any
		_ = json.Unmarshal(b, &other)
		other["simulated"].(map[string]any)["decode_d_s"] = seed
		launch["other"], place["launch"] = other, "other"
	})
}

// engineDoc is the router's word of an engine.
func (w *world) engineDoc(t *testing.T, engine string) (state string, draining bool) {
	t.Helper()
	e := w.lifecycle(t)[engine]
	return e.State, e.Draining
}

// residents are the requests of an engine.
func (w *world) residents(t *testing.T, engine string) int {
	t.Helper()
	e := w.lifecycle(t)[engine]
	return e.Resident.Prefill + e.Resident.Decode
}

type engineLife struct {
	State    string
	Draining bool
	Resident struct{ Prefill, Decode int }
}

func (w *world) lifecycle(t *testing.T) map[string]engineLife {
	t.Helper()
	resp, err := http.Get("http://" + w.router() + "/narwhal/lifecycle")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var d struct{ Engines map[string]engineLife }
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d.Engines
}

func (w *world) digest(t *testing.T, key record.Key) string {
	t.Helper()
	e, ok := w.latest().State.Evidence(key)
	if !ok || e.Stale {
		t.Fatalf("no fresh %s", key)
	}
	return e.Ref.SHA256
}

// settled wants every gate to hold without another step, and the record to verify.
func (w *world) settled(t *testing.T) {
	t.Helper()
	if r := w.must(0, w.run("gate", "run", "-f", w.fleet, "--yes")); !strings.Contains(r.out, "nothing to do") {
		t.Errorf("the next run says %s", tail(r.out))
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
}

// TestReplace replaces engines of a serving fleet under open streams.
func TestReplace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, nil)
	first := w.replace("e3", "--yes")
	if r := w.reply(w.must(6, first)); len(r.Errors) != 1 || r.Errors[0].Code != "fleet_not_serving" {
		t.Errorf("before the first run: %+v", r.Errors)
	}
	w.must(0, w.gates())
	t.Run("refusals", func(t *testing.T) { refusedReplacements(t, w) })
	profile := w.digest(t, "F/profile/e3")
	t.Run("the same launch", func(t *testing.T) {
		before, seq := w.identities(), w.latest().Seq
		w.under(t, func() { w.must(0, w.replace("e3", "--yes")) })
		w.onlyChanged(t, before, "engine-e3", "sidecar-e3")
		for _, k := range made(t, w.latest(), seq) {
			if strings.Contains(k, "profile") || k == "G/trial" || k == "G/activation" || strings.HasPrefix(k, "C/") && !strings.HasSuffix(k, "/e3") {
				t.Errorf("%s was made again", k)
			}
		}
		w.settled(t)
	})
	t.Run("another launch", func(t *testing.T) {
		before, seq := w.identities(), w.latest().Seq
		w.relaunch("e3", 0.01)
		w.under(t, func() { w.must(0, w.replace("e3", "--yes")) })
		w.onlyChanged(t, before, "engine-e3", "sidecar-e3")
		keys := made(t, w.latest(), seq)
		if !slices.Contains(keys, "G/activation") || !slices.Contains(keys, "F/profile/e3") || slices.Contains(keys, "F/profile/e2") || slices.Contains(keys, "G/trial") {
			t.Errorf("made %v", keys)
		}
		b, err := os.ReadFile(filepath.Join(w.sbx.Hosts[0].Root, "router", "profiles.json"))
		if err != nil || sumOf(b) != w.digest(t, "F/store") {
			t.Errorf("the router has other profiles: %v", err)
		}
		w.settled(t)
	})
	t.Run("back to the launch before", func(t *testing.T) {
		before, seq := w.identities(), w.latest().Seq
		w.relaunch("e3", 0)
		w.under(t, func() { w.must(0, w.replace("e3", "--yes")) })
		w.onlyChanged(t, before, "engine-e3", "sidecar-e3")
		if w.digest(t, "F/profile/e3") != profile || !slices.Contains(made(t, w.latest(), seq), "G/activation") {
			t.Errorf("the profile is %s, was %s", w.digest(t, "F/profile/e3"), profile)
		}
		w.settled(t)
	})
	t.Run("one by one, with new profiles", func(t *testing.T) {
		before := w.identities()
		w.under(t, func() { w.must(0, w.replace("e0", "e2", "--profile", "--yes")) })
		w.onlyChanged(t, before, "engine-e0", "engine-e2", "sidecar-e0", "sidecar-e2")
		w.settled(t)
	})
	t.Run("a process that died", func(t *testing.T) {
		r, _ := process.Read(filepath.Join(w.sbx.Hosts[2].Root, "run"), "engine-e2")
		p, err := os.FindProcess(r.PID)
		if err != nil || p.Kill() != nil {
			t.Fatal(err)
		}
		await(t, "its end", func() bool { return !r.Alive() })
		w.must(0, w.replace("e2", "--yes"))
		w.settled(t)
	})
	t.Run("as a wave", func(t *testing.T) {
		before := w.identities()
		w.must(0, w.replace("e0", "e1", "e2", "e3", "--wave", "--yes"))
		if got := changed(before, w.identities()); len(got) != 8 {
			t.Errorf("other processes: %v", got)
		}
		w.settled(t)
	})
}

// refusedReplacements are those that change nothing.
func refusedReplacements(t *testing.T, w *world) {
	before, seq := w.identities(), w.latest().Seq
	for _, c := range []struct {
		args []string
		exit int
		code string
	}{
		{[]string{"e9", "--yes"}, 2, "unknown_engine"},
		{[]string{"--yes"}, 2, "invalid_arguments"},
		{[]string{"e3"}, 6, "approval_missing"},
		{[]string{"e3", "--plan", "0123"}, 2, "plan_digest_short"},
		{[]string{"e3", "--plan", "0123456789abcdef"}, 6, "plan_stale"},
		{[]string{"e3", "--wave", "--yes"}, 2, "wave_partial"},
		{[]string{"e3", "--drain", "0s", "--yes"}, 2, "invalid_arguments"},
	} {
		r := w.must(c.exit, w.replace(c.args...))
		if got := w.reply(r); len(got.Errors) != 1 || got.Errors[0].Code != c.code || got.Errors[0].Hint == "" {
			t.Errorf("%v: %+v", c.args, got.Errors)
		}
	}
	w.relaunch("e1", 0.01)
	if got := w.reply(w.must(6, w.replace("e3", "--yes"))); got.Errors[0].Code != "other_changes" || !strings.Contains(got.Errors[0].Message, "e1") {
		t.Errorf("beside another change: %+v", got.Errors)
	}
	w.relaunch("e1", 0)
	w.rewrite(func(doc map[string]any) { doc["slo"].(map[string]any)["ttft_s"] = 1.1 })
	if got := w.reply(w.must(6, w.replace("e3", "--yes"))); got.Errors[0].Code != "other_changes" {
		t.Errorf("beside another limit: %+v", got.Errors)
	}
	w.rewrite(func(doc map[string]any) { doc["slo"].(map[string]any)["ttft_s"] = 1.0 })
	w.must(0, w.replace("e3", "--dry-run"))
	if got := changed(before, w.identities()); len(got) > 0 || w.latest().Seq != seq {
		t.Errorf("changed %v, %d lines", got, w.latest().Seq-seq)
	}
}

// TestReplaceIsKilled kills the command after its events; the same command goes on, and the
// engine serves only at the end.
func TestReplaceIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, nil)
	w.must(0, w.gates())
	if got := w.reply(w.must(6, w.replace("e2", "--yes"))); got.Errors[0].Code != "last_engine" {
		t.Fatalf("the last of its role: %+v", got.Errors)
	}
	w.relaunch("e2", 0.01)
	before := w.identities()
	args := []string{"e2", "--below-floor", "--yes"}
	kills := 0
	w.env = []string{"NARWHAL_CRASH_AFTER=3"}
	r := w.replace(args...)
	for ; r.code == -1 && kills < 100; r = w.replace(args...) {
		kills++
		w.env = []string{"NARWHAL_CRASH_AFTER=" + strconv.Itoa(3+kills)}
		if kills == 2 {
			w.env = nil
			if got := w.reply(w.must(6, w.gates())); got.Errors[0].Code != "replacement_unfinished" {
				t.Errorf("a run in between: %+v", got.Errors)
			}
			if got := w.reply(w.must(6, w.replace("e1", "--yes"))); got.Errors[0].Code != "replacement_unfinished" {
				t.Errorf("another engine in between: %+v", got.Errors)
			}
			w.env = []string{"NARWHAL_CRASH_AFTER=4"}
		}
		if _, draining := w.engineDoc(t, "e2"); kills > 4 && !draining && w.latest().State.Replacement != nil {
			if s, ok := w.latest().State.Replacement.Last("e2", "back"); !ok {
				t.Errorf("after %d kills e2 serves, stage %+v", kills, s)
			}
		}
	}
	w.env = nil
	w.must(0, r)
	if kills < 5 {
		t.Errorf("killed %d times only", kills)
	}
	w.onlyChanged(t, before, "engine-e2", "sidecar-e2")
	w.settled(t)
	t.Run("requests that run too long", func(t *testing.T) { replaceLate(t, w) })
	t.Run("the independent verifier agrees", func(t *testing.T) {
		independentTools(t)
		if code, codes := independently(t, w.runDir(), filepath.Join(w.dir, "sbx/keys/operator.key.pub")); code != 0 {
			t.Errorf("it ends with %d: %v", code, codes)
		}
	})
}

// replaceLate leaves an engine running whose requests do not end in time, and ends them where
// that is asked.
func replaceLate(t *testing.T, w *world) {
	await(t, "a long request on e2", func() bool {
		resp, err := http.Post("http://"+w.router()+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a whale","max_tokens":12000,"ignore_eos":true,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		_, _ = resp.Body.Read(make([]byte, 64)) // its first token
		return w.residents(t, "e2") > 0
	})
	before := w.identities()
	r := w.reply(w.must(4, w.replace("e2", "--below-floor", "--drain", "1s", "--yes")))
	if len(r.Errors) != 2 || r.Errors[0].Code != "drain_late" || !strings.Contains(r.Errors[0].Hint, "--cut") {
		t.Errorf("errors %+v", r.Errors)
	}
	if got := changed(before, w.identities()); len(got) > 0 {
		t.Errorf("it ended %v", got)
	}
	w.must(0, w.replace("--below-floor", "--drain", "1s", "--cut", "--yes"))
	w.onlyChanged(t, before, "engine-e2", "sidecar-e2")
	w.settled(t)
}

// TestReplaceThatFails leaves the engine out of service, says so, and goes on once the fleet
// file is mended. The router and the standby take the profiles up.
func TestReplaceThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, nil)
	w.rewrite(func(doc map[string]any) {
		r := doc["deploy"].(map[string]any)["router"].(map[string]any)
		r["standby"] = map[string]any{"host": w.sbx.Hosts[1].ID, "listen": fmt.Sprintf("127.0.0.1:%d", w.sbx.Hosts[1].Ports.Router)}
		r["lease"] = map[string]any{"path": filepath.Join(w.dir, "lease.json"), "ttl": "3s"}
	})
	w.must(0, w.gates())
	before := w.identities()
	w.relaunch("e1", 0.01)
	w.rewrite(func(doc map[string]any) {
		other := doc["deploy"].(map[string]any)["launch"].(map[string]any)["other"].(map[string]any)
		other["simulated"].(map[string]any)["max_model_len"] = 8192
	})
	w.under(t, func() {
		r := w.reply(w.must(1, w.replace("e1", "--yes")))
		if n := len(r.Errors); n < 2 || r.Errors[n-1].Code != "replacement_stopped" || r.Errors[n-1].Hint == "" {
			t.Errorf("errors %+v", r.Errors)
		}
	})
	if state, draining := w.engineDoc(t, "e1"); !draining {
		t.Errorf("e1 is %s", state)
	}
	if r := w.must(0, w.run("gate", "status", "-f", w.fleet)); !strings.Contains(r.out, "e1 is out of service, stage gate F failed") {
		t.Errorf("status says %s", tail(r.out))
	}
	w.relaunch("e1", 0.01)
	w.under(t, func() { w.must(0, w.replace("--yes")) })
	w.onlyChanged(t, before, "engine-e1", "sidecar-e1")
	store := w.digest(t, "F/store")
	for i, name := range []string{"router", "standby"} {
		b, err := os.ReadFile(filepath.Join(w.sbx.Hosts[i].Root, name, "profiles.json"))
		if err != nil || sumOf(b) != store {
			t.Errorf("the %s has other profiles: %v", name, err)
		}
	}
	snap := w.latest()
	e, _ := snap.State.Evidence("G/activation")
	var a struct{ Routers []string }
	if b, err := snap.Load(e.Ref); err != nil || json.Unmarshal(b, &a) != nil || !slices.Equal(a.Routers, []string{"router", "standby"}) {
		t.Errorf("activated on %v: %v", a.Routers, err)
	}
	w.settled(t)
	t.Run("the router is started anew", func(t *testing.T) {
		w.rewrite(func(doc map[string]any) { doc["slo"].(map[string]any)["ttft_s"] = 1.2 })
		w.must(0, w.gates())
		w.settled(t)
	})
}
