package drift

// Params tune the verdicts. Window 0 turns them off.
type Params struct {
	Window     float64 // seconds of decoding that are judged together
	MinSamples int     // residuals that a window needs
	Band       float64 // times its baseline from which a window is over
	// Relative is the times of its peers' median up to which an engine is not to blame while
	// half of the others are over too; 0 = the peers never excuse.
	Relative float64
	// Windows over in a row until probation, and until a probe is asked for; windows within
	// the band in a row that end a probation.
	Probation, Evict, Recovery int
	PerMinute                  int // most ejections
}

// Event is what happened: Pass or Probe.
type Event interface{ event() }

// Pass is one look at every engine.
type Pass struct {
	At      float64
	Engines []Sample
}

// Sample is what a pass saw of one engine since the pass before.
type Sample struct {
	Engine   string
	Residual float64 // 0 = nobody decoded
	Prefills bool    // it prefilled, so that the residual says nothing
	Out      bool    // it is ejected
	Covered  bool    // others can do all that it does
}

// Probe is how a probe ended that a Suspect verdict asked for.
type Probe struct {
	At       float64
	Engine   string
	Failed   bool    // it answered with an error or not in time
	Residual float64 // of its tokens; 0 = not measured
	Peer     float64 // of another engine's in the same moment; 0 = not measured
	Covered  bool    // as in Sample, now
}

func (Pass) event()  {}
func (Probe) event() {}

// Kind is what a verdict says.
type Kind string

// Kinds of verdicts.
const (
	Probation Kind = "probation" // avoid it where others are as good
	Suspect   Kind = "suspect"   // probe it: too many windows were over, or none is told of while on probation
	Eject     Kind = "eject"     // take it out; its windows are forgotten
	Kept      Kind = "kept"      // the probe failed, and it is not taken out yet
	Passed    Kind = "passed"    // the probe was well, and it stays on probation
	Recovered Kind = "recovered" // off probation
)

// Verdict is about one engine.
type Verdict struct {
	Engine string
	Kind   Kind
	// Score is that of the last window, Limit what it may be, Peers the median score of the
	// others; 0 = none was scored lately.
	Score, Limit, Peers float64
}

// Engine is what is remembered of one.
type Engine struct {
	// Counts since the start. They survive an ejection.
	Scored, Undersampled, Pauses int

	Probation bool
	Paused    bool // it prefills
	Score     float64
	ScoredAt  float64
	Baseline  float64 // 0 = not scored yet

	open    bool
	from    float64 // start of the open window
	sum     float64 // of its residuals
	samples int
	over    bool // the last window was, whoever was to blame
	overs   int  // windows in a row that are its own fault
	cleans  int
}

// State is everything that is remembered. Copies are independent: a step never writes into
// memory that an older state can see.
type State struct {
	Params  Params
	engines map[string]Engine
	ejected []float64 // when, within the last minute
}

// New is the state at the start of a run.
func New(p Params) State { return State{Params: p} }

// Of is what is remembered of an engine.
func (s State) Of(engine string) Engine { return s.engines[engine] }
