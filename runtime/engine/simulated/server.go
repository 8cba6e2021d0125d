package simulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// Ways in which an engine ends by itself.
var (
	ErrKilled   = errors.New("engine was killed")
	ErrCoreDied = errors.New("engine core died")
)

// Server is one engine. Start it once; after it ended, make a new one: that is a restart, with
// a new identity and no pins.
type Server struct {
	cfg     Config
	id      string
	print   string
	started time.Time

	skew atomic.Int64 // nanoseconds that its clock is ahead

	mu      sync.Mutex // guards core, timer, calls, faults and the flags below
	core    *core.Core
	timer   *time.Timer
	calls   map[*call]struct{}
	faults  faults
	thaw    chan struct{} // non-nil while frozen, closed when thawed
	silent  bool
	dead    bool
	hits    map[hit]int
	stopped bool
	pair    pairing

	ln, side         *listener
	http, sideServer *http.Server
	peers            *peers
	life             context.Context // ends with the process
	end              context.CancelFunc
	work             sync.WaitGroup
	workMu           sync.Mutex // guards closing
	closing          bool
	done             chan struct{}
	err              error
}

// New checks the configuration. Nothing runs before Start.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, id: newUUID(), calls: map[*call]struct{}{}, hits: map[hit]int{},
		core: core.New(cfg.core()), done: make(chan struct{}),
	}
	s.core.MaxQueued = cfg.MaxQueued
	if s.sgl() {
		s.pair = pairing{role: cfg.Role, rooms: map[uint64]*room{}, known: map[string]contact{}}
	}
	s.print = fingerprint(cfg)
	s.timer = time.AfterFunc(time.Hour, s.tick)
	s.timer.Stop()
	s.life, s.end = context.WithCancel(context.Background())
	s.peers = newPeers(s)
	return s, nil
}

// Start waits for the configured start time, opens the ports and serves until Stop, Kill,
// Terminate or the engine's own death. The context bounds the start alone.
func (s *Server) Start(ctx context.Context) error {
	if err := sleep(ctx, core.Seconds(s.cfg.StartS)); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	s.started = time.Now()
	var err error
	if s.ln, err = listen(s.cfg.Listen); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	if s.cfg.SideChannel != "" {
		if s.side, err = listen(s.cfg.SideChannel); err != nil {
			s.ln.Close()
			return fmt.Errorf("start engine: side channel: %w", err)
		}
		s.sideServer = s.server(s.sideRoutes())
		s.run(func() { _ = s.sideServer.Serve(s.side) })
	}
	s.http = s.server(s.routes())
	s.run(func() { _ = s.http.Serve(s.ln) })
	return nil
}

// server ends its requests with the engine's life.
func (s *Server) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 30 * time.Second,
		BaseContext: func(net.Listener) context.Context { return s.life },
		ErrorLog:    log.New(io.Discard, "", 0),
	}
}

// run starts work that Stop waits for; once the engine ends it starts none.
func (s *Server) run(f func()) {
	if !s.begin() {
		return
	}
	go func() {
		defer s.work.Done()
		f()
	}()
}

func (s *Server) begin() bool {
	s.workMu.Lock()
	defer s.workMu.Unlock()
	if s.closing {
		return false
	}
	s.work.Add(1)
	return true
}

// Addr is the HTTP address.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// URL is the base URL.
func (s *Server) URL() string { return "http://" + s.Addr() }

// SidePort is the side channel's port, 0 without a connector.
func (s *Server) SidePort() int {
	if s.side == nil {
		return 0
	}
	return s.side.Addr().(*net.TCPAddr).Port
}

// EngineID is the identity that handoffs carry.
func (s *Server) EngineID() string { return s.id }

// Done is closed when the engine has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says how the engine ended: nil after Stop or Terminate. Valid once Done is closed.
func (s *Server) Err() error { return s.err }

// Stop ends the engine at once and waits for it: connections break, nothing is said.
func (s *Server) Stop() { s.finish(nil); <-s.done }

// Kill is Stop as SIGKILL would do it; Err then is ErrKilled.
func (s *Server) Kill() { s.finish(ErrKilled); <-s.done }

func (s *Server) finish(err error) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.stopped, s.silent, s.err = true, true, err
	s.core.Vanish()
	s.stopTimer()
	s.release()
	s.mu.Unlock()
	s.end()
	if s.http != nil {
		_ = s.http.Close()
		s.ln.Close()
	}
	if s.sideServer != nil {
		_ = s.sideServer.Close()
		s.side.Close()
	}
	s.peers.close()
	s.workMu.Lock()
	s.closing = true
	s.workMu.Unlock()
	go func() {
		s.work.Wait()
		close(s.done)
	}()
}

// die is the core's death: every request fails, /health answers 503 for a moment, then the
// port closes. Call it with mu held.
func (s *Server) die() {
	if s.dead || s.stopped {
		return
	}
	s.dead = true
	if s.sgl() { // the process follows its scheduler at once and says nothing
		s.run(func() { s.finish(ErrCoreDied) })
		return
	}
	s.core.Die(time.Now())
	s.run(func() {
		_ = sleep(s.life, deathDelay)
		s.finish(ErrCoreDied)
	})
}

const deathDelay = 700 * time.Millisecond

// now is the time that the engine's answers show.
func (s *Server) now() time.Time { return s.shown(time.Now()) }

// shown is a time as the engine's clock has it.
func (s *Server) shown(t time.Time) time.Time { return t.Add(time.Duration(s.skew.Load())) }
