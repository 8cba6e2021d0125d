package simulated

import (
	"context"
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// faults is what is being played. Guarded by Server.mu.
type faults struct {
	uses   map[string]int
	after  map[string]int
	status map[string]int
	field  string
	value  json.RawMessage
	from   int           // port of the producer whose KV is not read; 0 = any
	quiet  chan struct{} // non-nil while hanging
	side   bool
	shape  shape
}

// shape is how answers are cut on their way out.
type shape struct {
	split, splitRune, trickle bool
	join                      int
}

// fault is what one call plays.
type fault struct {
	kind  string
	after int
}

func (f fault) due(delivered int) bool { return f.kind != "" && delivered >= f.after }

// takeFault spends one use.
func (s *Server) takeFault(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.take(kind)
}

func (f *faults) take(kind string) bool {
	n := f.uses[kind]
	if n > 0 {
		f.uses[kind]--
	}
	return n != 0
}

// takeRead spends one use of a failed read, where it is of this producer.
func (s *Server) takeRead(port int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.faults.from == 0 || s.faults.from == port) && s.faults.take(faultRead)
}

func (s *Server) takeCallFault() fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range []string{faultError, faultStall, faultEOF, faultReset} {
		if s.faults.take(kind) {
			return fault{kind, s.faults.after[kind]}
		}
	}
	return fault{}
}

func (s *Server) takeSide() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.side
}

func (s *Server) shape() shape {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.faults.shape
	sh.join = max(1, sh.join)
	return sh
}

// takeStatus is the status that a leg answers with, 0 = its own.
func (s *Server) takeStatus(p *params) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds := []string{faultStatus}
	switch {
	case p.transfer.export || p.prefills:
		kinds = append(kinds, faultLeg1)
	case p.transfer.take || p.meet != nil:
		kinds = append(kinds, faultLeg2)
	}
	for _, kind := range kinds {
		if s.faults.take(kind) {
			return s.faults.status[kind]
		}
	}
	return 0
}

// hang holds a request while the engine accepts and never answers; true means it ended there.
func (s *Server) hang(ctx context.Context) bool {
	s.mu.Lock()
	quiet := s.faults.quiet
	s.mu.Unlock()
	if quiet == nil {
		return false
	}
	select {
	case <-quiet:
		return false
	case <-ctx.Done():
		return true
	}
}

// spoil drops or corrupts a handoff on its way out.
func (s *Server) spoil(h []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.take(faultDrop) {
		return []byte("null")
	}
	if !s.faults.take(faultCorrupt) {
		return h
	}
	o, err := splice.Parse(h)
	if err != nil {
		return h
	}
	if len(s.faults.value) == 0 {
		return o.Edit(func(k string) bool { return k == s.faults.field })
	}
	return o.Edit(nil, splice.Set{Key: s.faults.field, Value: s.faults.value})
}
