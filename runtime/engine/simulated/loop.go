package simulated

import (
	"context"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// with runs f on the core under the lock and arms the one timer for what comes next. An idle
// engine has no timer.
func (s *Server) with(f func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(time.Now())
	s.arm()
}

func (s *Server) arm() {
	at, ok := s.core.Next()
	if !ok || s.stopped {
		s.stopTimer()
		return
	}
	s.timer.Reset(max(0, time.Until(at)))
}

func (s *Server) stopTimer() { s.timer.Stop() }

func (s *Server) tick() {
	s.with(func(now time.Time) {
		if !s.stopped {
			s.core.Advance(now)
		}
	})
}

// pass waits while the engine is frozen.
func (s *Server) pass(ctx context.Context) error {
	s.mu.Lock()
	thaw := s.thaw
	s.mu.Unlock()
	if thaw == nil {
		return nil
	}
	select {
	case <-thaw:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Done():
		return s.life.Err()
	}
}

// freeze stops time and every handler, or lets them go on. Call it with mu held.
func (s *Server) freeze(now time.Time, on bool) {
	if on && s.thaw == nil {
		s.thaw = make(chan struct{})
	}
	s.core.Freeze(now, on)
	if !on {
		s.release()
	}
}

func (s *Server) release() {
	if s.thaw != nil {
		close(s.thaw)
		s.thaw = nil
	}
}

// Terminate does what SIGTERM does. Without a shutdown timeout the core is gone at once, the
// port refuses, and open streams stay open and silent until their clients leave. With one,
// running requests end, /health stays 200 and new requests are refused with 500. SGLang always
// lets running requests end; it then answers /health, /ready and new requests with 503.
func (s *Server) Terminate() { s.terminate(s.cfg.ShutdownTimeout.D()) }

func (s *Server) terminate(limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.silent {
		return
	}
	if limit > 0 || s.sgl() {
		s.core.Drain()
		s.run(func() { s.drain(limit) })
		return
	}
	s.silent = true
	s.core.Vanish()
	s.ln.Close()
	if s.side != nil {
		s.side.Close()
		_ = s.sideServer.Close()
	}
	s.run(func() {
		_ = s.http.Shutdown(s.life) // waits for the clients
		s.finish(nil)
	})
}

// drain waits for the requests, with 0 without limit.
func (s *Server) drain(limit time.Duration) {
	ctx := s.life
	if limit > 0 {
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = bounded
	}
	for s.inFlight() > 0 && sleep(ctx, 20*time.Millisecond) == nil {
	}
	s.finish(nil)
}

func (s *Server) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// fetchDone hands a read's outcome to the core.
func (s *Server) fetchDone(seq *core.Seq, contents [][]int32, err error) {
	s.with(func(now time.Time) { s.core.Fetched(now, seq, contents, err, s.cfg.Recompute) })
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
