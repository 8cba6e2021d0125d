package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started is a router whose standard error is kept.
func (p *plainFleet) started(cmd *exec.Cmd) (addr string, errs *outputSoFar) {
	p.t.Helper()
	errs = &outputSoFar{}
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var at []string
	await(p.t, "the router to serve", func() bool {
		at = servingOn.FindStringSubmatch(errs.String())
		return at != nil
	})
	return at[1], errs
}

func (p *plainFleet) ask(addr string) {
	p.t.Helper()
	resp, err := http.Post("http://"+addr+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "Say hello", "max_tokens": 4}`))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		p.t.Fatalf("answered %d", resp.StatusCode)
	}
}

// A journal whose folder went away goes on in a new one, and the log says so.
func TestServeMissesItsJournal(t *testing.T) {
	p := newPlainFleet(t)
	path := filepath.Join(p.dir, "rows", "j.jsonl")
	cmd := p.command("--listen", "127.0.0.1:0", "--journal", path)
	addr, errs := p.started(cmd)
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	p.ask(addr)
	await(t, "the row", func() bool {
		b, _ := os.ReadFile(path)
		return strings.Contains(string(b), `"terminal"`) && strings.Contains(string(b), "journal_reopened")
	})
	if got := errs.String(); !strings.Contains(got, "journal file was removed") || !strings.Contains(got, path) {
		t.Errorf("the log says %s", got)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("ends with %v", err)
	}
}

// A router that cannot write its rows says so while it runs, and ends with 4.
func TestServeLosesRowsAloud(t *testing.T) {
	p := newPlainFleet(t)
	inner := p.command("--listen", "127.0.0.1:0", "--journal", filepath.Join(p.dir, "j.jsonl"))
	cmd := exec.Command("/bin/sh", append([]string{"-c", `ulimit -f 8; exec "$0" "$@"`}, inner.Args...)...)
	cmd.Dir, cmd.Env = inner.Dir, inner.Env
	addr, errs := p.started(cmd)
	await(t, "the warning", func() bool {
		p.ask(addr)
		return strings.Contains(errs.String(), "journal cannot be written")
	})
	p.ask(addr)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if got := errs.String(); cmd.ProcessState.ExitCode() != 4 || !strings.Contains(got, "lines are lost") || strings.Count(got, "journal cannot be written") != 1 {
		t.Errorf("exit %d\n%s", cmd.ProcessState.ExitCode(), got)
	}
}

// A log that nobody reads holds neither the journal nor the end of the router.
func TestServeDoesNotWaitForItsLog(t *testing.T) {
	p := newPlainFleet(t)
	path, pipe := filepath.Join(p.dir, "j.jsonl"), filepath.Join(p.dir, "log")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := func(flag int) *os.File {
		f, err := os.OpenFile(pipe, flag|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	read, write, filler := opened(os.O_RDONLY), opened(os.O_WRONLY), opened(os.O_WRONLY)
	cmd := p.command("--listen", "127.0.0.1:0", "--journal", path)
	cmd.Stderr = write // which blocks from here on
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_ = read.SetReadDeadline(time.Now().Add(30 * time.Second))
	var said []byte
	for !servingOn.Match(said) {
		b := make([]byte, 4096)
		n, err := read.Read(b)
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		said = append(said, b[:n]...)
	}
	at := string(servingOn.FindSubmatch(said)[1])
	_ = filler.SetWriteDeadline(time.Now().Add(time.Second))
	var err error
	for err == nil {
		_, err = filler.Write([]byte(strings.Repeat("x", 511) + "\n"))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	p.ask(at)
	await(t, "the row in a new journal", func() bool {
		b, _ := os.ReadFile(path)
		return strings.Contains(string(b), `"terminal"`)
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ends with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
}
