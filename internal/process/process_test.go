package process

import (
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
)

// asChild makes the test binary call Become, as "narwhal host become" does.
const asChild = "narwhal-test-become"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == asChild {
		fmt.Fprintln(os.Stderr, Become(os.Args[2], os.Args[3]))
		os.Exit(4)
	}
	os.Exit(m.Run())
}

func become(t *testing.T) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{exe, asChild}
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// start runs a shell script under a name and stops it with the test.
func start(t *testing.T, dir, name, launch, script string) Record {
	t.Helper()
	r, adopted, err := Start(limited(t), dir, Spec{Name: name, Launch: launch, Argv: []string{"sh", "-c", script, "sh", dir}}, become(t))
	if err != nil || adopted {
		t.Fatalf("start: adopted %v, %v", adopted, err)
	}
	t.Cleanup(func() {
		if now, ok := Of(r.PID); ok && now == r.Identity || groupAlive(r.PID) {
			_ = syscall.Kill(-r.PID, syscall.SIGKILL)
		}
	})
	return r
}

// fifo is how a script says that it is ready: opening waits for the other side.
func fifo(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "ready")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wait(t *testing.T, path string) string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		b, _ := os.ReadFile(path)
		got <- string(b)
	}()
	select {
	case s := <-got:
		return s
	case <-time.After(20 * time.Second):
		t.Fatal("the process said nothing")
		return ""
	}
}

const forever = `exec sleep 600`

func TestStartAdoptsTheSameLaunch(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, "engine-a", "l1", forever)
	again, adopted, err := Start(limited(t), dir, Spec{Name: "engine-a", Launch: "l1", Argv: []string{"false"}}, []string{"/nonexistent"})
	if err != nil || !adopted || again.Identity != first.Identity {
		t.Fatalf("second start: adopted %v, %v, %v; want the first one, %v", adopted, again.Identity, err, first.Identity)
	}
	if !again.Alive() || again.Launch != "l1" || again.Log != filepath.Join(dir, "engine-a.log") {
		t.Errorf("record %+v", again)
	}
}

func TestStartRefusesAnotherLaunch(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, "engine-a", "l1", forever)
	got, _, err := Start(limited(t), dir, Spec{Name: "engine-a", Launch: "l2", Argv: []string{"sleep", "600"}}, become(t))
	if !errors.Is(err, ErrOther) || got.PID != first.PID {
		t.Fatalf("got %v, pid %d; want ErrOther naming pid %d", err, got.PID, first.PID)
	}
	if !first.Alive() {
		t.Error("the running process was touched")
	}
}

// TestStartAtOnce starts one launch many times at once: one process runs, all get it.
func TestStartAtOnce(t *testing.T) {
	dir := t.TempDir()
	const n = 4
	records := make([]Record, n)
	errs := make([]error, n)
	cmd, ctx := become(t), limited(t)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			records[i], _, errs[i] = Start(ctx, dir, Spec{Name: "e", Launch: "l", Argv: []string{"sleep", "600"}}, cmd)
		})
	}
	wg.Wait()
	t.Cleanup(func() { _, _ = Stop(context.Background(), dir, "e", 0) })
	for i := range n {
		if errs[i] != nil || records[i].Identity != records[0].Identity {
			t.Errorf("start %d: %v, %v; want %v", i, records[i].Identity, errs[i], records[0].Identity)
		}
	}
}

func TestStartAtOnceWithOtherLaunches(t *testing.T) {
	dir := t.TempDir()
	cmd, ctx := become(t), limited(t)
	var errs [2]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			_, _, errs[i] = Start(ctx, dir, Spec{Name: "e", Launch: fmt.Sprint("l", i), Argv: []string{"sleep", "600"}}, cmd)
		})
	}
	wg.Wait()
	t.Cleanup(func() { _, _ = Stop(context.Background(), dir, "e", 0) })
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("want one to win: %v, %v", errs[0], errs[1])
	}
	if err := errors.Join(errs[:]...); !errors.Is(err, ErrOther) {
		t.Errorf("the loser got %v, want ErrOther", err)
	}
}

// TestRecordBeforeProgram lets the program print its own record: it was on disk before
// the program's first instruction, and names the program's own pid.
func TestRecordBeforeProgram(t *testing.T) {
	dir := t.TempDir()
	ready := fifo(t, dir)
	r := start(t, dir, "self", "l1", `{ echo $$; cat "$1/self.json"; } >"$1/ready"; `+forever)
	pid, rest, _ := strings.Cut(wait(t, ready), "\n")
	var own Record
	if err := json.Unmarshal([]byte(rest), &own); err != nil {
		t.Fatalf("the program read %q: %v", rest, err)
	}
	if own.Identity != r.Identity || fmt.Sprint(own.PID) != pid {
		t.Errorf("the program is %s and read %v; Start returned %v", pid, own.Identity, r.Identity)
	}
	if now, ok := Of(r.PID); !ok || now != r.Identity {
		t.Errorf("after exec the identity is %v, recorded was %v", now, r.Identity)
	}
}

func TestStartOfWhatEndsAtOnce(t *testing.T) {
	dir := t.TempDir()
	_, _, err := Start(limited(t), dir, Spec{Name: "e", Launch: "l", Argv: []string{"no-such-program-anywhere"}}, become(t))
	if err == nil || !strings.Contains(err.Error(), "executable file not found") {
		t.Fatalf("got %v, want the program's own reason", err)
	}
	if _, ok := Read(dir, "e"); ok {
		t.Error("a record stands for a process that never ran")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.spec-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStartRefusesNames(t *testing.T) {
	for _, name := range []string{"", "../x", "a/b", ".hidden", strings.Repeat("x", 200)} {
		if _, _, err := Start(limited(t), t.TempDir(), Spec{Name: name, Argv: []string{"true"}}, become(t)); err == nil {
			t.Errorf("name %.20q was taken", name)
		}
	}
	if _, _, err := Start(limited(t), t.TempDir(), Spec{Name: "e"}, become(t)); err == nil {
		t.Error("a spec without a command was taken")
	}
}

// TestEnvironment starts a program that is found only on the spec's own PATH, which
// must also be the one PATH that the program sees. Secrets are inherited by name.
func TestEnvironment(t *testing.T) {
	dir := t.TempDir()
	ready := fifo(t, dir)
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n/usr/bin/env >" + ready + "\nexec /bin/sleep 600\n"
	if err := os.WriteFile(filepath.Join(bin, "only-here"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("A_SECRET", "s3cret")
	t.Setenv("NOT_NAMED", "stays")
	spec := Spec{Name: "e", Launch: "l", Argv: []string{"only-here"}, Env: map[string]string{"PATH": bin, "UCX_TLS": "tcp"}, Inherit: []string{"A_SECRET"}}
	if _, _, err := Start(limited(t), dir, spec, become(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = Stop(context.Background(), dir, "e", 0) })
	env := strings.Split(wait(t, ready), "\n")
	var path []string
	has := map[string]bool{}
	for _, line := range env {
		has[line] = true
		if strings.HasPrefix(line, "PATH=") {
			path = append(path, line)
		}
	}
	if len(path) != 1 || path[0] != "PATH="+bin {
		t.Errorf("PATH is %v, want %s alone", path, bin)
	}
	if !has["UCX_TLS=tcp"] || !has["A_SECRET=s3cret"] || has["NOT_NAMED=stays"] {
		t.Errorf("environment %v", env)
	}
	rec, err := os.ReadFile(filepath.Join(dir, "e.json"))
	if err != nil || strings.Contains(string(rec), "s3cret") {
		t.Errorf("the record holds the secret, or cannot be read: %v", err)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped by hand")
	// The become command waits for ever and never records anything.
	stopped := time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	defer stopped.Stop()
	_, _, err := Start(ctx, dir, Spec{Name: "e", Launch: "l", Argv: []string{"true"}}, []string{"sh", "-c", "echo $$ >" + filepath.Join(dir, "pid") + "; exec sleep 600"})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	var pid int
	if b, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil {
		if _, err := fmt.Sscan(string(b), &pid); err == nil {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	for name, body := range map[string]string{
		"a.json": `{"name":"a","pid":1}`, "b.json": `{"name":"other","pid":1}`, "c.json": `not json`, "d.log": `x`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := List(dir); len(got) != 1 || got[0].Name != "a" {
		t.Errorf("got %+v, want a alone", got)
	}
	if got := List(filepath.Join(dir, "none")); got != nil {
		t.Errorf("got %+v of no folder", got)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 500)+"\nthe end\xff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Tail(path, 10); got != "the end?" {
		t.Errorf("got %q", got)
	}
	if got := Tail(path+".none", 10); got != "" {
		t.Errorf("got %q of no file", got)
	}
}

// spawn runs a program outside of Start, as somebody else's process.
func spawn(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}
