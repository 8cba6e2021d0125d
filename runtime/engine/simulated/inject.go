package simulated

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
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
	faultSplitRune  = "split-utf8"      // on/off: each write ends inside a character of several bytes where it has one
	faultTrickle    = "trickle"         // on/off: answers leave byte by byte
	faultWide       = "utf8"            // on/off: answers with characters of several bytes
	faultJoin       = "join"            // count tokens in one event, 1 = off
	faultSlow       = "slow"            // factor on step times, 1 = off
	faultKill       = "kill"            // as SIGKILL
	faultTerminate  = "terminate"       // as SIGTERM; for_s replaces the shutdown timeout
	faultDeath      = "core-death"      // the core dies
	faultExpire     = "expire"          // all leases end now
	faultRecycle    = "recycle"         // and the freed blocks are overwritten
	faultClock      = "clock"           // factor seconds by which the times that answers show are off
	faultBusy       = "busy"            // n: 503
	faultStatus     = "status"          // n: any leg answers with a status
	faultLeg1       = "leg1-status"     // n: a prefilling leg does
	faultLeg2       = "leg2-status"     // n: a decoding leg does
	faultGarbage    = "garbage"         // n: 200 and a body that is neither JSON nor events
	faultDrop       = "drop-handoff"    // n: leg 1 answers without; in a room its KV is never sent
	faultCorrupt    = "corrupt-handoff" // n: field gets value; without a value it is removed
	faultRead       = "read-failure"    // n: a KV read fails, of one producer where from names its port
	faultWrongBlock = "wrong-block"     // n: a KV read returns other tokens
	faultSwitch     = "switch-failure"  // n: a role switch breaks half way
	faultNotice     = "notice-lost"     // n: the producer is not told
	faultError      = "error"           // n, after tokens: error event and [DONE], or 500
	faultStall      = "stall"           // n, after tokens: silence
	faultEOF        = "eof"             // n, after tokens: end without [DONE]
	faultReset      = "reset"           // n, after tokens: the connection breaks
	faultClear      = "clear"           // ends all of the above that can end
)

// mostSkew is how far the clock may be off, in seconds: thirty years.
const mostSkew = 1e9

// mostSlow is how many times slower steps may be, mostForS how long a fault may last that names
// its time, in seconds.
const (
	mostSlow = 1e6
	mostForS = 1e9
)

// counted kinds are spent by use.
var counted = []string{faultBusy, faultStatus, faultLeg1, faultLeg2, faultGarbage, faultDrop, faultCorrupt, faultRead,
	faultWrongBlock, faultSwitch, faultNotice, faultError, faultStall, faultEOF, faultReset}

// Kinds lists every kind of injection.
func Kinds() []string {
	return append(slices.Clone(counted), faultFreeze, faultHang, faultPause, faultRefuse, faultSide, faultSplit,
		faultSplitRune, faultTrickle, faultWide, faultJoin, faultSlow, faultKill, faultTerminate, faultDeath,
		faultExpire, faultRecycle, faultClock, faultClear)
}

// Injection is one failure to play. Which fields count depends on Kind.
type Injection struct {
	Kind   string          `json:"kind"`
	On     *bool           `json:"on,omitempty"`
	Count  int             `json:"count,omitempty"`
	After  int             `json:"after,omitempty"` // tokens
	Factor float64         `json:"factor,omitempty"`
	ForS   float64         `json:"for_s,omitempty"` // seconds, 0 = until changed
	Status int             `json:"status,omitempty"`
	Field  string          `json:"field,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
	From   int             `json:"from,omitempty"` // port at which the producer's KV is met; 0 = any
}

// Inject plays a failure, whether or not the routes for it are open.
func (s *Server) Inject(in Injection) error {
	on := in.On == nil || *in.On
	if !(in.ForS >= 0 && in.ForS <= mostForS) {
		return fmt.Errorf("inject %s: for_s is 0 to %g", in.Kind, float64(mostForS))
	}
	switch in.Kind {
	case faultKill:
		s.run(func() { s.finish(ErrKilled) })
		return nil
	case faultTerminate:
		if limit := core.Seconds(in.ForS); limit > 0 {
			s.terminate(limit)
		} else {
			s.Terminate()
		}
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
		f.shape.split = on
	case faultSplitRune:
		f.shape.splitRune = on
	case faultTrickle:
		f.shape.trickle = on
	case faultWide:
		s.core.Wide = on
	case faultJoin:
		f.shape.join = in.Count
	case faultSlow:
		if !(in.Factor >= 1/mostSlow && in.Factor <= mostSlow) {
			return fmt.Errorf("inject slow: factor must be %g to %g", 1/float64(mostSlow), float64(mostSlow))
		}
		s.core.Slow = in.Factor
	case faultDeath:
		s.die()
	case faultExpire:
		s.core.ExpireNow(now)
	case faultRecycle:
		s.core.Recycle(now)
	case faultClock:
		if math.Abs(in.Factor) > mostSkew {
			return fmt.Errorf("inject clock: factor must be within %g s of the clock", float64(mostSkew))
		}
		s.skew.Store(int64(core.Seconds(in.Factor)))
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
	case faultRead:
		f.from = in.From
	case faultStatus, faultLeg1, faultLeg2:
		if in.Status < 200 || in.Status > 599 {
			return fmt.Errorf("inject %s: %d is no status of an answer", in.Kind, in.Status)
		}
	}
	if !slices.Contains(counted, in.Kind) {
		return fmt.Errorf("inject %q: unknown kind", in.Kind)
	}
	if f.uses == nil {
		f.uses, f.after, f.status = map[string]int{}, map[string]int{}, map[string]int{}
	}
	f.uses[in.Kind], f.after[in.Kind], f.status[in.Kind] = in.Count, in.After, in.Status
	if in.Count == 0 {
		f.uses[in.Kind] = 1
	}
	return nil
}

func (s *Server) clear(now time.Time) {
	s.faults.hang(false)
	s.faults = faults{}
	s.core.Slow, s.core.Wide = 0, false
	s.skew.Store(0)
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
