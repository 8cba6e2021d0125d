package lease

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	childEnv = "LEASE_TEST_CHILD" // "hold <path>" or "wait"
	// An hour: whatever is claimed below was not claimed by expiry.
	longTTL = time.Hour
)

// TestMain is also the holder that the tests kill, and its child that outlives it.
func TestMain(m *testing.M) {
	switch verb, path, _ := strings.Cut(os.Getenv(childEnv), " "); verb {
	case "hold":
		holdUntilKilled(path)
	case "wait":
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test's end of the pipe
	default:
		os.Exit(m.Run())
	}
}

func holdUntilKilled(path string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	l, err := NewFile(FileOptions{Path: path, Holder: NewHolder("child"), TTL: longTTL, Margin: time.Second, Proof: ProofOn})
	fail(err)
	term, err := l.Claim(context.Background())
	fail(err)
	child := exec.Command(os.Args[0])
	child.Env, child.Stdin = append(os.Environ(), childEnv+"=wait"), os.Stdin
	fail(child.Start())
	fmt.Printf("holds %d\n", term.Epoch)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// startHolder returns a process that holds the lease at path and has a child.
func startHolder(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"=hold "+path)
	in, err := c.StdinPipe()
	check(t, err)
	out, err := c.StdoutPipe()
	check(t, err)
	check(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = in.Close()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "holds ") {
		t.Fatalf("holder: %q, %v", line, err)
	}
	return c
}

func openLong(t *testing.T, path string) *File {
	t.Helper()
	l, err := NewFile(FileOptions{Path: path, Holder: NewHolder("standby"), TTL: longTTL, Margin: time.Second, Proof: ProofOn})
	check(t, err)
	t.Cleanup(l.Close)
	return l
}

// TestKilledHolder: the first claim after the end of the process succeeds, though a child
// of it lives on.
func TestKilledHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	holder := startHolder(t, path)
	l := openLong(t, path)
	d, err := l.Look(t.Context())
	check(t, err)
	wantHeld(t, l, d.Holder)
	killed := time.Now()
	check(t, holder.Process.Kill())
	state, err := holder.Process.Wait()
	check(t, err)
	if state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("holder ended by itself: %v", state)
	}
	term := claim(t, l)
	gap := time.Since(killed)
	t.Logf("claimed %v after the kill", gap)
	if term.Epoch != d.Epoch+1 || gap > 5*time.Second {
		t.Errorf("claimed epoch %d after %d in %v", term.Epoch, d.Epoch, gap)
	}
}

// TestStoppedHolder keeps its lease: its process could go on at any moment.
func TestStoppedHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	holder := startHolder(t, path)
	check(t, holder.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(holder.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("stop holder: %v, %v", status, err)
	}
	l := openLong(t, path)
	d, err := l.Look(t.Context())
	check(t, err)
	wantHeld(t, l, d.Holder)
}
