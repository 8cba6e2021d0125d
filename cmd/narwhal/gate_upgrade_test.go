package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// newerRelease is the program with other bytes: a release of its own that does the same.
func (w *world) newerRelease() string {
	w.t.Helper()
	b, err := os.ReadFile(w.bin)
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.dir, "narwhal-newer")
	if err := os.WriteFile(path, append(b, "newer"...), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// clients stream completions from whichever router admits, as behind a load balancer.
type clients struct {
	routers []string

	mu      sync.Mutex
	streams []streamed
	broken  []string
}

// streamed is one stream; waited is for how long nobody admitted it.
type streamed struct {
	begin, end time.Time
	waited     time.Duration
}

// run streams until ctx ends and every stream that began has ended.
func (c *clients) run(ctx context.Context, n int) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				c.one(ctx)
			}
		})
	}
	wg.Wait()
}

func (c *clients) one(ctx context.Context) {
	first := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		resp, err := http.Post("http://"+c.routers[i%len(c.routers)]+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a whale","max_tokens":130,"ignore_eos":true,"stream":true}`))
		if err == nil && resp.StatusCode != http.StatusOK {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			if i%len(c.routers) == len(c.routers)-1 {
				time.Sleep(2 * time.Millisecond) // a balancer's pause after all have refused
			}
			continue
		}
		s := streamed{begin: time.Now(), waited: time.Since(first)}
		last, fault := read(resp.Body)
		_ = resp.Body.Close()
		s.end = time.Now()
		c.mu.Lock()
		c.streams = append(c.streams, s)
		if fault != nil || last != "data: [DONE]" {
			c.broken = append(c.broken, fmt.Sprintf("%q, %v", last, fault))
		}
		c.mu.Unlock()
		return
	}
}

// read returns the last line of a stream that says something.
func read(r io.Reader) (last string, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if lines.Text() != "" {
			last = lines.Text()
		}
	}
	return last, lines.Err()
}

// admits is the epoch under which a router admits requests, 0 while it does not.
func admits(addr string) (epoch int) {
	resp, err := http.Get("http://" + addr + "/ready")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var said struct{ Epoch int }
	if json.NewDecoder(resp.Body).Decode(&said) != nil || resp.StatusCode != http.StatusOK {
		return 0
	}
	return said.Epoch
}

// drains are the newest ends of the router and the standby.
func (w *world) drains() map[string]gates.Drained {
	w.t.Helper()
	snap := w.latest()
	out := map[string]gates.Drained{}
	for name, key := range map[string]record.Key{"router": "G/drain", "standby": "G/drain-standby"} {
		e, ok := snap.State.Evidence(key)
		if !ok {
			continue
		}
		var d gates.Drained
		b, err := snap.Load(e.Ref)
		if err == nil {
			err = json.Unmarshal(b, &d)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		out[name] = d
	}
	return out
}

// TestUpgradeWithHandOver brings a new release to a served fleet: the standby takes the router's
// place and gives it back while streams are open, and no request waits for a second.
func TestUpgradeWithHandOver(t *testing.T) {
	w := newWorld(t, 2, nil)
	c := &clients{}
	w.rewrite(func(doc map[string]any) {
		for _, h := range w.sbx.Hosts {
			c.routers = append(c.routers, fmt.Sprintf("127.0.0.1:%d", h.Ports.Router))
		}
		r := doc["deploy"].(map[string]any)["router"].(map[string]any)
		r["standby"] = map[string]any{"host": w.sbx.Hosts[1].ID, "listen": c.routers[1]}
		r["lease"] = map[string]any{"path": filepath.Join(w.dir, "lease.json"), "ttl": "3s"}
	})
	w.must(0, w.gates())
	before := map[string]string{}
	for i, name := range []string{"router", "standby"} {
		r, _ := process.Read(filepath.Join(w.sbx.Hosts[i].Root, "run"), name)
		before[name] = r.Identity.String()
	}
	seq := w.latest().Seq
	w.bin = w.newerRelease()
	done, stop := make(chan ran, 1), make(chan struct{})
	cmd := w.command("gate", "run", "-f", w.fleet, "--yes", "--format", "json")
	go func() { done <- finish(t, cmd) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // the trial wants the router for itself
		defer close(stop)
		c.run(ctx, 3)
	}()
	await(t, "the router to serve again", func() bool { return admits(c.routers[0]) == 3 })
	cancel()
	<-stop
	r := <-done
	if got := w.reply(w.must(0, r)).states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	if got := made(t, w.latest(), seq); slices.ContainsFunc(got, func(k string) bool { return strings.HasPrefix(k, "C/") || strings.HasPrefix(k, "F/") }) {
		t.Errorf("made again %v", got)
	}
	drains := w.drains()
	for i, name := range []string{"router", "standby"} {
		d := drains[name]
		if d.ID != before[name] && name == "router" || d.Succeeded == nil || !d.Succeeded.Ready || d.Succeeded.GapMS > 1000 || d.Killed || d.Cut == nil || *d.Cut != 0 {
			t.Errorf("%s ended so: %+v, successor %+v", name, d, d.Succeeded)
		}
		p, ok := process.Read(filepath.Join(w.sbx.Hosts[i].Root, "run"), name)
		if !ok || !p.Alive() || p.Identity.String() == before[name] {
			t.Errorf("%s is %+v", name, p.Identity)
		}
	}
	if s := w.standing(); !s.Standing || s.Epoch != 3 || !strings.HasPrefix(s.Holder, w.sbx.Hosts[0].ID+"/router:") {
		t.Errorf("%+v", s)
	}
	if len(c.broken) > 0 || len(c.streams) < 5 {
		t.Errorf("%d streams, broken: %v", len(c.streams), c.broken)
	}
	for _, s := range c.streams {
		if s.waited > time.Second {
			t.Errorf("a request was refused for %s", s.waited)
		}
	}
	if d := drains["router"]; d.TookMS <= d.Succeeded.GapMS {
		t.Errorf("the router ended in %d ms, before the standby served after %d ms: no stream was open", d.TookMS, d.Succeeded.GapMS)
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	t.Run("profiles are measured anew", func(t *testing.T) {
		w.must(0, w.gates("--again", "F"))
		store, ok := w.latest().State.Evidence("F/store")
		for i, name := range []string{"router", "standby"} {
			b, err := os.ReadFile(filepath.Join(w.sbx.Hosts[i].Root, name, "profiles.json"))
			if sum := sha256.Sum256(b); err != nil || !ok || hex.EncodeToString(sum[:]) != store.Ref.SHA256 {
				t.Errorf("%s has other profiles: %v", name, err)
			}
		}
		if s := w.standing(); !s.Standing || s.Epoch != 5 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("the command is killed between the two hand-overs", func(t *testing.T) {
		w.rewrite(func(doc map[string]any) { doc["slo"].(map[string]any)["ttft_s"] = 1.7 })
		cmd := w.command("gate", "run", "-f", w.fleet, "--yes")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "the standby to serve", func() bool { return admits(c.routers[1]) == 6 })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if got := w.reply(w.must(0, w.gates())).states(); got != allPassed {
			t.Errorf("gates are %s", got)
		}
		if s := w.standing(); !s.Standing || s.Epoch != 7 || !strings.HasPrefix(s.Holder, w.sbx.Hosts[0].ID+"/router:") {
			t.Errorf("%+v", s)
		}
	})
	t.Run("a rollback lets open streams end", func(t *testing.T) {
		last, begun := &clients{routers: c.routers[:1]}, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { defer close(begun); last.run(ctx, 2) }()
		await(t, "a stream to end", func() bool {
			last.mu.Lock()
			defer last.mu.Unlock()
			return len(last.streams) > 0
		})
		ended := time.AfterFunc(time.Minute, cancel)
		defer ended.Stop()
		back := w.reply(w.must(0, w.run("gate", "rollback", "--to", "F", "-f", w.fleet, "--yes", "--format", "json")))
		if !slices.Contains(back.Data.Stopped, "router") || !slices.Contains(back.Data.Stopped, "standby") {
			t.Errorf("stopped %v", back.Data.Stopped)
		}
		cancel()
		<-begun
		if len(last.broken) > 0 {
			t.Errorf("broken: %v", last.broken)
		}
	})
}

// TestUpgradeWithoutStandby drains the router before the new one starts: a stream that is open
// ends whole.
func TestUpgradeWithoutStandby(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, nil)
	w.must(0, w.gates())
	c := &clients{routers: []string{fmt.Sprintf("127.0.0.1:%d", w.sbx.Hosts[0].Ports.Router)}}
	w.bin = w.newerRelease()
	cmd := w.command("gate", "run", "-f", w.fleet, "--yes", "--format", "json")
	done, stop := make(chan ran, 1), make(chan struct{})
	old, _ := process.Read(filepath.Join(w.sbx.Hosts[0].Root, "run"), "router")
	sidecar, _ := process.Read(filepath.Join(w.sbx.Hosts[0].Root, "run"), "sidecar-e0")
	go func() { done <- finish(t, cmd) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { defer close(stop); c.run(ctx, 2) }()
	await(t, "the old router to end", func() bool { return !old.Alive() })
	cancel()
	<-stop
	if got := w.reply(w.must(0, <-done)).states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	drains := w.drains()
	if now, ok := process.Read(filepath.Join(w.sbx.Hosts[0].Root, "run"), "sidecar-e0"); sidecar.Name == "" || sidecar.Alive() || !ok || !now.Alive() {
		t.Errorf("the sidecar of the former release is alive: %v, its successor is %+v", sidecar.Alive(), now)
	}
	if d := drains["router"]; d.ID != old.Identity.String() || d.Killed || d.Cut == nil || *d.Cut != 0 || d.Succeeded != nil {
		t.Errorf("the router ended so: %+v", d)
	}
	if len(c.broken) > 0 {
		t.Errorf("broken: %v", c.broken)
	}
}
