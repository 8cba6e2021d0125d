package core

import "time"

// Phases of a sequence.
const (
	waiting   = iota // in the queue
	fetching         // reads a peer's KV
	fetched          // KV is here, waits for a place
	running          // in the batch
	preempted        // back in the queue, recomputes
	finished
)

// Remote is the part of a handoff that the scheduler needs.
type Remote struct {
	Blocks []int // the producer's block numbers, in order
	// Whole takes every block from the peer, whatever the local prefix cache has.
	Whole bool
}

// Seq is one answer in the making. The caller fills the exported fields before Submit and
// does not change them after.
type Seq struct {
	// ID names the sequence towards peers.
	ID     string
	Prompt []int32
	// MaxTokens is the clamped limit, at least 1.
	MaxTokens int
	MinTokens int
	Seed      uint64
	Choice    int
	// MayStop lets the answer end by itself.
	MayStop bool
	// Salt separates prefix caches.
	Salt string
	// Export pins the KV at the end and returns a handoff.
	Export bool
	// Import names the KV to read; nil computes locally.
	Import *Remote
	Sink   Sink

	// Out is the answer so far; read it only from Sink calls.
	Out []int32

	phase    int
	blocks   []int
	computed int // tokens with KV
	cached   int // of them from the local prefix cache
	external int // of them from a peer
	base     int // position where this sequence's own computing began
	chain    uint64
	state    uint64
	loads    bool // counted once in the cache statistics

	arrived, scheduled, first, last time.Time
	preempts                        int
}

// Cached is the number of prompt tokens that were not computed here.
func (s *Seq) Cached() int { return s.cached + s.external }

// Computed is the number of tokens with KV.
func (s *Seq) Computed() int { return s.computed }

func (s *Seq) length() int { return len(s.Prompt) + len(s.Out) }

func (s *Seq) at(pos int) int32 {
	if pos < len(s.Prompt) {
		return s.Prompt[pos]
	}
	return s.Out[pos-len(s.Prompt)]
}

// prefilling reports whether the sequence still has more than its newest token to compute.
func (s *Seq) prefilling() bool { return len(s.Out) == 0 || s.computed < s.length()-1 }

// Sink receives what happens to a sequence. Calls come from inside the core's methods, so a
// sink must not block and must not call the core.
type Sink interface {
	// Token delivers the newest token; returning true ends the answer with reason "stop".
	Token(s *Seq, id int32, now time.Time) (stop bool)
	// Fetch asks the owner to read the sequence's remote KV and to call Fetched.
	Fetch(s *Seq, f Fetch)
	// Done is the last call.
	Done(s *Seq, r Result, now time.Time)
}

// Fetch is one KV read: the peer's blocks that fill this sequence's missing ones.
type Fetch struct {
	// Missing is the number of blocks that this engine lacks.
	Missing int
	// Blocks of the peer, its list's tail. Shorter than Missing when the list is too short.
	Blocks []int
}

// Result is how a sequence ended.
type Result struct {
	// Reason is stop, length, abort or error.
	Reason string
	// Err is set with reason error.
	Err error
	// Pin is the handoff's KV, with Export and reason length.
	Pin *Pin
}

// Pin is KV held for a peer.
type Pin struct {
	ID      string
	Blocks  []int
	Tokens  int
	Cached  int
	Expires time.Time
}
