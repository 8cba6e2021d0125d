package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// standIn answers at the address of a sandbox's router; the result ends it.
func standIn(t *testing.T, w *world) (end func()) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", w.sbx.Hosts[0].Ports.Router))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return func() { _ = s.Close() }
}

// A tunnel without a router at its end says so and ends; one whose router goes says that.
func TestTunnelLooksForTheRouter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, nil)
	w.must(0, w.run("gate", "run", "-f", w.fleet, "--yes", "--to", "A"))
	r := w.run("tunnel", "-f", w.fleet)
	if r.code != 4 || r.out != "" || !strings.Contains(r.err, "find the router behind the tunnel: ") || !strings.Contains(r.err, "narwhal gate run") {
		t.Errorf("exit %d, %q\n%s", r.code, r.out, r.err)
	}
	end := standIn(t, w)
	cmd := w.command("tunnel", "-f", w.fleet)
	var out outputSoFar
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	await(t, "the tunnel", func() bool { return strings.Contains(out.String(), "router http://127.0.0.1:") })
	end()
	await(t, "the router to be missed", func() bool { return strings.Contains(out.String(), "router does not answer (") })
	standIn(t, w)
	await(t, "the router to be back", func() bool { return strings.Contains(out.String(), "router answers again") })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || strings.Count(out.String(), "router does not answer") != 1 {
		t.Errorf("%v\n%s", err, out.String())
	}
}
