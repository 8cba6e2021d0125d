package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// ended runs a command line that must end soon and returns its code and both outputs.
func ended(t *testing.T, ctx context.Context, a *app, args ...string) (code int, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	a.err = &errs
	if a.getenv == nil {
		a.getenv = func(string) string { return "" }
	}
	a.environ = func() []string { return nil }
	done := make(chan int, 1)
	go func() { done <- run(ctx, append(args, "--state", t.TempDir()), a) }()
	select {
	case code = <-done:
		return code, errs.String()
	case <-time.After(20 * time.Second):
		t.Fatalf("narwhal %s does not end", strings.Join(args, " "))
		return 0, ""
	}
}

// A pipe that nobody writes ends with the command's context, and a key is no pipe.
func TestPipesAsInput(t *testing.T) {
	dir := t.TempDir()
	fifo, plain := filepath.Join(dir, "bundle-fifo.tar.gz"), filepath.Join(dir, "plain.json")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plain, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer stdin.Close()
	for _, c := range []struct {
		want int
		args []string
	}{
		{143, []string{"validate", fifo}},
		{143, []string{"validate", "-"}},
		{143, []string{"validate", plain, fifo, "--format", "json"}},
		{143, []string{"gate", "status", "-f", fifo}},
		{143, []string{"gate", "runs", "-f", "-"}},
		{143, []string{"attest", "verify", fifo, "--key", plain, "--type", "x:y"}},
		{143, []string{"attest", "verify", plain, fifo, "--key", plain, "--type", "x:y"}},
		{2, []string{"attest", "verify", plain, "--key", fifo, "--type", "x:y"}},
		{2, []string{"attest", "create", plain, "--key", fifo, "--type", "x:y"}},
		{2, []string{"keys", "show", "-o", fifo}},
		{2, []string{"keys", "generate", "-o", filepath.Join(dir, "k"), "--passphrase", "file:" + fifo}},
		{2, []string{"bundle", "verify", fifo}},
		{2, []string{"bundle", "show", fifo}},
		{0, []string{"bundle", "list"}},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.want == problem.Terminated.Exit() {
			cancel(interrupted(problem.Terminated))
		}
		code, errs := ended(t, ctx, &app{in: stdin, out: io.Discard, dir: dir}, c.args...)
		cancel(nil)
		if code != c.want {
			t.Errorf("%v ended with %d, want %d: %s", c.args, code, c.want, errs)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A result that cannot be written is an error; a reader that goes away is none.
func TestLostOutput(t *testing.T) {
	dir := t.TempDir()
	fleet := filepath.Join(dir, "f.json")
	if err := os.WriteFile(fleet, []byte(strings.Replace(watched, "MODEL", "m", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	closed, err := os.Create(filepath.Join(dir, "closed"))
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, args := range [][]string{
		{"version"}, {"version", "--format", "json"}, {"validate", fleet}, {"validate", fleet, "--effective"}, {"validate", fleet, "--format", "sarif"},
		{"schema", "export"}, {"schema", "rules"}, {"preset", "show", "sandbox"}, {"preset", "init", "sandbox", "-o", "-"}, {"bundle", "list", "--format", "json"},
		{"--help"}, {"gate"}, {"help", "gate"},
	} {
		for _, c := range []struct {
			name string
			out  io.Writer
			want int
		}{{"/dev/full", full, 4}, {"a closed file", closed, 4}, {"a pipe without reader", brokenPipe{}, 0}} {
			code, errs := ended(t, t.Context(), &app{in: strings.NewReader(""), out: c.out, dir: dir}, args...)
			if code != c.want || (c.want == 4) != strings.Contains(errs, "narwhal: error: write the result: ") {
				t.Errorf("%v into %s ended with %d, want %d: %q", args, c.name, code, c.want, errs)
			}
		}
	}
}

// --watch ends when nobody reads.
func TestWatchEndsWithItsReader(t *testing.T) {
	dir := t.TempDir()
	fleet := filepath.Join(dir, "f.json")
	if err := os.WriteFile(fleet, []byte(strings.Replace(watched, "MODEL", "m", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, errs := ended(t, t.Context(), &app{in: strings.NewReader(""), out: brokenPipe{}, dir: dir}, "validate", "--watch", fleet); code != 0 || errs != "" {
		t.Errorf("ended with %d: %s", code, errs)
	}
}
