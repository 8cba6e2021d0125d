package drills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
	"github.com/narwhal-fleet/narwhal/fleet/remote/netns"
	"github.com/narwhal-fleet/narwhal/internal/booted"
	"github.com/narwhal-fleet/narwhal/internal/sandbox"
)

// binary builds the program once; it is also the release that hosts get.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "narwhal-drills-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "narwhal")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "../../cmd/narwhal")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// world is a healthy sandbox and the states of an operator after each gate.
type world struct {
	t     *testing.T
	bin   string
	dir   string
	fleet string
	sbx   *sandbox.Sandbox
	doc   string // the healthy document
	// stages are copies of the state folder, by the last gate that has passed.
	stages map[string]string
	seen   seen
	spaces []netns.HostInfo // hosts with OpenSSH in place of the sandbox
	booted *booted.Host     // a host with systemd in the place of the second one
	// replaced counts what a replacement records before each stage, nil before the first.
	replaced map[string]int
}

// seen collects what hosts are made to do.
type seen struct {
	mu   sync.Mutex
	acts map[string][]loopback.Act
}

func (s *seen) take() map[string][]loopback.Act {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.acts
	s.acts = map[string][]loopback.Act{}
	return out
}

// loginShell runs a command as it is, unless the drill left a filter for its output or
// limits for it.
const loginShell = `#!/bin/sh
h=${0%/*}
if [ -r "$h/limits" ]; then . "$h/limits"; fi
if [ -x "$h/filter" ]; then /bin/sh "$@" | "$h/filter"; exit; fi
exec /bin/sh "$@"
`

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func newWorld(t *testing.T, hosts int) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{t: t, bin: bin, dir: dir, fleet: filepath.Join(dir, "sbx", "drill.json"), stages: map[string]string{"": filepath.Join(dir, "stage-0")}}
	must(t, os.MkdirAll(filepath.Join(dir, "sbx", "keys"), 0o700))
	must(t, os.MkdirAll(w.stages[""], 0o700))
	if _, _, err := attest.OpenKeyFile(filepath.Join(dir, "sbx", "keys", "operator.key"), nil); err != nil {
		t.Fatal(err)
	}
	w.seen.take()
	w.sbx, err = sandbox.Up(sandbox.Config{Dir: filepath.Join(dir, "sbx"), Hosts: hosts, Operator: "keys/operator.key", Tune: w.tune})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := w.sbx.Down(ctx); err != nil {
			t.Errorf("stop the sandbox: %v", err)
		}
	})
	b, err := os.ReadFile(w.sbx.Fleet)
	must(t, err)
	doc := parse(t, string(b))
	quick(doc)
	w.doc = text(t, doc)
	w.write(w.doc)
	return w
}

// tune gives a host a folder of tools in front of its PATH and a login shell of its own.
func (w *world) tune(h sandbox.Host, c *loopback.Config) {
	must(w.t, os.MkdirAll(filepath.Join(h.Home, "tools"), 0o755))
	c.Shell = filepath.Join(h.Home, "login")
	must(w.t, os.WriteFile(c.Shell, []byte(loginShell), 0o755))
	c.Env = append(c.Env, "PATH="+filepath.Join(h.Home, "tools")+":"+systemPath)
	c.Seen = func(a loopback.Act) {
		w.seen.mu.Lock()
		defer w.seen.mu.Unlock()
		w.seen.acts[h.ID] = append(w.seen.acts[h.ID], a)
	}
}

// quick makes measurements short.
func quick(doc object) {
	d := sub(doc, "deploy")
	d["trial"] = object{"rates": []any{20}, "requests": 20, "attainment": 0.5, "max_input_tokens": 400, "max_output_tokens": 8}
	d["profile"] = object{"prefill_tokens": []any{512, 1024, 2048}, "prefill_repeats": 3, "decode_requests": []any{1, 6}, "decode_tokens": []any{64, 512}, "output_tokens": 8, "pair_tokens": 64}
	d["fabric"] = object{"prompt_tokens": 64, "handoffs_per_s": 1, "sample": "50ms", "streams": 1, "under_decode": false}
	doc["profiles"] = object{"max_decode_fit_mape": 0.9, "max_decode_cv_mape": 3}
	sub(doc, "controller", "reactive")["movement_margin"] = 0.9
}

type object = map[string]any

func sub(doc object, path ...string) object {
	for _, p := range path {
		child, ok := doc[p].(object)
		if !ok {
			child = object{}
			doc[p] = child
		}
		doc = child
	}
	return doc
}

func parse(t testing.TB, s string) object {
	t.Helper()
	var doc object
	must(t, json.Unmarshal([]byte(s), &doc))
	return doc
}

func text(t testing.TB, doc object) string {
	t.Helper()
	b, err := json.MarshalIndent(doc, "", " ")
	must(t, err)
	return string(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) write(doc string) { must(w.t, os.WriteFile(w.fleet, []byte(doc), 0o600)) }

// ran is one finished command.
type ran struct {
	exit     int
	out, err string
}

func (w *world) run(state string, env []string, args ...string) ran {
	w.t.Helper()
	cmd := exec.Command(w.bin, args...)
	cmd.Dir = w.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "NARWHAL_STATE=" + state}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// A command that hangs shows where, instead of hanging the drills.
	stuck := time.AfterFunc(100*time.Second, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer stuck.Stop()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// copyState makes a folder of its own of a stage's state.
func (w *world) copyState(stage string) string {
	w.t.Helper()
	from, ok := w.stages[stage]
	if !ok {
		w.t.Fatalf("no state after gate %q", stage)
	}
	to, err := os.MkdirTemp(w.dir, "state-")
	must(w.t, err)
	must(w.t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// reach runs the healthy fleet to a gate and keeps the state.
func (w *world) reach(from, stage string) {
	w.t.Helper()
	w.write(w.doc)
	state := w.copyState(from)
	r := w.run(state, nil, "gate", "run", stage, "-f", w.fleet, "--yes", "--format", "json")
	if r.exit != 0 {
		w.t.Fatalf("the healthy fleet does not reach gate %s: exit %d\n%s\n%s", stage, r.exit, tail(r.out), tail(r.err))
	}
	if old := w.stages[stage]; old != "" {
		must(w.t, os.RemoveAll(old))
	}
	w.stages[stage] = state
}

// stop ends all that runs on the hosts.
func (w *world) stop() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	must(w.t, sandbox.StopProcesses(ctx, w.sbx.Hosts))
	for _, h := range w.sbx.Hosts {
		must(w.t, os.RemoveAll(filepath.Join(h.Root, "run")))
	}
}

func tail(s string) string {
	const most = 3000
	s = strings.TrimSpace(s)
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// drill provokes one fault.
func (w *world) drill(f fault) result {
	w.t.Helper()
	begin := time.Now()
	s := &scene{w: w, t: w.t, state: w.copyState(f.stage), doc: parse(w.t, w.doc)}
	if w.sbx != nil {
		s.hosts = w.sbx.Hosts
	}
	f.do(s)
	w.write(text(w.t, s.doc))
	if s.raw != nil {
		w.write(*s.raw)
	}
	args := f.args
	if args == nil {
		args = []string{"gate", "run", f.finder(), "--yes"}
	}
	args = append([]string(nil), args...)
	if !s.bare {
		args = append(args, "-f", w.fleet)
	}
	for i, a := range args {
		args[i] = strings.NewReplacer("{run}", s.run(), "{dir}", w.dir).Replace(a)
	}
	got := w.run(s.state, s.env, append(args, "--format", "json")...)
	r := result{fault: f, exit: got.exit, seconds: time.Since(begin).Seconds()}
	var e reply
	if err := json.Unmarshal([]byte(got.out), &e); err != nil {
		r.others = append(r.others, "no envelope: "+err.Error())
		e = reply{}
	}
	r.read(e)
	r.said = fmt.Sprintf("stdout: %s\nstderr: %s", brief(e), tail(got.err))
	s.mend()
	must(w.t, os.RemoveAll(s.state))
	return r
}

// brief is what a person needs of a reply.
func brief(e reply) string {
	var b strings.Builder
	for _, x := range e.Errors {
		fmt.Fprintf(&b, "\n  %s: %s | %s", x.Code, x.Message, x.Hint)
	}
	for _, g := range e.Data.Gates {
		fmt.Fprintf(&b, "\n  gate %s %s %s", g.Gate, g.State, g.Because)
	}
	return tail(b.String())
}

// hostKey is the private key of a host.
func (w *world) hostKey(i int) []byte {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.sbx.Dir, "keys", w.sbx.Hosts[i].ID))
	must(w.t, err)
	return b
}
