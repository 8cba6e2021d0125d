//go:build soak

package router

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

const engineEnv = "NARWHAL_SOAK_ENGINE"

// TestSoakEngine is no test: it is one engine in a process of its own.
func TestSoakEngine(t *testing.T) {
	raw := os.Getenv(engineEnv)
	if raw == "" {
		t.Skip("runs in a process of its own only")
	}
	var c simulated.Config
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		t.Fatal(err)
	}
	e, err := simulated.New(c)
	if err == nil {
		err = e.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("serves %s\n", e.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	e.Stop()
}

// process is an engine that a signal can kill.
type process struct {
	addr  string
	cmd   *exec.Cmd
	in    io.Closer
	ended chan struct{}
}

func soakEngine() simulated.Config {
	c := simulated.Config{Simulated: quick(), Model: modelName, SideChannel: "127.0.0.1:0"}
	stormEngine(&c)
	c.DecodeD, c.DecodeE, c.FailureControl = 0.05, 0, true
	return c
}

func spawnEngine(listen string) (*process, error) {
	c := soakEngine()
	c.Listen = listen
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(os.Args[0], "-test.run=^TestSoakEngine$"), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), engineEnv+"="+string(raw), "GOMAXPROCS=1")
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for p.addr == "" && lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "serves "); ok {
			p.addr = addr
		}
	}
	go func() {
		defer close(p.ended)
		_, _ = io.Copy(io.Discard, out)
		_ = p.cmd.Wait()
	}()
	if p.addr == "" {
		<-p.ended
		return nil, errors.New("the engine did not start")
	}
	return p, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

// soakBed is a router here over engines in processes of their own.
type soakBed struct {
	*storm
	processes []*process
}

func startSoak(t *testing.T, streams int) *soakBed {
	t.Helper()
	b := &soakBed{storm: &storm{testbed: &testbed{t: t, journal: filepath.Join(t.TempDir(), "journal.jsonl")}, crowd: newCrowd(t)}}
	var engines []fleet.Engine
	for i := range 6 {
		p, err := spawnEngine("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b.processes = append(b.processes, p)
		role := []string{fleet.RolePrefill, fleet.RoleDecode}[i/3]
		engines = append(engines, fleet.Engine{IID: fmt.Sprintf("%c%d", role[0], i%3), URL: "http://" + p.addr, Role: role, Pin: true})
	}
	t.Cleanup(func() {
		for _, p := range b.processes {
			p.in.Close()
			<-p.ended
		}
	})
	for i := range stormPrompts {
		a := post(t, limit(t), engines[0].URL+"/v1/completions", stormAsk(i))
		b.wants = append(b.wants, text(t, a.body))
	}
	cfg := childConfig(engines, b.journal)
	cfg.Fleet.Serving.MaxConnections, cfg.Fleet.Serving.RequestTimeoutS = 4*streams, 80 // a busy machine is not what is tested
	for i := range cfg.Profiles.Rows {
		cfg.Profiles.Rows[i].DecodeMaxRequests = 1 << 20
	}
	r, err := New(cfg)
	if err == nil {
		err = r.Start(limit(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.router, b.url = r, "http://"+r.Addr()
	t.Cleanup(b.stop)
	return b
}

// restart kills an engine's process and starts another at its address.
func (b *soakBed) restart(i int) {
	b.processes[i].kill()
	eventually(b.t, "engine back", func() bool {
		p, err := spawnEngine(b.processes[i].addr)
		if err == nil {
			b.processes[i] = p
		}
		return err == nil
	})
}

// resting waits until every engine's own account is empty.
func (b *soakBed) resting() error {
	var last error
	for late := time.Now().Add(30 * time.Second); time.Now().Before(late); {
		last = nil
		for i, p := range b.processes {
			var a simulated.Account
			if err := getJSON("http://"+p.addr+"/simulated/account", &a); err != nil {
				last = err
			} else if !a.Idle() {
				last = fmt.Errorf("engine %d still holds %+v", i, a)
			}
		}
		if last == nil {
			return nil
		}
		<-time.After(100 * time.Millisecond)
	}
	return last
}
