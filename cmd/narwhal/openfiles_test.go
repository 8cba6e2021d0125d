package main

import (
	"os/exec"
	"strings"
	"testing"
)

// A limit of open files that the requests at once do not fit into is told, and serves.
func TestFewOpenFiles(t *testing.T) {
	p := newPlainFleet(t)
	for most, warned := range map[string]bool{"8": false, "300": true} {
		serve := p.command("--listen", "127.0.0.1:0", "--max-concurrent", most)
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -n 128; exec "$0" "$@"`}, serve.Args...)...)
		cmd.Dir, cmd.Env = serve.Dir, serve.Env
		var errs outputSoFar
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "the router to serve", func() bool { return servingOn.MatchString(errs.String()) })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if got := strings.Contains(errs.String(), "128 open files are allowed"); got != warned {
			t.Errorf("with %s requests: %s", most, errs.String())
		}
	}
}
