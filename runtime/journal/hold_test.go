package journal

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const holderEnv = "JOURNAL_TEST_HOLDS"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		writeUntilKilled(path)
	}
	if path := os.Getenv(holderEnv); path != "" {
		if _, err := Open(path, "child", Meta{}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		time.Sleep(time.Minute) // the parent kills it
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestOneWriterAJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	first, err := Open(path, "one", Meta{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Open(path, "two", Meta{})
	var held *ErrHeld
	if !errors.As(err, &held) {
		if second != nil {
			_ = second.Close(limited(t))
		}
		t.Fatalf("a second writer: %v", err)
	}
	if held.Path != path || held.PID != 0 && held.PID != os.Getpid() {
		t.Errorf("held %+v by %d", held, os.Getpid())
	}
	after, err := os.ReadFile(path)
	if err != nil || len(after) < len(before) {
		t.Errorf("the refused writer changed the file: %v", err)
	}
	if err := first.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	third, err := Open(path, "three", Meta{})
	if err != nil {
		t.Fatalf("after the first has closed: %v", err)
	}
	if err := third.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
}

func TestAKilledWriterHoldsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j.jsonl")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(limited(t), self)
	child.Env = append(os.Environ(), holderEnv+"="+path)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("child: %q, %v", line, err)
	}
	var held *ErrHeld
	if j, err := Open(path, "mine", Meta{}); !errors.As(err, &held) {
		if j != nil {
			_ = j.Close(limited(t))
		}
		t.Fatalf("beside a live writer: %v", err)
	}
	if held.PID != 0 && held.PID != child.Process.Pid {
		t.Errorf("named process %d, want %d", held.PID, child.Process.Pid)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	j, err := Open(path, "mine", Meta{})
	if err != nil {
		t.Fatalf("after kill: %v", err)
	}
	if err := j.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
}

func TestDevicesAreNotHeld(t *testing.T) {
	for range 2 {
		j, err := Open(os.DevNull, "run", Meta{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close(limited(t)) })
	}
}

func TestParseLocks(t *testing.T) {
	const text = "1: POSIX  ADVISORY  READ  7 08:01:42 128 128\n2: FLOCK  ADVISORY  WRITE 31 08:01:42 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 77 08:01:42 0 EOF\n3: FLOCK  ADVISORY  WRITE 99 08:01:43 0 EOF\nrubbish\n4: FLOCK ADVISORY WRITE x 08:01:44 0 EOF\n"
	for inode, want := range map[uint64]int{42: 31, 43: 99, 44: 0, 45: 0} {
		if got := lockHolder(text, inode); got != want {
			t.Errorf("inode %d: process %d, want %d", inode, got, want)
		}
	}
	// The same inode number on two devices names nobody.
	if got := lockHolder(text+"5: FLOCK  ADVISORY  WRITE 8 08:02:43 0 EOF\n", 43); got != 0 {
		t.Errorf("ambiguous: %d", got)
	}
}
