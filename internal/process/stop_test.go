package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopWithTerm(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, "e", "l", forever)
	got, err := Stop(limited(t), dir, "e", 10*time.Second)
	if err != nil || !got.Was || got.Killed || got.PID != r.PID {
		t.Fatalf("got %+v, %v", got, err)
	}
	if r.Alive() {
		t.Error("it still runs")
	}
	if _, ok := Read(dir, "e"); ok {
		t.Error("its record stands")
	}
	again, err := Stop(limited(t), dir, "e", time.Second)
	if err != nil || again.Was || again.Killed {
		t.Errorf("stopping again: %+v, %v", again, err)
	}
}

func TestStopKillsWhatIgnoresTerm(t *testing.T) {
	dir := t.TempDir()
	ready := fifo(t, dir)
	r := start(t, dir, "e", "l", `trap '' TERM; echo up >"$1/ready"; while :; do sleep 600; done`)
	wait(t, ready)
	got, err := Stop(limited(t), dir, "e", 100*time.Millisecond)
	if err != nil || !got.Was || !got.Killed {
		t.Fatalf("got %+v, %v; want it killed", got, err)
	}
	if r.Alive() || groupAlive(r.PID) {
		t.Error("something of it still runs")
	}
}

// TestStopEndsTheGroup has a leader that ends on TERM and a child that ignores it.
func TestStopEndsTheGroup(t *testing.T) {
	dir := t.TempDir()
	ready := fifo(t, dir)
	r := start(t, dir, "e", "l", `sh -c 'trap "" TERM; echo up >"$1/ready"; while :; do sleep 600; done' sh "$1" & trap 'exit 0' TERM; wait; wait`)
	wait(t, ready)
	got, err := Stop(limited(t), dir, "e", 200*time.Millisecond)
	if err != nil || !got.Killed {
		t.Fatalf("got %+v, %v", got, err)
	}
	if groupAlive(r.PID) {
		t.Error("the child outlived its session's leader")
	}
}

// TestStopEndsOrphans has a leader that died by itself and left a child behind.
func TestStopEndsOrphans(t *testing.T) {
	dir := t.TempDir()
	ready := fifo(t, dir)
	r := start(t, dir, "e", "l", `sleep 600 & echo up >"$1/ready"; while :; do sleep 600; done`)
	wait(t, ready)
	if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for r.Alive() {
		time.Sleep(time.Millisecond)
	}
	got, err := Stop(limited(t), dir, "e", 5*time.Second)
	if err != nil || !got.Was || groupAlive(r.PID) {
		t.Fatalf("got %+v, %v, group alive %v", got, err, groupAlive(r.PID))
	}
}

// TestStopSparesARecycledPid records an identity whose pid now belongs to another process.
func TestStopSparesARecycledPid(t *testing.T) {
	dir := t.TempDir()
	other := spawn(t, "sleep", "600")
	id, ok := Of(other.Process.Pid)
	if !ok {
		t.Fatal("no identity")
	}
	for name, change := range map[string]func(*Identity){
		"started at another tick": func(i *Identity) { i.StartTicks-- },
		"in another boot":         func(i *Identity) { i.BootID = "00000000-0000-0000-0000-000000000000" },
	} {
		old := id
		change(&old)
		path, _, _ := paths(dir, "e")
		if err := write(path, Record{Spec: Spec{Name: "e", Launch: "l"}, Identity: old}); err != nil {
			t.Fatal(err)
		}
		if old.Alive() {
			t.Errorf("%s: it counts as alive", name)
		}
		got, err := Stop(limited(t), dir, "e", time.Second)
		if err != nil || got.Was || got.Killed {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if !id.Alive() {
			t.Fatalf("%s: the other process was signalled", name)
		}
	}
}

// TestStopEndsWithItsContext keeps process and record when the caller gives up.
func TestStopEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	ready := fifo(t, dir)
	r := start(t, dir, "e", "l", `trap '' TERM; echo up >"$1/ready"; while :; do sleep 600; done`)
	wait(t, ready)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Stop(ctx, dir, "e", time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if _, ok := Read(dir, "e"); !ok || !r.Alive() {
		t.Error("the process was killed, or its record removed, although the caller gave up")
	}
}

// TestForgetSparesASuccessor keeps a record that another process wrote meanwhile.
func TestForgetSparesASuccessor(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, "e", "l", forever)
	old := r.Identity
	old.StartTicks--
	if err := forget(dir, "e", old); err != nil {
		t.Fatal(err)
	}
	if now, ok := Read(dir, "e"); !ok || now.Identity != r.Identity {
		t.Error("the successor's record is gone")
	}
}

func TestStopRefusesNames(t *testing.T) {
	if _, err := Stop(limited(t), t.TempDir(), "../e", time.Second); err == nil {
		t.Error("a path was taken for a name")
	}
}

func TestIdentityOfNothing(t *testing.T) {
	for _, pid := range []int{0, -1} {
		if _, ok := Of(pid); ok {
			t.Errorf("pid %d has an identity", pid)
		}
	}
	cmd := spawn(t, "true")
	for { // it becomes a zombie, which is not alive
		if _, ok := Of(cmd.Process.Pid); !ok {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if syscall.Kill(cmd.Process.Pid, 0) != nil {
		t.Error("there is no zombie: this shows nothing")
	}
}

// TestProgramNameWithParentheses reads the start of a process whose name imitates stat's fields.
func TestProgramNameWithParentheses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a) R 1 (b")
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skipf("needs /bin/sleep: %v", err)
	}
	if err := os.WriteFile(path, sleep, 0o700); err != nil {
		t.Fatal(err)
	}
	before, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	id, ok := Of(spawn(t, path, "600").Process.Pid)
	if !ok || id.StartTicks < before.StartTicks || id.StartTicks > before.StartTicks+100*3600 {
		t.Errorf("got %+v, %v; own start is %d", id, ok, before.StartTicks)
	}
	if s := id.String(); !strings.HasPrefix(s, id.BootID[:8]+":") {
		t.Errorf("got %q", s)
	}
}

// TestStopRunsWhatComesAfter has a clean-up that fails first: the record then stays, and
// the same stop finishes it.
func TestStopRunsWhatComesAfter(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "allowed")
	spec := Spec{Name: "c", Launch: "l", Argv: []string{"sh", "-c", forever}, After: []string{"sh", "-c", `test -e "$1" && echo done >"$1"`, "sh", mark}}
	r, _, err := Start(limited(t), dir, spec, become(t))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Stop(limited(t), dir, "c", 10*time.Second); err == nil || !got.Was || r.Alive() {
		t.Fatalf("got %+v, %v; want it stopped and the clean-up's failure", got, err)
	}
	if _, ok := Read(dir, "c"); !ok {
		t.Fatal("the record is gone although something was left behind")
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Stop(limited(t), dir, "c", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(mark); string(b) != "done\n" {
		t.Errorf("the clean-up left %q", b)
	}
	if _, ok := Read(dir, "c"); ok {
		t.Error("the record stands")
	}
}
