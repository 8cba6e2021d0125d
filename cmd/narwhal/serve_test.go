package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/simulatedtest"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// plainFleet is a served fleet without a pipeline: two engines in this process, a plain
// document and profiles.
type plainFleet struct {
	engines  []*simulated.Server // as in the document
	t        *testing.T
	bin, dir string
	fleet    string
}

// plainFolder is where a document and its engines will be.
func plainFolder(t *testing.T) *plainFleet {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &plainFleet{t: t, bin: bin, dir: t.TempDir()}
	p.fleet = filepath.Join(p.dir, "fleet.json")
	return p
}

func newPlainFleet(t *testing.T) *plainFleet {
	t.Helper()
	p := plainFolder(t)
	var engines []any
	var rows []profile.Row
	for _, e := range [][2]string{{"p0", "prefill"}, {"d0", "decode"}} {
		s := simulatedtest.Start(t, simulated.Config{Model: "tern-tiny", SideChannel: "127.0.0.1:0",
			Simulated: fleet.Simulated{PrefillA: 0.002, PrefillB: 2e-6, DecodeD: 0.002, DecodeE: 1e-5, BlockSize: 16, Blocks: 2049, MaxModelLen: 8192, MaxNumSeqs: 64, MaxBatched: 8192, LeaseS: 20}}, nil)
		p.engines = append(p.engines, s)
		c, err := engine.NewClient(s.URL(), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		id, err := c.Identity(t.Context())
		c.Close()
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, map[string]any{"iid": e[0], "url": s.URL(), "role": e[1]})
		rows = append(rows, profile.NewRow(e[0], router.IdentityDigest(id), profile.Curve{B: 2e-6, C: 0.002, RequestSlope: 1e-5, Intercept: 0.002,
			MinRequests: 1, MaxRequests: 64, MinKVTokens: 1, MaxKVTokens: 30000}, profile.Report{}))
	}
	store, err := profile.NewStore(nil, rows...).Encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.dir, "profiles.json")
	doc, err := json.Marshal(map[string]any{"schema": "narwhal.fleet", "schema_version": 2, "model": "tern-tiny", "slo": map[string]any{"ttft_s": 2.0, "tpot_s": 0.1},
		"engines": engines, "profiles": map[string]any{"path": path}})
	if err != nil {
		t.Fatal(err)
	}
	for file, b := range map[string][]byte{path: store, p.fleet: doc} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *plainFleet) command(args ...string) *exec.Cmd {
	return execCommand(p.bin, p.dir, filepath.Join(p.dir, "state"), append([]string{"serve", "-f", p.fleet}, args...)...)
}

// outputSoFar is a standard error that is read while its process writes.
type outputSoFar struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *outputSoFar) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *outputSoFar) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

var servingOn = regexp.MustCompile(`narwhal: serving \S+ on (\S+)\n`)

var waitingOn = regexp.MustCompile(`waiting to serve \S+ on (\S+)\n`)

// serve starts a router and returns it with its address.
func (p *plainFleet) serve(args ...string) (*exec.Cmd, string) {
	p.t.Helper()
	cmd := p.command(append([]string{"--listen", "127.0.0.1:0"}, args...)...)
	var errs outputSoFar
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var at []string
	await(p.t, "the router to serve", func() bool {
		at = servingOn.FindStringSubmatch(errs.String())
		return at != nil
	})
	return cmd, at[1]
}

func TestSecondServeIsLocked(t *testing.T) {
	p := newPlainFleet(t)
	first, addr := p.serve()
	r := finish(t, p.command("--listen", "127.0.0.1:0"))
	if r.code != 5 || !strings.Contains(r.err, "hint:") || !strings.Contains(r.err, "--journal") {
		t.Errorf("second: exit %d\n%s", r.code, r.err)
	}
	// The same address as well: the holder is named, not only the port.
	if r := finish(t, p.command("--listen", addr)); r.code != 5 {
		t.Errorf("second on the same address: exit %d\n%s", r.code, r.err)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	p.serve()
}

func TestServeEndsOrderlyOnSignals(t *testing.T) {
	p := newPlainFleet(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd, addr := p.serve()
		resp, err := http.Get("http://" + addr + "/ready")
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("ready: %v %v", resp, err)
		}
		_ = resp.Body.Close()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != 0 {
			t.Errorf("%v: exit %d\n%s", sig, got, cmd.Stderr)
		}
	}
}

// A stream that outlasts the graceful limit is ended with an event, and the end is orderly.
func TestServeEndsOrderlyWithAnOpenStream(t *testing.T) {
	p := newPlainFleet(t)
	cmd, addr := p.serve("--graceful-timeout", "0")
	resp, err := http.Post("http://"+addr+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a whale","max_tokens":8000,"ignore_eos":true,"stream":true}`))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("stream: %v %v", resp, err)
	}
	defer resp.Body.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(all), `"error"`) {
		t.Errorf("stream ended %v with %q", err, all[max(0, len(all)-200):])
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 0 {
		t.Errorf("exit %d\n%s", got, cmd.Stderr)
	}
}

func TestServeArguments(t *testing.T) {
	p := newPlainFleet(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		args []string
		code int
		hint string
	}{
		{[]string{"--max-concurrent", "-5"}, 2, "--max-concurrent"},
		{[]string{"--max-concurrent=-1", "--check"}, 2, "--max-concurrent"},
		{[]string{"--graceful-timeout", "-7"}, 2, "--graceful-timeout"},
		{[]string{"--port", "99999"}, 2, "65535"},
		{[]string{"--port=-1"}, 2, "65535"},
		{[]string{"--listen", "127.0.0.1:99999"}, 2, "65535"},
		{[]string{"--listen", "127.0.0.1"}, 2, "--listen"},
		{[]string{"--listen", "127.0.0.1:http"}, 2, "65535"},
		{[]string{"--max-concurrent", "0"}, 2, "1 to 1000000 requests"},
		{[]string{"--graceful-timeout", "99999999"}, 2, "0 to 86400 s"},
		{[]string{"--graceful-timeout", "-1"}, 2, "0 to 86400 s"},
		{[]string{"--listen", "127.0.0.1:0", "--port", "8000"}, 2, "leave --port out"},
		{[]string{"--listen", "127.0.0.1:0", "--host", "127.0.0.1"}, 2, "leave --host out"},
		{[]string{"--idle-timeout", "0"}, 2, "--idle-timeout takes"},
		{[]string{"--header-timeout", "-3"}, 2, "--header-timeout takes"},
		{[]string{"--keep-alive", "NaN"}, 2, "--keep-alive takes"},
		{[]string{"--journal-max-age", "-1s"}, 2, "--journal-max-age takes"},
		{[]string{"--standby-takeover-after", "0"}, 2, "1 to 1000 looks"},
		{[]string{"--lease-path", "lease.json", "--router-id", "a\nb"}, 2, "--router-id NAME"},
		{[]string{"--listen", busy.Addr().String()}, 4, "ss -ltnp"},
		{[]string{"--listen", "192.0.2.1:0"}, 4, "address"},
	} {
		r := finish(t, p.command(c.args...))
		hint := r.err[strings.LastIndex(r.err, "hint:")+1:]
		if r.code != c.code || !strings.Contains(r.err, "hint:") || !strings.Contains(hint, c.hint) {
			t.Errorf("%v: exit %d, want %d\n%s", c.args, r.code, c.code, r.err)
		}
	}
	// A refused start leaves no line behind.
	if b, err := os.ReadFile(filepath.Join(p.dir, "journal.jsonl")); err == nil && len(b) > 0 {
		t.Errorf("journal holds %s", b)
	}
}

func TestTunnelArguments(t *testing.T) {
	w := newPlainFleet(t) // its document names no host: a tunnel that went on would fail otherwise
	for _, local := range []string{"foo", "0.0.0.0:1", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:x", "127.0.0.1:", "example.com:80", ":8000", "[::]:80"} {
		r := finish(t, execCommand(w.bin, w.dir, filepath.Join(w.dir, "state"), "tunnel", "-f", w.fleet, "--local", local))
		if r.code != 2 || !strings.Contains(r.err, "--local 127.0.0.1:") {
			t.Errorf("%s: exit %d\n%s", local, r.code, r.err)
		}
	}
	for _, local := range []string{"127.0.0.1:0", "localhost:8000", "[::1]:65535", "127.0.0.2:80"} {
		if err := loopbackAddress(local); err != nil {
			t.Errorf("%s: %v", local, err)
		}
	}
}

// TestTunnelEndsOrderlyOnSignals opens a real tunnel to a host of a sandbox.
func TestTunnelEndsOrderlyOnSignals(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.must(0, w.run("gate", "run", "-f", w.fleet, "--yes", "--to", "A"))
	standIn(t, w)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := w.command("tunnel", "-f", w.fleet)
		var out outputSoFar
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		await(t, "the tunnel", func() bool { return strings.Contains(out.String(), "router http://127.0.0.1:") })
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		stuck.Stop()
		if got := cmd.ProcessState.ExitCode(); got != 0 {
			t.Errorf("%v: exit %d", sig, got)
		}
	}
}
