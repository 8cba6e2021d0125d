package control

import "github.com/narwhal-fleet/narwhal/runtime/model"

// Params tune the controller. Times are seconds; demand is in engines.
type Params struct {
	TTFT, TPOT            float64 // the promise
	MinPrefill, MinDecode int     // floors
	Advisory              bool    // decide, never move

	Expand, Shrink float64 // a ratio that is a breach; a ratio that is idle
	Cooldown       float64 // between moves from prefill to decode
	Dwell          float64 // that an engine keeps a role at least
	Sustained      int     // evaluations a consolidation must hold for
	ResidentGuard  int     // decode residents above which a decode engine stays; 0 = off

	Window        float64 // of demand
	Step          float64 // between evaluations
	Confirmations int     // evaluations a breach must hold for
	Utilization   float64 // share of an engine that may be planned for
	MinArrivals   int     // in the horizon that is judged
	DemandFloor   float64 // engines of work below which nothing moves
	Margin        float64 // least gain of a move
	EvidenceSpan  float64 // history that a consolidation needs
	Lends         bool    // decode engines take prefills that their residents can bear
}

// Event is what happened: Arrival, Miss, Outcome or Tick.
type Event interface{ event() }

// Arrival is one offered request, counted whether or not it is served.
type Arrival struct {
	At     float64
	Input  int
	Wanted int // output cap; 0 = uncapped
	Cached int // tokens of the prompt that some engine is believed to hold
}

// Outcome is one completed answer.
type Outcome struct{ Input, Wanted, Output int }

// Tick asks for an evaluation if one is due.
type Tick struct{ Snapshot model.Snapshot }

func (Arrival) event() {}
func (Outcome) event() {}
func (Tick) event()    {}

// Action is what the caller must do: Move or Record.
type Action interface{ action() }

// Move gives an engine a role.
type Move struct {
	Engine string
	To     model.Role
	By     string
	Rule   string
}

// Record reports a decision, one for each evaluation.
type Record struct{ Decision Decision }

func (Move) action()   {}
func (Record) action() {}

// moments are sums over arrivals, so that any curve can price them later.
type moments struct {
	N                float64 // arrivals
	In, InSq         float64 // Σ input, Σ input², less those of the cached tokens
	Out, OutIn, OutQ float64 // Σ output, Σ output·input, Σ output²
	Free, FreeIn     float64 // arrivals whose answers nothing limits, Σ their input; none of them is in Out
}

// bucket is the arrivals of one interval by length of the prompt.
type bucket struct {
	From   float64
	All    moments
	Band   [bands]moments
	Missed [2]float64 // for want of prefill, of decoding, by when it was known
}

// context is the mean length of a resident in the middle of its answer, weighed by answers.
func (b moments) context() float64 { return (b.OutIn + b.OutQ/2) / max(1, b.Out) }

func (b moments) plus(o moments) moments {
	b.N, b.In, b.InSq = b.N+o.N, b.In+o.In, b.InSq+o.InSq
	b.Out, b.OutIn, b.OutQ = b.Out+o.Out, b.OutIn+o.OutIn, b.OutQ+o.OutQ
	b.Free, b.FreeIn = b.Free+o.Free, b.FreeIn+o.FreeIn
	return b
}

// add is plus in place.
func (b *moments) add(o *moments) {
	b.N += o.N
	b.In += o.In
	b.InSq += o.InSq
	b.Out += o.Out
	b.OutIn += o.OutIn
	b.OutQ += o.OutQ
	b.Free += o.Free
	b.FreeIn += o.FreeIn
}

// told is the sums with a length for the answers that nothing limits: what is known of them
// when demand is priced, which is more than was known when they came.
func (b moments) told(length float64) moments {
	b.Out, b.OutIn, b.OutQ = b.Out+b.Free*length, b.OutIn+b.FreeIn*length, b.OutQ+b.Free*length*length
	b.Free, b.FreeIn = 0, 0
	return b
}

// State is everything the controller remembers. Copies are independent: a step never
// writes into memory that an older state can see.
type State struct {
	Params  Params
	Started float64
	open    bucket
	closed  []*bucket // oldest first; replaced, never written
	past    []*bucket // what left the window, in blocks; likewise
	outputs outputs
	trial   trial
	excess  excesses

	lastTick     float64
	ticked       bool
	live         int // engines at the last tick
	liveSince    float64
	lastToDecode float64
	lastMove     float64
	lastTo       model.Role
	heading      int // prefill engines wanted by the open confirmation run
	rule         string
	run          int
}

// New returns the state at the start of a run. Where no engine lends, the start counts as a move to
// decode, so that the cooldown holds from it on.
func New(p Params, now float64) State {
	s := State{Params: p, Started: now, lastToDecode: now, lastMove: now, open: bucket{From: now}}
	if p.Lends {
		s.lastToDecode = now - p.Cooldown
	}
	return s
}

// Expect returns the expected answer length for a prompt and a cap (0 = uncapped), at least 1
// token.
func (s *State) Expect(input, wanted int) int { return int(s.outputs.expect(input, wanted) + 0.5) }
