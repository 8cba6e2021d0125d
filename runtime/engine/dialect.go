// Package engine is the contract between narwhal and an inference engine: how a request is
// split in two legs, what a handoff is, how an engine is asked for its state, and which
// errors it answers.
//
// It promises bounded reads, typed errors and bytes relayed as received. It refuses to build
// or change a handoff, to retry, and to choose engines: those decisions belong to the router.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// Dialect turns one client request into the two legs of a split request and judges the
// handoff between them. Implementations hold no state and are safe for concurrent use; but for
// Prober's methods they are pure.
type Dialect interface {
	Prober
	// Name is the word that selects the dialect in a fleet file.
	Name() string
	// Splittable reports whether a request may run as two legs; reason says why not.
	Splittable(o splice.Object) (reason string, ok bool)
	// Prefill returns the body of leg 1: one token, never streamed, a handoff asked for.
	Prefill(o splice.Object) ([]byte, error)
	// Decode returns the body of leg 2. With the zero Handoff it only strips what a client must
	// not send, which is also the body of an unsplit request.
	Decode(o splice.Object, h *Handoff) ([]byte, error)
	// ParseHandoff reads leg 1's buffered answer, received at the given time.
	// It returns ErrNoHandoff when the answer is well formed but carries none.
	ParseHandoff(resp []byte, received time.Time) (*Handoff, Usage, error)
	// Check compares a handoff with what the caller knows. It returns a *HandoffError.
	Check(h *Handoff, want Expect) error
	// State reads the engine's counters and gauges from a scrape. It returns a *MissingError,
	// beside the state read so far, when a needed metric is absent.
	State(s Samples) (State, error)
	// Concurrent reports that both legs of a split run at once, paired by a Rendezvous, instead
	// of one after the other with a Handoff.
	Concurrent() bool
	// Pair returns the bodies of both legs of a concurrent split. A dialect that is not
	// concurrent returns ErrSerial.
	Pair(o splice.Object, chat bool, r Rendezvous) (prefill, decode []byte, err error)
}

// Prober asks a live engine what each dialect has another way to ask. Its methods wait: give ctx
// a limit.
type Prober interface {
	// Identity tells the process from the one that follows a restart.
	Identity(ctx context.Context, c *Client) (Identity, error)
	// Layout is the shape of the KV cache.
	Layout(ctx context.Context, c *Client) (CacheLayout, error)
	// Ready reports whether the engine takes new requests; nil = it does.
	Ready(ctx context.Context, c *Client) error
}

// ErrNoHandoff is returned for an answer of leg 1 without a handoff.
var ErrNoHandoff = errors.New("answer carries no handoff")

// Handoff is the transfer object of one prefill: opaque, single use, owned by the process
// that made it. Raw goes to leg 2 unchanged; the other fields are facts read from it.
type Handoff struct {
	Raw       json.RawMessage
	EngineID  string
	RequestID string
	Host      string
	Port      int
	// Blocks per KV-cache group. Nil when the engine wrote the flat shape.
	Blocks [][]int
	// Flat marks the block list of versions that current engines cannot read.
	Flat bool
	// Tokens with KV on the producer.
	Tokens int
	// CachedTokens is the producer's own prefix-cache hit, if it told one.
	CachedTokens int
	CachedTold   bool
	// RemotePrefill and RemoteDecode as the handoff states them.
	RemotePrefill, RemoteDecode bool
	// TransferMode is "pull" or "push".
	TransferMode string
	// Parallel shape of the producer; 0 = absent.
	TP, DCP, PP int
	// Received is when the caller had the whole answer.
	Received time.Time
}

// Empty reports whether there is no handoff.
func (h *Handoff) Empty() bool { return h == nil || len(h.Raw) == 0 }

// maxAge bounds the age of a handoff at the moment leg 2 goes out.
const maxAge = 10 * time.Second

// Deadline is the time after which leg 2 must not go out with this handoff: the smaller of
// half the lease and ten seconds after receipt. A lease of 0 counts as unknown.
func (h *Handoff) Deadline(lease time.Duration) time.Time {
	age := maxAge
	if lease > 0 && lease/2 < age {
		age = lease / 2
	}
	return h.Received.Add(age)
}

// Expect is what the caller knows of the producer. Zero fields are not compared.
type Expect struct {
	// EngineID of the process that the caller believes it asked.
	EngineID string
	// Host and Port of the producer's side channel as configured.
	Host string
	Port int
	// BlockSize of the producer, in tokens.
	BlockSize int
	// PromptTokens of leg 1's usage.
	PromptTokens int
	// RequestID that leg 1 went out with; the engine's own id of the request contains it.
	RequestID string
}

// HandoffError says which field of a handoff failed its check.
type HandoffError struct {
	Field  string
	Reason string
}

func (e *HandoffError) Error() string {
	return fmt.Sprintf("check handoff: %s %s", e.Field, e.Reason)
}

// Usage is the token count of an answer.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	CachedTokens     int `json:"-"`
}

// UnmarshalJSON reads an engine's usage object and its optional details. A member that is
// absent or null is 0.
func (u *Usage) UnmarshalJSON(b []byte) error {
	*u = Usage{}
	if string(b) == "null" {
		return nil
	}
	if len(b) == 0 || b[0] != '{' {
		return errors.New("read usage: it is no object")
	}
	o := splice.View(b)
	details := splice.Object{}
	if d, ok := o.Get("prompt_tokens_details"); ok && string(d) != "null" {
		if d[0] != '{' {
			return errors.New("read usage: prompt_tokens_details is no object")
		}
		details = splice.View(d)
	}
	for _, m := range []struct {
		o   splice.Object
		key string
		to  *int
	}{
		{o, "prompt_tokens", &u.PromptTokens},
		{o, "completion_tokens", &u.CompletionTokens},
		{o, "total_tokens", &u.TotalTokens},
		{details, "cached_tokens", &u.CachedTokens},
	} {
		v, ok := m.o.Get(m.key)
		if !ok || string(v) == "null" {
			continue
		}
		if *m.to, ok = splice.Int(v); !ok {
			return fmt.Errorf("read usage: %s is no integer", m.key)
		}
	}
	return nil
}

// ReadUsage finds the usage in an answer. A nil usage without an error means that it has none.
func ReadUsage(answer splice.Object) (*Usage, error) {
	raw, ok := answer.Get("usage")
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	u := &Usage{}
	return u, u.UnmarshalJSON(raw)
}
