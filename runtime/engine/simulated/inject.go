package simulated

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// Kinds of injected failure. Those marked n take a count of uses, 0 = 1, negative = until
// "clear"; those marked on/off take On, absent = true.
const (
	faultFreeze     = "freeze"          // on/off: nothing moves, nothing answers
	faultHang       = "hang"            // on/off: accepts and never answers
	faultPause      = "pause"           // on/off: healthy, and holds new requests
	faultRefuse     = "refuse"          // on/off, for_s: the HTTP port is closed
	faultSide       = "side-dead"       // on/off: new peers get no handshake
	faultSplit      = "split"           // on/off: each event in two writes
	faultWide       = "utf8"            // on/off: answers with characters of several bytes
	faultJoin       = "join"            // count tokens in one event, 1 = off
	faultSlow       = "slow"            // factor on step times, 1 = off
	faultKill       = "kill"            // as SIGKILL
	faultTerminate  = "terminate"       // as SIGTERM
	faultDeath      = "core-death"      // the core dies
	faultExpire     = "expire"          // all leases end now
	faultRecycle    = "recycle"         // and the freed blocks are overwritten
	faultClock      = "clock"           // seconds added to the times that answers show
	faultBusy       = "busy"            // n: 503
	faultDrop       = "drop-handoff"    // n: leg 1 answers without
	faultCorrupt    = "corrupt-handoff" // n: field gets value; without a value it is removed
	faultRead       = "read-failure"    // n: a KV read fails
	faultWrongBlock = "wrong-block"     // n: a KV read returns other tokens
	faultNotice     = "notice-lost"     // n: the producer is not told
	faultError      = "error"           // n, after tokens: error event and [DONE], or 500
	faultStall      = "stall"           // n, after tokens: silence
	faultEOF        = "eof"             // n, after tokens: end without [DONE]
	faultReset      = "reset"           // n, after tokens: the connection breaks
	faultClear      = "clear"           // ends all of the above that can end
)

// Injection is one failure to play. Which fields count depends on Kind.
type Injection struct {
	Kind   string          `json:"kind"`
	On     *bool           `json:"on,omitempty"`
	Count  int             `json:"count,omitempty"`
	After  int             `json:"after,omitempty"` // tokens
	Factor float64         `json:"factor,omitempty"`
	ForS   float64         `json:"for_s,omitempty"` // seconds, 0 = until changed
	Field  string          `json:"field,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
}

// Inject plays a failure, whether or not the routes for it are open.
func (s *Server) Inject(in Injection) error {
	on := in.On == nil || *in.On
	switch in.Kind {
	case faultKill:
		s.run(func() { s.finish(ErrKilled) })
		return nil
	case faultTerminate:
		s.Terminate()
		return nil
	case faultRefuse:
		return s.refuse(on, core.Seconds(in.ForS))
	}
	err := error(nil)
	s.with(func(now time.Time) { err = s.inject(now, in, on) })
	return err
}

// inject is Inject's part under the lock.
func (s *Server) inject(now time.Time, in Injection, on bool) error {
	f := &s.faults
	switch in.Kind {
	case faultFreeze:
		s.freeze(now, on)
	case faultHang:
		f.hang(on)
	case faultPause:
		s.core.Pause(now, on)
	case faultSide:
		f.side = on
	case faultSplit:
		f.split = on
	case faultWide:
		s.core.Wide = on
	case faultJoin:
		f.join = in.Count
	case faultSlow:
		if in.Factor <= 0 {
			return errors.New("inject slow: factor must be positive")
		}
		s.core.Slow = in.Factor
	case faultDeath:
		s.die()
	case faultExpire:
		s.core.ExpireNow(now)
	case faultRecycle:
		s.core.Recycle(now)
	case faultClock:
		s.skew += core.Seconds(in.Factor)
	case faultClear:
		s.clear(now)
	default:
		return f.count(in)
	}
	return nil
}

func (f *faults) hang(on bool) {
	switch {
	case on && f.quiet == nil:
		f.quiet = make(chan struct{})
	case !on && f.quiet != nil:
		close(f.quiet)
		f.quiet = nil
	}
}

func (f *faults) count(in Injection) error {
	switch in.Kind {
	case faultCorrupt:
		if in.Field == "" {
			return errors.New("inject corrupt-handoff: no field named")
		}
		f.field, f.value = in.Field, in.Value
	case faultBusy, faultDrop, faultRead, faultWrongBlock, faultNotice,
		faultError, faultStall, faultEOF, faultReset:
	default:
		return fmt.Errorf("inject %q: unknown kind", in.Kind)
	}
	if f.uses == nil {
		f.uses, f.after = map[string]int{}, map[string]int{}
	}
	f.uses[in.Kind], f.after[in.Kind] = in.Count, in.After
	if in.Count == 0 {
		f.uses[in.Kind] = 1
	}
	return nil
}

func (s *Server) clear(now time.Time) {
	s.faults.hang(false)
	s.faults = faults{}
	s.core.Slow, s.core.Wide = 0, false
	s.core.Pause(now, false)
	s.freeze(now, false)
}

// refuse closes the HTTP port, for a time or until it is opened again.
func (s *Server) refuse(on bool, length time.Duration) error {
	s.http.SetKeepAlivesEnabled(!on)
	if !on {
		return s.ln.reopen()
	}
	s.ln.refuse()
	if length > 0 {
		s.run(func() {
			if sleep(s.life, length) == nil {
				s.http.SetKeepAlivesEnabled(true)
				_ = s.ln.reopen()
			}
		})
	}
	return nil
}

// controlRoutes open injection where the fleet's file allows it.
func (s *Server) controlRoutes(mux *http.ServeMux) {
	if !s.cfg.FailureControl {
		return
	}
	mux.HandleFunc("POST /simulated/inject", func(w http.ResponseWriter, r *http.Request) {
		var in Injection
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in)
		if err == nil {
			err = s.Inject(in)
		}
		if err != nil {
			badRequest("", "%v", err).write(w)
			return
		}
		writeJSON(w, http.StatusOK, []byte(`{"ok":true}`))
	})
	mux.HandleFunc("GET /simulated/state", func(w http.ResponseWriter, _ *http.Request) {
		b, _ := json.Marshal(s.State())
		writeJSON(w, http.StatusOK, b)
	})
}

// State is what the metrics do not show.
type State struct {
	EngineID string      `json:"engine_id"`
	Pins     int         `json:"pins"`
	Calls    int         `json:"calls"`
	Dead     bool        `json:"dead"`
	Paused   bool        `json:"paused"`
	Load     core.Gauges `json:"load"`
}

// State reads the engine's state.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{s.id, s.core.Pins(), len(s.calls), s.dead, s.core.Paused(), s.core.Gauges()}
}
