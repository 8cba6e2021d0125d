// Package sandbox makes a fleet of loopback hosts: each an SSH server in this process
// with a folder, keys and a process table of its own.
//
// It promises that the fleet file it writes is an ordinary one and that Down leaves no
// process behind. It refuses any address but loopback.
package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/freeport"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// Limits of a sandbox.
const (
	DefaultHosts = 4
	MaxHosts     = 64
	MaxEngines   = 8 // a host
)

// Config says what to make.
type Config struct {
	// Dir holds everything; it is made when missing. What an earlier sandbox left there is
	// used again, with its keys and ports.
	Dir   string
	Hosts int // 0 = DefaultHosts
	// Engines a host has; 0 = 1.
	Engines int
	// Operator is the signing key's path relative to Dir; the caller makes the key.
	Operator string
	// Tune, unless nil, changes how a host's SSH server is set up.
	Tune func(Host, *loopback.Config)
	// Secrets are environment variables given to every engine by reference (env:NAME).
	Secrets []string
}

// Sandbox is a running set of hosts.
type Sandbox struct {
	Dir   string
	Fleet string // path of the fleet file
	Hosts []Host

	mu      sync.Mutex
	servers []*loopback.Server
}

// Host is one host as the fleet file names it.
type Host struct {
	ID      string `json:"id"`
	Addr    string `json:"addr"`
	HostKey string `json:"host_key"`
	Root    string `json:"root"` // narwhal's folder
	Home    string `json:"home"`
	Ports   Ports  `json:"ports"`
}

// Ports are the loopback ports of one host.
type Ports struct {
	SSH     int `json:"ssh"`
	Engine  int `json:"engine"` // of the first engine, as the next two
	Side    int `json:"side"`
	Sidecar int `json:"sidecar"`
	Fabric  int `json:"fabric"`
	Router  int `json:"router"`
	// More are the ports of the engines after the first.
	More []EnginePorts `json:"more,omitempty"`
}

// EnginePorts are the loopback ports of one engine.
type EnginePorts struct {
	Engine  int `json:"engine"`
	Side    int `json:"side"`
	Sidecar int `json:"sidecar"`
}

// Engines are the ports of all engines of the host.
func (p Ports) Engines() []EnginePorts {
	return append([]EnginePorts{{p.Engine, p.Side, p.Sidecar}}, p.More...)
}

// layout is what a sandbox remembers of itself.
type layout struct {
	Hosts []Host `json:"hosts"`
}

// Up starts the hosts and writes the fleet file.
func Up(cfg Config) (*Sandbox, error) {
	if cfg.Hosts == 0 {
		cfg.Hosts = DefaultHosts
	}
	if cfg.Hosts < 1 || cfg.Hosts > MaxHosts {
		return nil, fmt.Errorf("start sandbox: %d hosts, want 1 to %d", cfg.Hosts, MaxHosts)
	}
	cfg.Engines = max(cfg.Engines, 1)
	if cfg.Engines > MaxEngines {
		return nil, fmt.Errorf("start sandbox: %d engines a host, want 1 to %d", cfg.Engines, MaxEngines)
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	s := &Sandbox{Dir: dir, Fleet: filepath.Join(dir, "fleet.json")}
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	user, err := keyFile(filepath.Join(dir, "keys", "ssh"))
	if err != nil {
		return nil, err
	}
	if s.Hosts, err = plan(dir, cfg.Hosts, cfg.Engines); err != nil {
		return nil, err
	}
	for i := range s.Hosts {
		if err := s.start(cfg, &s.Hosts[i], user); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	if err := s.write(cfg); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// plan reuses the remembered hosts or finds ports for new ones.
func plan(dir string, n, engines int) ([]Host, error) {
	var l layout
	if b, err := os.ReadFile(filepath.Join(dir, "layout.json")); err == nil && json.Unmarshal(b, &l) == nil && len(l.Hosts) == n && len(l.Hosts[0].Ports.More) == engines-1 {
		return l.Hosts, nil
	}
	each := 3 + 3*engines
	ports, err := freeport.Draw(each * n)
	if err != nil {
		return nil, err
	}
	hosts := make([]Host, n)
	for i := range hosts {
		id := fmt.Sprintf("host-%d", i+1)
		p := ports[each*i:][:each]
		apart(p, ports)
		home := filepath.Join(dir, "hosts", id)
		hosts[i] = Host{ID: id, Home: home, Root: filepath.Join(home, "narwhal"),
			Ports: Ports{SSH: p[0], Engine: p[1], Side: p[2], Sidecar: p[3], Fabric: p[4], Router: p[5]}}
		for more := p[6:]; len(more) > 0; more = more[3:] {
			hosts[i].Ports.More = append(hosts[i].Ports.More, EnginePorts{more[0], more[1], more[2]})
		}
	}
	return hosts, nil
}

// apart makes the fifth of a host's ports, which is the fabric's, one whose next port is none of all: another
// tool's server takes that.
func apart(host, all []int) {
	for i := range host {
		if !slices.Contains(all, host[i]+1) {
			host[4], host[i] = host[i], host[4]
			return
		}
	}
}

func (s *Sandbox) start(cfg Config, h *Host, user loopback.Key) error {
	if err := os.MkdirAll(h.Home, 0o700); err != nil {
		return fmt.Errorf("start host %s: %w", h.ID, err)
	}
	key, err := keyFile(filepath.Join(s.Dir, "keys", h.ID))
	if err != nil {
		return err
	}
	server := loopback.Config{
		Root: h.Home, HostKey: key.Private, Authorized: []string{user.Public}, Listen: fmt.Sprintf("127.0.0.1:%d", h.Ports.SSH), Mark: mark(s.Dir, h.ID),
	}
	if cfg.Tune != nil {
		cfg.Tune(*h, &server)
	}
	srv, err := loopback.Start(server)
	if err != nil {
		return fmt.Errorf("start host %s: %w", h.ID, err)
	}
	h.Addr = srv.Addr()
	h.HostKey, _ = srv.HostKey()
	s.mu.Lock()
	s.servers = append(s.servers, srv)
	s.mu.Unlock()
	return nil
}

// mark tells a host's processes from those of every other sandbox on this machine, and
// stays the same when the sandbox is started again.
func mark(dir, id string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8]) + "-" + id
}

// keyFile reads a private key or makes one.
func keyFile(path string) (loopback.Key, error) {
	if b, err := os.ReadFile(path); err == nil {
		return loopback.ReadKey(b)
	}
	k, err := loopback.GenerateKey()
	if err != nil {
		return k, err
	}
	if err := atomicfile.Write(path, k.Private, 0o600); err != nil {
		return k, fmt.Errorf("write key: %w", err)
	}
	return k, nil
}

// Server returns the SSH server of a host, for fault injection.
func (s *Sandbox) Server(i int) *loopback.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers[i]
}

// Down stops every process that a host started, then the hosts. The folder stays.
func (s *Sandbox) Down(ctx context.Context) error {
	err := StopProcesses(ctx, s.Hosts)
	s.mu.Lock()
	for _, srv := range s.servers {
		err = errors.Join(err, srv.KillAll(ctx))
	}
	s.mu.Unlock()
	return errors.Join(err, s.close())
}

// StopProcesses ends every process recorded on the hosts.
func StopProcesses(ctx context.Context, hosts []Host) error {
	var wg sync.WaitGroup
	errs := make([]error, len(hosts))
	for i, h := range hosts {
		wg.Go(func() {
			dir := filepath.Join(h.Root, "run")
			for _, r := range process.List(dir) {
				_, err := process.Stop(ctx, dir, r.Name, 5*time.Second)
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Remembered reads the hosts of a sandbox folder.
func Remembered(dir string) ([]Host, error) {
	b, err := os.ReadFile(filepath.Join(dir, "layout.json"))
	if err != nil {
		return nil, fmt.Errorf("read sandbox: %w", err)
	}
	var l layout
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("read sandbox: %w", err)
	}
	return l.Hosts, nil
}

func (s *Sandbox) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, srv := range s.servers {
		err = errors.Join(err, srv.Close())
	}
	s.servers = nil
	return err
}
