package record

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestKeys(t *testing.T) {
	k := NewKey("D", "edge", "h/1", "h 2")
	if k != "D/edge/h%2F1/h%202" || k.Gate() != "D" || k.Kind() != "edge" || !slices.Equal(k.Subjects(), []string{"h/1", "h 2"}) {
		t.Fatalf("key %q: %q %q %q", k, k.Gate(), k.Kind(), k.Subjects())
	}
}

func TestResolve(t *testing.T) {
	state := t.TempDir()
	ids := []string{NewID(start), NewID(start.Add(time.Millisecond)), NewID(start.Add(time.Hour))}
	if !slices.IsSorted(ids) || len(ids[0]) != len("20261129T185102.123Z-0a0b0c") {
		t.Fatalf("ids %v", ids)
	}
	if _, err := Resolve(state, "tern", "latest"); !errors.Is(err, ErrNoRun) {
		t.Fatalf("no runs: %v", err)
	}
	for _, id := range slices.Backward(ids) {
		dir, err := RunDir(state, "tern", id)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Create(dir, testHeader(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
	}
	if err := os.MkdirAll(filepath.Join(state, "tern", "runs", "99999999T000000Z-ffffff"), 0o700); err != nil {
		t.Fatal(err) // a run that was killed before its log appeared
	}
	for prefix, want := range map[string]string{"": ids[2], "latest": ids[2], ids[0]: ids[0], ids[1][:20]: ids[1]} {
		dir, err := Resolve(state, "tern", prefix)
		if err != nil || filepath.Base(dir) != want {
			t.Errorf("resolve %q: %s, %v; want %s", prefix, dir, err, want)
		}
	}
	var amb *AmbiguousError
	if _, err := Resolve(state, "tern", "2026"); !errors.As(err, &amb) || len(amb.Matches) != 3 {
		t.Errorf("ambiguous: %v", err)
	}
	if _, err := Resolve(state, "tern", "1999"); !errors.Is(err, ErrNoRun) {
		t.Errorf("unknown: %v", err)
	}
	for _, bad := range []string{"..", "", "a/b", ".hidden"} {
		if _, err := Resolve(state, bad, ""); err == nil {
			t.Errorf("fleet %q accepted", bad)
		}
	}
}

func holding(path string) int {
	if _, err := Acquire(path, Self("other-run"), time.Minute); err != nil {
		return 3
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 0
}

func TestLockEndsWithItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet", "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "RECORD_TEST_LOCK="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	var locked *LockedError
	_, err = Acquire(path, Self("mine"), time.Minute)
	if !errors.As(err, &locked) || locked.Holder.Run != "other-run" || locked.Holder.PID != cmd.Process.Pid || locked.Holder.StartTicks == 0 || time.Until(locked.Expires) <= 0 {
		t.Fatalf("second lock: %v %+v", err, locked)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	l, err := Acquire(path, Self("mine"), time.Minute)
	if err != nil {
		t.Fatalf("after the holder died: %v", err)
	}
	if _, err := Acquire(path, Self("third"), time.Minute); !errors.As(err, &locked) || locked.Holder.Run != "mine" {
		t.Fatalf("while held: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	l, err = Acquire(path, Self("third"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Release()
}
