package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/internal/sandbox"
)

// binary builds the real program once; it is also the release that the hosts get.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "narwhal-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "narwhal")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// world is a sandbox fleet and the state folder of one operator.
type world struct {
	t     *testing.T
	bin   string
	dir   string
	state string
	fleet string
	sbx   *sandbox.Sandbox
	env   []string
}

// newWorld starts a sandbox in this process with quick engines, sweeps of the fewest rounds and a
// trial that takes about a second.
func newWorld(t *testing.T, hosts int, edit func(doc map[string]any)) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{t: t, bin: bin, dir: dir, state: filepath.Join(dir, "state"), fleet: filepath.Join(dir, "fleet.json")}
	w.fleet = filepath.Join(dir, "sbx", "quick.json")
	if err := os.MkdirAll(filepath.Join(dir, "sbx", "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := attest.OpenKeyFile(filepath.Join(dir, "sbx", "keys", "operator.key"), nil); err != nil {
		t.Fatal(err)
	}
	w.sbx, err = sandbox.Up(sandbox.Config{Dir: filepath.Join(dir, "sbx"), Hosts: hosts, Operator: "keys/operator.key"})
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
	w.rewrite(func(doc map[string]any) {
		d := doc["deploy"].(map[string]any)
		d["trial"] = map[string]any{"rates": []any{20}, "requests": 20, "attainment": 0.5, "max_input_tokens": 400, "max_output_tokens": 8}
		d["profile"] = map[string]any{"prefill_tokens": []any{512, 1024, 2048}, "prefill_repeats": 3, "decode_requests": []any{1, 6}, "decode_tokens": []any{64, 512}, "output_tokens": 8, "pair_tokens": 64, "budget": "500ms"}
		d["fabric"] = map[string]any{"prompt_tokens": 64, "handoffs_per_s": 1, "sample": "50ms", "streams": 1, "under_decode": false, "incast": false}
		sim := d["launch"].(map[string]any)["simulated"].(map[string]any)["simulated"].(map[string]any)
		sim["prefill_b_s"], sim["decode_d_s"], sim["decode_e_s"] = 0.00004, 0.005, 0.0005
		doc["profiles"] = map[string]any{"max_decode_fit_mape": 0.9, "max_decode_cv_mape": 3}
		doc["controller"].(map[string]any)["reactive"].(map[string]any)["movement_margin"] = 0.9
		if edit != nil {
			edit(doc)
		}
	})
	return w
}

// rewrite edits the fleet file.
func (w *world) rewrite(edit func(doc map[string]any)) {
	w.t.Helper()
	from := w.fleet
	if _, err := os.Stat(from); err != nil {
		from = w.sbx.Fleet
	}
	b, err := os.ReadFile(from)
	if err != nil {
		w.t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		w.t.Fatal(err)
	}
	edit(doc)
	if b, err = json.MarshalIndent(doc, "", " "); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.fleet, b, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// ran is one finished command.
type ran struct {
	code     int
	out, err string
}

// command prepares narwhal with this operator's state.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := execCommand(w.bin, w.dir, w.state, args...)
	cmd.Env = append(cmd.Env, w.env...)
	return cmd
}

// execCommand is narwhal with nothing of the test's environment but PATH.
func execCommand(bin, dir, state string, args ...string) *exec.Cmd {
	cmd := exec.Command(bin, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "NARWHAL_STATE=" + state}
	return cmd
}

// run runs narwhal to its end. A killed process has code -1.
func (w *world) run(args ...string) ran {
	w.t.Helper()
	return finish(w.t, w.command(args...))
}

func finish(t *testing.T, cmd *exec.Cmd) ran {
	t.Helper()
	return finishWithin(t, cmd, 6*time.Minute)
}

// finishWithin waits for a command. One that hangs shows where, instead of hanging the tests.
func finishWithin(t *testing.T, cmd *exec.Cmd, limit time.Duration) ran {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	stuck := time.AfterFunc(limit, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer stuck.Stop()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// gates runs gate run --yes.
func (w *world) gates(args ...string) ran {
	w.t.Helper()
	return w.run(append([]string{"gate", "run", "-f", w.fleet, "--yes", "--format", "json"}, args...)...)
}

// must fails the test unless the command ended with the code.
func (w *world) must(code int, r ran) ran {
	w.t.Helper()
	if r.code != code {
		w.t.Fatalf("exit %d, want %d\nstdout: %s\nstderr: %s", r.code, code, tail(r.out), tail(r.err))
	}
	return r
}

func tail(s string) string {
	if len(s) > 4000 {
		return "…" + s[len(s)-4000:]
	}
	return s
}

// reply is the envelope with the data that these tests read.
type reply struct {
	Status   string `json:"status"`
	ExitCode int    `json:"exit_code"`
	Data     struct {
		Run      string       `json:"run"`
		Dir      string       `json:"dir"`
		Gates    []gateStatus `json:"gates"`
		Stopped  []string     `json:"stopped"`
		Rerun    []string     `json:"rerun"`
		Restored []string     `json:"restored"`
		Residue  []string     `json:"residue"`
	} `json:"data"`
	Errors []struct {
		Code, Message, Hint, File, Host string
	} `json:"errors"`
}

func (w *world) reply(r ran) reply {
	w.t.Helper()
	var e reply
	if err := json.Unmarshal([]byte(r.out), &e); err != nil {
		w.t.Fatalf("read the envelope: %v\n%s\n%s", err, tail(r.out), tail(r.err))
	}
	return e
}

// states is the gates' states as "A:passed B:passed …".
func (e reply) states() string {
	var s []string
	for _, g := range e.Data.Gates {
		s = append(s, g.Gate+":"+g.State)
	}
	return strings.Join(s, " ")
}

const allPassed = "A:passed B:passed C:passed D:passed E:passed F:passed G:passed"

// runDir is the folder of the latest run.
func (w *world) runDir() string {
	w.t.Helper()
	return w.reply(w.must(0, w.run("gate", "status", "-f", w.fleet, "--format", "json"))).Data.Dir
}

// copyTree copies a folder of regular files.
func copyTree(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// filesBelow lists regular files.
func filesBelow(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
