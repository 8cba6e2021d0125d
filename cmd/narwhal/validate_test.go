package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

const watched = `{"schema":"narwhal.fleet","schema_version":2,"model":"MODEL","engines":[{"iid":"a","url":"http://a:1"}],"slo":{"ttft_s":1,"tpot_s":0.1}}`

// --watch validates again when the file changes, and ends orderly.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fleet.json")
	write := func(model string) {
		// A rename, so that no half-written file is seen.
		if err := os.WriteFile(file+".new", []byte(strings.Replace(watched, "MODEL", model, 1)), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Error(err)
		}
	}
	write("one")
	out, in := io.Pipe()
	var errs bytes.Buffer
	a := &app{in: strings.NewReader(""), out: in, err: &errs, dir: dir, getenv: func(string) string { return "" }, environ: func() []string { return nil }}
	ctx, cancel := context.WithCancelCause(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"validate", "--watch", "fleet.json"}, a)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	expect := func(prefix string) {
		t.Helper()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), prefix) {
				return
			}
		}
		t.Fatalf("the output ended before %q", prefix)
	}
	expect("valid: one")
	write("another")
	expect("valid: another")
	expect("digest: ")
	cancel(interrupted(problem.Interrupted))
	for lines.Scan() {
	}
	if got := <-code; got != 130 {
		t.Errorf("exit code %d, want 130: %s", got, errs.String())
	}
}
