package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// made lists the evidence that a record gained after an event.
func made(t *testing.T, snap *record.Snapshot, after int64) []string {
	t.Helper()
	var out []string
	for _, ev := range snap.Events {
		var e record.Evidence
		if ev.Seq > after && ev.Kind == record.KindEvidence && json.Unmarshal(ev.Body, &e) == nil {
			out = append(out, string(e.Key))
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) kill(host int, name string) {
	w.t.Helper()
	r, ok := process.Read(filepath.Join(w.sbx.Hosts[host].Root, "run"), name)
	if !ok || !r.Alive() {
		w.t.Fatalf("%s does not run", name)
	}
	if err := syscall.Kill(-r.PID, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	await(w.t, name+" to end", func() bool { return !r.Alive() })
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestLife takes one fleet through what happens to fleets: processes die, inputs change,
// the operator goes back.
func TestLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, nil)
	w.must(0, w.gates())
	t.Run("an engine is killed", func(t *testing.T) {
		seq := w.latest().Seq
		w.kill(1, "engine-e1")
		r := w.must(0, w.gates())
		if !strings.Contains(r.err, "engine-e1 is not running") {
			t.Errorf("the reason is not shown: %s", r.err)
		}
		want := []string{"C/cache/e1", "C/launch/e1", "C/listener/e1", "C/live/e1", "C/ports/e1", "E/observed/e1", "E/sidecar/e1", "E/statement/e1", "F/abort/e1", "F/engine/e1", "F/pair/e0/e1", "F/pair/e1/e0"}
		if got := made(t, w.latest(), seq); !slices.Equal(got, want) {
			t.Errorf("made again\n%v, want\n%v", got, want)
		}
	})
	t.Run("a sidecar is killed", func(t *testing.T) {
		seq := w.latest().Seq
		w.kill(0, "sidecar-e0")
		w.must(0, w.gates())
		want := []string{"E/sidecar/e0", "E/statement/e0"}
		if got := made(t, w.latest(), seq); !slices.Equal(got, want) {
			t.Errorf("made again %v, want %v", got, want)
		}
	})
	t.Run("the router and an engine are frozen", func(t *testing.T) { frozen(t, w) })
	t.Run("a release is damaged on a host", func(t *testing.T) {
		current := filepath.Join(w.sbx.Hosts[1].Root, "current", "narwhal")
		target, err := filepath.EvalSymlinks(current)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(target); err != nil { // its processes hold the old one open
			t.Fatal(err)
		}
		if err := os.WriteFile(target, []byte("not a program"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
			t.Errorf("gates are %s", got)
		}
	})
	t.Run("a sidecar lost its record", func(t *testing.T) {
		run := filepath.Join(w.sbx.Hosts[1].Root, "run")
		r, ok := process.Read(run, "sidecar-e1")
		if !ok {
			t.Fatal("no record")
		}
		if err := os.Remove(filepath.Join(run, "sidecar-e1.json")); err != nil {
			t.Fatal(err)
		}
		w.hinted(w.must(4, w.gates()), "cannot listen on")
		_ = syscall.Kill(-r.PID, syscall.SIGKILL)
		await(t, "it to end", func() bool { return !r.Alive() })
		w.must(0, w.gates())
	})
	t.Run("the SLO changes", func(t *testing.T) {
		seq := w.latest().Seq
		w.rewrite(func(doc map[string]any) { doc["slo"].(map[string]any)["ttft_s"] = 1.5 })
		st := w.reply(w.must(0, w.run("gate", "status", "-f", w.fleet, "--format", "json")))
		if !strings.Contains(st.states(), "F:stale") || !strings.Contains(st.states(), "D:passed") {
			t.Errorf("status says %s", st.states())
		}
		w.must(0, w.gates())
		want := []string{"A/inputs", "F/pair/e0/e1", "F/pair/e1/e0", "G/acceptance", "G/bundle", "G/drain", "G/journal", "G/ready", "G/ring", "G/router", "G/trial"}
		if got := made(t, w.latest(), seq); !slices.Equal(got, want) {
			t.Errorf("made again\n%v, want\n%v", got, want)
		}
	})
	t.Run("an engine is added and removed in the file", func(t *testing.T) {
		was, err := os.ReadFile(w.fleet)
		if err != nil {
			t.Fatal(err)
		}
		w.rewrite(func(doc map[string]any) { // e1 leaves, and e9 comes without ever being started
			engines := doc["engines"].([]any)
			places := doc["deploy"].(map[string]any)["engines"].(map[string]any)
			e := engines[1].(map[string]any)
			e["iid"] = "e9"
			places["e9"] = places["e1"]
			delete(places, "e1")
		})
		st := w.reply(w.must(0, w.run("gate", "status", "-f", w.fleet, "--live", "--format", "json")))
		if got := st.states(); !strings.Contains(got, "C:stale") || !strings.Contains(got, "E:stale") {
			t.Errorf("with an engine that was never started: %s", got)
		}
		r := w.must(1, w.gates("--to", "C"))
		if !strings.Contains(r.err, "engine-e1 runs and is not in the fleet file") {
			t.Errorf("the engine that left is not named: %s", tail(r.err))
		}
		if err := os.WriteFile(w.fleet, was, 0o600); err != nil {
			t.Fatal(err)
		}
		w.must(0, w.gates())
	})
	t.Run("rollback", func(t *testing.T) { rollback(t, w) })
	t.Run("the tunnel comes back", func(t *testing.T) { tunnelAgain(t, w) })
}

// tunnelAgain loses the tunnel's host for longer than one try to reach it.
func tunnelAgain(t *testing.T, w *world) {
	cmd := w.command("tunnel", "-f", w.fleet)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the tunnel ends with %v", err)
		}
	}()
	lines := bufio.NewScanner(out)
	opened := func() string {
		if !lines.Scan() {
			t.Fatal("the tunnel ended")
		}
		return strings.TrimPrefix(lines.Text(), "router ")
	}
	url := opened()
	if _, err := http.Get(url + "/health"); err != nil {
		t.Fatal(err)
	}
	w.sbx.Server(0).Refuse(true)
	w.sbx.Server(0).Drop()
	refused := time.AfterFunc(2500*time.Millisecond, func() { w.sbx.Server(0).Refuse(false) })
	defer refused.Stop()
	if again := opened(); again != url {
		t.Errorf("it came back as %s, was %s", again, url)
	}
	resp, err := http.Get(url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// frozen stops the router and an engine without ending them: neither counts as holding.
func frozen(t *testing.T, w *world) {
	for _, c := range []struct {
		host int
		name string
		gate int
	}{{0, "router", 6}, {1, "engine-e1", 2}} {
		r, ok := process.Read(filepath.Join(w.sbx.Hosts[c.host].Root, "run"), c.name)
		if !ok {
			t.Fatalf("%s has no record", c.name)
		}
		if err := syscall.Kill(r.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		st := w.reply(w.must(0, w.run("gate", "status", "-f", w.fleet, "--live", "--format", "json")))
		if g := st.Data.Gates[c.gate]; g.State != "stale" || !strings.Contains(g.Because, "does not answer") {
			t.Errorf("%s is frozen and gate %s is %s: %s", c.name, g.Gate, g.State, g.Because)
		}
		if err := syscall.Kill(r.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		w.must(0, w.gates())
	}
}

// rollback goes back to C, is killed at every event on the way, and is finished by the
// same command.
func rollback(t *testing.T, w *world) {
	back := []string{"gate", "rollback", "--to", "C", "-f", w.fleet, "--yes", "--format", "json"}
	w.must(6, w.run("gate", "rollback", "--to", "C", "-f", w.fleet))
	dry := w.reply(w.must(0, w.run("gate", "rollback", "--to", "C", "-f", w.fleet, "--dry-run", "--format", "json")))
	if len(dry.Data.Rerun) != 4 {
		t.Errorf("the dry run says %v must run again", dry.Data.Rerun)
	}
	kills := 0
	w.env = []string{"NARWHAL_CRASH_AFTER=1"}
	r := w.run(back...)
	for ; r.code == -1 && kills < 200; r = w.run(back...) {
		kills++
		w.env = []string{"NARWHAL_CRASH_AFTER=" + strconv.Itoa(1+kills%3)}
		if kills == 1 {
			w.must(6, w.gates())
		}
	}
	w.env = nil
	res := w.reply(w.must(0, r))
	if kills < 3 {
		t.Errorf("killed %d times only", kills)
	}
	for _, name := range []string{"router", "sidecar-e0", "sidecar-e1"} {
		if !slices.Contains(res.Data.Stopped, name) {
			t.Errorf("%s is not among the stopped %v", name, res.Data.Stopped)
		}
	}
	if !slices.Equal(res.Data.Rerun, []string{"D", "E", "F", "G"}) || len(res.Data.Residue) != 0 {
		t.Errorf("rerun %v, residue %v", res.Data.Rerun, res.Data.Residue)
	}
	for i, h := range w.sbx.Hosts {
		for _, r := range process.List(filepath.Join(h.Root, "run")) {
			if r.Alive() != strings.HasPrefix(r.Name, "engine-") {
				t.Errorf("host %d: %s alive %v", i, r.Name, r.Alive())
			}
		}
	}
	st := w.reply(w.must(0, w.run("gate", "status", "-f", w.fleet, "--format", "json")))
	if got := st.states(); got != "A:passed B:passed C:passed D:undone E:undone F:undone G:undone" {
		t.Errorf("after the rollback: %s", got)
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
		t.Errorf("after running again: %s", got)
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
}

// hinted fails unless the command said what went wrong and what to do.
func (w *world) hinted(r ran, text string) {
	w.t.Helper()
	if !strings.Contains(r.out+r.err, text) {
		w.t.Errorf("%q is not named:\n%s\n%s", text, tail(r.out), tail(r.err))
	}
	for _, e := range w.reply(r).Errors {
		if e.Hint == "" {
			w.t.Errorf("no hint beside %q", e.Message)
		}
		if strings.Contains(e.Message, "*") && strings.Contains(e.Message, "Error{") {
			w.t.Errorf("a Go type in %q", e.Message)
		}
	}
}

// TestNamesakes has two sandboxes whose folders and fleets have equal names, and one
// operator: neither touches the other's processes, and each fleet has a run of its own.
func TestNamesakes(t *testing.T) {
	t.Parallel()
	a := newWorld(t, 1, nil)
	a.must(0, a.gates("--to", "C"))
	b := newWorld(t, 1, nil)
	b.state = a.state
	b.must(0, b.gates("--to", "C"))
	if got := b.reply(b.must(0, b.run("gate", "status", "-f", b.fleet, "--format", "json"))); !strings.HasPrefix(got.states(), "A:passed B:passed C:passed") {
		t.Errorf("the second fleet: %s", got.states())
	}
	b.must(0, b.run("gate", "verify", "-f", b.fleet))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := b.sbx.Down(ctx); err != nil {
		t.Fatal(err)
	}
	r, ok := process.Read(filepath.Join(a.sbx.Hosts[0].Root, "run"), "engine-e0")
	if !ok || !r.Alive() {
		t.Error("stopping one sandbox ended an engine of its namesake")
	}
}

// TestRollbackOfAnotherRun goes back in a run that did not start what runs.
func TestRollbackOfAnotherRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, nil)
	w.must(0, w.gates("--to", "E"))
	w.must(0, w.gates("--new", "--to", "A"))
	back := w.reply(w.must(0, w.run("gate", "rollback", "--to", "A", "-f", w.fleet, "--yes", "--format", "json")))
	for _, name := range []string{"sidecar-e0", "engine-e0"} {
		if !slices.Contains(back.Data.Stopped, name) {
			t.Errorf("%s is not among the stopped %v", name, back.Data.Stopped)
		}
		if r, ok := process.Read(filepath.Join(w.sbx.Hosts[0].Root, "run"), name); ok && r.Alive() {
			t.Errorf("%s still runs", name)
		}
	}
}

// TestFailures provokes what goes wrong on the way; each leaves a record from which the
// same command goes on.
func TestFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, nil)
	t.Run("a host is gone", func(t *testing.T) {
		w.sbx.Server(1).Refuse(true)
		w.sbx.Server(1).Drop()
		r := w.must(4, w.gates())
		w.hinted(r, "host-2")
		w.sbx.Server(1).Refuse(false)
	})
	t.Run("no approval", func(t *testing.T) {
		r := w.must(6, w.run("gate", "run", "-f", w.fleet, "--format", "json"))
		w.hinted(r, "approved")
	})
	t.Run("the disk is full", func(t *testing.T) {
		w.sbx.Server(1).FillAfter(1 << 20)
		r := w.must(4, w.gates())
		w.hinted(r, "host-2")
		w.sbx.Server(1).FillAfter(-1)
	})
	t.Run("a port is taken", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:"+portOf(w.sbx.Hosts[1].Ports.Engine))
		if err != nil {
			t.Fatal(err)
		}
		r := w.gates()
		_ = l.Close()
		w.hinted(w.must(1, r), "port-taken")
	})
	t.Run("an engine never gets ready", func(t *testing.T) {
		sim := func(doc map[string]any) map[string]any {
			return doc["deploy"].(map[string]any)["launch"].(map[string]any)["simulated"].(map[string]any)
		}
		w.rewrite(func(doc map[string]any) {
			sim(doc)["ready_within"] = "300ms"
			sim(doc)["simulated"].(map[string]any)["start_s"] = 600.0
		})
		w.hinted(w.must(1, w.gates()), "engine-not-ready")
		w.rewrite(func(doc map[string]any) {
			sim(doc)["ready_within"] = "30s"
			sim(doc)["simulated"].(map[string]any)["start_s"] = 0.0
		})
	})
	t.Run("interrupted", func(t *testing.T) { interruptedRun(t, w, syscall.SIGINT, 130) })
	t.Run("terminated", func(t *testing.T) { interruptedRun(t, w, syscall.SIGTERM, 143) })
	t.Run("a second operator", func(t *testing.T) { secondOperator(t, w) })
	t.Run("the tunnel is lost", func(t *testing.T) { lostTunnel(t, w) })
	t.Run("goes on", func(t *testing.T) {
		if got := w.reply(w.must(0, w.gates("--again", "G"))).states(); got != allPassed {
			t.Errorf("gates are %s", got)
		}
		w.must(0, w.run("gate", "verify", "-f", w.fleet))
	})
	t.Run("a host key changed", func(t *testing.T) {
		key, err := loopback.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.sbx.Server(1).SetHostKey(key.Private); err != nil {
			t.Fatal(err)
		}
		w.hinted(w.must(8, w.gates()), "host-2")
	})
}

func portOf(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

// start runs a command in the background.
func (w *world) start(args ...string) (*exec.Cmd, *bytes.Buffer) {
	w.t.Helper()
	cmd := w.command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return cmd, &errs
}

// reaches waits until the newest run holds an event that fits.
func (w *world) reaches(what string, fits func(record.Event) bool) {
	w.t.Helper()
	seq := int64(0)
	if dir, err := record.Resolve(w.state, "sandbox", "latest"); err == nil {
		if snap, err := record.Read(dir); err == nil {
			seq = snap.Seq
		}
	}
	await(w.t, what, func() bool {
		for _, ev := range w.latest().Events {
			if ev.Seq > seq && fits(ev) {
				return true
			}
		}
		return false
	})
}

func interruptedRun(t *testing.T, w *world, sig syscall.Signal, code int) {
	args := []string{"gate", "run", "-f", w.fleet, "--yes", "--again", "D"}
	cmd, errs := w.start(args...)
	w.reaches("gate D to begin", func(ev record.Event) bool { return ev.Kind == record.KindStarted })
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit %d, want %d\n%s", got, code, errs)
	}
	events := w.latest().Events
	if last := events[len(events)-1]; last.Kind != record.KindInterrupted {
		t.Errorf("the record ends with %s", last.Kind)
	}
}

// secondOperator runs from another state folder, then a second time from the same one,
// while the first run is at work.
func secondOperator(t *testing.T, w *world) {
	w.rewrite(func(doc map[string]any) {
		doc["deploy"].(map[string]any)["trial"].(map[string]any)["rates"] = []any{4}
	})
	cmd, errs := w.start("gate", "run", "-f", w.fleet, "--yes")
	w.reaches("gate G to begin", func(ev record.Event) bool { return ev.Kind == record.KindStarted && ev.Gate == "G" })
	same := w.must(5, w.gates())
	w.hinted(same, "another run holds this fleet")
	other := *w
	other.state = filepath.Join(w.dir, "other-state")
	w.hinted(w.must(5, other.gates()), "holds the lease")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the first run: %v\n%s", err, errs)
	}
}

// lostTunnel drops the router's host between its readiness and the end of its trial. Before the
// trial an operation fails; during it the tunnel is opened again, and the trial does not count.
func lostTunnel(t *testing.T, w *world) {
	cmd, errs := w.start("gate", "run", "-f", w.fleet, "--yes", "--again", "G")
	w.reaches("the router to be ready", func(ev record.Event) bool {
		return ev.Kind == record.KindEvidence && strings.Contains(string(ev.Body), `"G/ready"`)
	})
	w.sbx.Server(0).Drop()
	_ = cmd.Wait()
	marked := strings.Contains(errs.String(), "trial-tunnel")
	if got := cmd.ProcessState.ExitCode(); got != 4 && !(got == 1 && marked) {
		t.Fatalf("exit %d, want 4, or 1 with a trial that is marked\n%s", got, errs)
	}
	if !strings.Contains(errs.String(), "hint:") {
		t.Errorf("no hint in %s", errs)
	}
}

// TestSecretsStayPut plants a secret, of which the key that the engines demand is made, and looks
// for it in everything that a run leaves.
func TestSecretsStayPut(t *testing.T) {
	t.Parallel()
	const planted = "xk-9f3b1c7d5e2a8046-planted"
	w := newWorld(t, 2, func(doc map[string]any) {
		launch := doc["deploy"].(map[string]any)["launch"].(map[string]any)["simulated"].(map[string]any)
		launch["secrets"] = map[string]any{"HF_TOKEN": "env:PLANTED_TOKEN"}
		doc["engine"].(map[string]any)["engine_api_key_env"] = "PLANTED_KEY"
	})
	w.env = []string{"PLANTED_TOKEN=" + planted, "PLANTED_PASSWORD=" + planted, "PLANTED_KEY=" + planted + "-key"}
	var said strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan string, 1)
	go func() { seen <- watchProcesses(ctx, planted) }()
	for _, args := range [][]string{
		{"gate", "plan", "-f", w.fleet, "--format", "json"},
		{"gate", "run", "-f", w.fleet, "--yes", "-v", "--format", "json"},
		{"gate", "status", "-f", w.fleet, "--format", "json", "--live"},
		{"gate", "log", "-f", w.fleet, "--format", "json"},
		{"gate", "report", "-f", w.fleet, "--as", "html"},
		{"validate", w.fleet, "--effective", "--format", "json"},
		{"bundle", "collect", "-f", w.fleet, "-o", filepath.Join(w.dir, "b.tar.gz")},
	} {
		r := w.must(0, w.run(args...))
		said.WriteString(r.out + r.err)
	}
	cancel()
	if where := <-seen; where != "" {
		t.Errorf("a process list shows the secret: %s", where)
	}
	if strings.Contains(said.String(), planted) {
		t.Error("the output holds the secret")
	}
	// The engines do have it: a secret that never arrives is no proof.
	r, _ := process.Read(filepath.Join(w.sbx.Hosts[0].Root, "run"), "engine-e0")
	env, err := os.ReadFile("/proc/" + portOf(r.PID) + "/environ")
	if err == nil && !bytes.Contains(env, []byte("HF_TOKEN="+planted)) {
		t.Error("the engine did not get the secret")
	}
	c, err := engine.NewClient(fmt.Sprintf("http://127.0.0.1:%d", w.sbx.Hosts[0].Ports.Engine), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var refused *engine.StatusError
	if _, err := c.Models(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
		t.Errorf("the engine answers without its key: %v", err)
	}
	for _, file := range filesBelow(t, w.dir) {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the router replaces its files
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(planted)) || bytes.Contains(unzipped(b), []byte(planted)) {
			t.Errorf("%s holds the secret", file)
		}
	}
}

// TestEngineThatPrintsItsSecret has an engine end with the secret in its log, which the
// evidence quotes: neither record nor output may hold it.
func TestEngineThatPrintsItsSecret(t *testing.T) {
	t.Parallel()
	const planted = "xk-77aa20d4c9-spoken"
	w := newWorld(t, 1, func(doc map[string]any) {
		launch := doc["deploy"].(map[string]any)["launch"].(map[string]any)
		launch["simulated"] = map[string]any{
			"kind": "process", "argv": []any{"sh", "-c", "sleep 0.2; echo my token is $HF_TOKEN; exit 1"},
			"secrets": map[string]any{"HF_TOKEN": "env:PLANTED_TOKEN"}, "ready_within": "5s",
		}
	})
	w.env = []string{"PLANTED_TOKEN=" + planted}
	r := w.must(1, w.gates())
	w.hinted(r, "engine-not-ready")
	log, err := os.ReadFile(filepath.Join(w.sbx.Hosts[0].Root, "run", "engine-e0.log"))
	if err != nil || !bytes.Contains(log, []byte(planted)) {
		t.Fatalf("the engine did not print it: %v %s", err, log)
	}
	if strings.Contains(r.out+r.err, planted) {
		t.Error("the output holds the secret")
	}
	for _, file := range filesBelow(t, w.state) {
		if b, err := os.ReadFile(file); err != nil || bytes.Contains(b, []byte(planted)) {
			t.Errorf("%s holds the secret (%v)", file, err)
		}
	}
}
