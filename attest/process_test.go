package attest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/attest/look"
)

// engineStart is what every engine process of these tests reports, so that they all
// started in the same second.
const engineStart = 1764442262

// TestEngineProcess is no test: it is an engine of its own process, where the
// environment says on which address.
func TestEngineProcess(*testing.T) {
	address := os.Getenv("ENGINE_PROCESS")
	if address == "" {
		return
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("listening", l.Addr())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = io.WriteString(w, `{"version":"0.30.0"}`)
			return
		}
		_, _ = fmt.Fprintf(w, "process_start_time_seconds %d\n", engineStart)
	}))
}

// engineProcess is a real engine process, as gate C leaves one.
type engineProcess struct {
	cmd *exec.Cmd
	url string
	id  EngineIdentity
}

func (e *engineProcess) kill() {
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
}

func launchEngine(t *testing.T, address string) *engineProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestEngineProcess$", "--", "serve", "--block-size", "16")
	cmd.Env = append(os.Environ(), "ENGINE_PROCESS="+address, "UCX_TLS=tcp")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &engineProcess{cmd: cmd}
	t.Cleanup(e.kill)
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "listening ") {
		t.Fatalf("the engine says %q", lines.Text())
	}
	e.url = "http://" + strings.TrimPrefix(lines.Text(), "listening ")
	if e.id, err = ProcessIdentity(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	e.id.Version, e.id.ProcessStart = "0.30.0", engineStart
	return e
}

// sidecarOf serves a sidecar of the process behind an address.
func sidecarOf(t *testing.T, pid int, url string, w look.Watch, s *Signer) string {
	t.Helper()
	doc := testDocument()
	where, err := WatchTree(w)
	if err != nil {
		t.Fatal(err)
	}
	doc.Launch["watch"] = where
	side, err := NewSidecar(t.Context(), doc, HTTPIdentity{Base: url, PID: pid}, s)
	if err != nil {
		t.Fatal(err)
	}
	if side.looker, err = LookerOf(doc); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(side.Handler())
	t.Cleanup(srv.Close)
	return srv.URL
}

func stated(t *testing.T, sidecar, nonce string) []byte {
	t.Helper()
	b, err := RequestStatement(t.Context(), nil, sidecar, nonce)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// modelFolder is a checkpoint that lies there for an hour.
func modelFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"config.json": "{}", "tokenizer.json": "{}", "model-1.safetensors": "weights", "model-2.safetensors": "more"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// rewrite changes a file as somebody would who sets its times afterwards.
func rewrite(t *testing.T, path, text string, age time.Duration) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-age)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

// TestStatementsOfLiveProcesses attacks a real process that was launched, observed and
// attested once, each time in one way.
func TestStatementsOfLiveProcesses(t *testing.T) {
	s, other := keys()
	contract := testContract()
	nonce := NewNonce()
	if _, err := ProcessIdentity(os.Getpid()); err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	type scene struct {
		engine *engineProcess
		watch  look.Watch
		policy EnginePolicy
	}
	begin := func(t *testing.T, w look.Watch) *scene {
		e := launchEngine(t, "127.0.0.1:0")
		w.Engine = e.url
		doc := testDocument()
		var err error
		if doc.Launch["watch"], err = WatchTree(w); err != nil {
			t.Fatal(err)
		}
		digest, err := doc.LaunchDigest()
		if err != nil {
			t.Fatal(err)
		}
		seen, err := look.New(w, false).Look(t.Context(), e.id.PID, e.id.StartTicks)
		if err != nil {
			t.Fatal(err)
		}
		return &scene{engine: e, watch: w, policy: EnginePolicy{Key: s.Public(), Nonce: nonce, Contract: &contract, Identity: e.id, LaunchDigest: digest, Observed: seen}}
	}
	model := func(t *testing.T) look.Watch { return look.Watch{Model: modelFolder(t)} }
	cases := map[string]struct {
		watch  func(*testing.T) look.Watch
		attack func(*testing.T, *scene) []byte
		want   []string
	}{
		"as it was launched": {model, func(t *testing.T, c *scene) []byte {
			return stated(t, sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s), nonce)
		}, nil},
		"replay": {model, func(t *testing.T, c *scene) []byte {
			return stated(t, sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s), NewNonce())
		}, []string{"nonce"}},
		"clone with the same command line": {model, func(t *testing.T, c *scene) []byte {
			b := launchEngine(t, "127.0.0.1:0")
			c.watch.Engine = b.url
			c.policy.AnyLaunch, c.policy.LaunchDigest = true, "" // the address is part of the launch
			return stated(t, sidecarOf(t, b.id.PID, b.url, c.watch, s), nonce)
		}, []string{"pid", "start_ticks"}},
		"restart in the same second": {model, func(t *testing.T, c *scene) []byte {
			old := sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s)
			c.engine.kill()
			b := launchEngine(t, strings.TrimPrefix(c.engine.url, "http://"))
			if _, err := RequestStatement(t.Context(), nil, old, nonce); err == nil {
				t.Error("the old sidecar speaks for the new process")
			}
			return stated(t, sidecarOf(t, b.id.PID, b.url, c.watch, s), nonce)
		}, []string{"pid", "start_ticks"}},
		"the same pid in the same second": {model, func(t *testing.T, c *scene) []byte {
			c.policy.Identity.StartTicks-- // the kernel gave the pid again
			return stated(t, sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s), nonce)
		}, []string{"start_ticks"}},
		"another boot": {model, func(t *testing.T, c *scene) []byte {
			c.policy.Identity.BootID = "00000000-0000-0000-0000-000000000000"
			return stated(t, sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s), nonce)
		}, []string{"boot_id"}},
		"another process answers on the address": {model, func(t *testing.T, c *scene) []byte {
			b := launchEngine(t, "127.0.0.1:0")
			c.watch.Engine = b.url
			c.policy.AnyLaunch, c.policy.LaunchDigest = true, ""
			return stated(t, sidecarOf(t, c.engine.id.PID, b.url, c.watch, s), nonce)
		}, []string{"listener"}},
		"spoofed sidecar": {model, func(t *testing.T, c *scene) []byte {
			return stated(t, sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, other), nonce)
		}, []string{"unknown_key"}},
		"a file of the checkpoint changed": {model, func(t *testing.T, c *scene) []byte {
			side := sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s)
			stated(t, side, NewNonce())
			rewrite(t, filepath.Join(c.watch.Model, "model-2.safetensors"), "evil", time.Hour)
			return stated(t, side, nonce)
		}, []string{"checkpoint"}},
		"the tokenizer changed": {model, func(t *testing.T, c *scene) []byte {
			side := sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s)
			rewrite(t, filepath.Join(c.watch.Model, "tokenizer.json"), "[]", time.Hour)
			return stated(t, side, nonce)
		}, []string{"checkpoint", "tokenizer"}},
		"the model's configuration changed": {model, func(t *testing.T, c *scene) []byte {
			side := sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s)
			rewrite(t, filepath.Join(c.watch.Model, "config.json"), "[]", time.Hour)
			return stated(t, side, nonce)
		}, []string{"checkpoint", "engine_config"}},
		"a file changed under the running engine": {model, func(t *testing.T, c *scene) []byte {
			rewrite(t, filepath.Join(c.watch.Model, "model-1.safetensors"), "weights", -time.Minute)
			return stated(t, sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s), nonce)
		}, []string{"changed_since_start"}},
		"a file removed": {model, func(t *testing.T, c *scene) []byte {
			side := sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s)
			if err := os.Remove(filepath.Join(c.watch.Model, "model-1.safetensors")); err != nil {
				t.Fatal(err)
			}
			return stated(t, side, nonce)
		}, []string{"checkpoint"}},
		"the folder is gone": {model, func(t *testing.T, c *scene) []byte {
			side := sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s)
			if err := os.RemoveAll(c.watch.Model); err != nil {
				t.Fatal(err)
			}
			return stated(t, side, nonce)
		}, []string{"checkpoint", "tokenizer", "engine_config"}},
		"swapped container": {containerised, func(t *testing.T, c *scene) []byte {
			side := sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s)
			containerNow(t, c.watch, strings.Repeat("b", 64), c.engine.id.PID)
			return stated(t, side, nonce)
		}, []string{"container"}},
		"the container is gone": {containerised, func(t *testing.T, c *scene) []byte {
			side := sidecarOf(t, c.engine.id.PID, c.engine.url, c.watch, s)
			if err := os.Remove(containerFile(c.watch)); err != nil {
				t.Fatal(err)
			}
			return stated(t, side, nonce)
		}, []string{"container"}},
		"a statement without the host's part": {model, func(t *testing.T, c *scene) []byte {
			side, err := NewSidecar(t.Context(), func() Document {
				d := testDocument()
				d.Launch["watch"], _ = WatchTree(c.watch)
				return d
			}(), HTTPIdentity{Base: c.engine.url, PID: c.engine.id.PID}, s)
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(side.Handler())
			t.Cleanup(srv.Close)
			return stated(t, srv.URL, nonce)
		}, []string{"observation"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			sc := begin(t, c.watch(t))
			if sc.watch.Container != "" {
				containerNow(t, sc.watch, strings.Repeat("a", 64), sc.engine.id.PID)
				var err error
				if sc.policy.Observed, err = look.New(sc.watch, false).Look(t.Context(), sc.engine.id.PID, sc.engine.id.StartTicks); err != nil {
					t.Fatal(err)
				}
			}
			bundle := c.attack(t, sc)
			claim, err := VerifyEngine(bundle, sc.policy)
			got := Codes(err)
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.want))
			if !slices.Equal(got, want) || (err == nil) != (c.want == nil) {
				t.Fatalf("%v with codes %v, want %v", err, got, want)
			}
			if err == nil && claim.Observed.Check() != nil {
				t.Errorf("observed %v", claim.Observed)
			}
		})
	}
}

// containerised is a watch whose container runtime is a script that prints a file.
func containerised(t *testing.T) look.Watch {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "docker")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ncat \""+dir+"/state\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return look.Watch{Container: script + ":narwhal-tern-e"}
}

func containerFile(w look.Watch) string {
	runtime, _, _ := strings.Cut(w.Container, ":")
	return filepath.Join(filepath.Dir(runtime), "state")
}

func containerNow(t *testing.T, w look.Watch, id string, pid int) {
	t.Helper()
	if err := os.WriteFile(containerFile(w), fmt.Appendf(nil, "%s %d\n", id, pid), 0o600); err != nil {
		t.Fatal(err)
	}
}

// slow never ends a look before it is told.
type slow struct{ release chan struct{} }

func (s slow) Look(ctx context.Context, _ int, _ int64) (look.Observed, error) {
	select {
	case <-s.release:
		return look.Observed{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestALookOutlivesItsRequest lets a request give up while the files are hashed, and the
// next one find them read.
func TestALookOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &Sidecar{looker: slow{release}, looking: make(chan struct{}, 1), bound: EngineIdentity{PID: 1}}
		for range 2 { // the second waits for the first one's look
			if _, err := s.look(t.Context()); lookCode(err) != CodeLooking {
				t.Fatalf("%v", err)
			}
		}
		close(release)
		if seen, err := s.look(t.Context()); err != nil || seen == nil {
			t.Fatalf("%v, %v", seen, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.look(ctx); err == nil || lookCode(err) == CodeLooking {
			t.Fatalf("%v", err)
		}
	})
}
