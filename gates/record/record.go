// Package record keeps what a run intended, did, observed and decided: an
// append-only, hash-chained log, a store of evidence by content, and the fold
// of that log to a state.
//
// It promises that an appended event is on disk before Append returns, that each
// line names the digest of the line before it, that a reader which finds anything
// else says where, and that the state is a pure function of the events. It
// refuses to delete or rewrite events, to read a broken chain as a good one, to
// append after a failed write, and to believe bytes whose digest differs.
//
// A line is one JSON object: seq, time, kind, prev, gate, step, host, body, sum.
// prev is the hex SHA-256 of the previous line without its newline, and 64 zeros
// in the first line. sum is the hex SHA-256 of the line's bytes before `,"sum":`,
// which covers the last line, that no other line names yet. A chain proves order
// and integrity, not authorship: seals sign the digest of a line.
package record

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Limits of what is written and what is read back.
const (
	MaxLine    = 64 << 10  // bytes of one log line, newline excluded
	MaxObject  = 256 << 20 // bytes of one object
	MaxLog     = 256 << 20 // bytes of one log
	MaxActions = 1 << 15   // intents that are open, done or partial at one time
	MaxEntries = 1 << 20   // files of one folder that Verify looks at
)

// zeroDigest is the prev of the first event.
const zeroDigest = "0000000000000000000000000000000000000000000000000000000000000000"

// Key names one piece of evidence: gate letter, kind and subjects, separated by
// slashes, as in "A/host/h1" or "D/edge/h1/h2".
type Key string

// NewKey joins a key. Subjects are path-escaped, so that a slash inside one stays inside.
func NewKey(gate, kind string, subjects ...string) Key {
	parts := []string{gate, kind}
	for _, s := range subjects {
		parts = append(parts, url.PathEscape(s))
	}
	return Key(strings.Join(parts, "/"))
}

// Gate returns the key's gate letter.
func (k Key) Gate() string {
	gate, _, _ := strings.Cut(string(k), "/")
	return gate
}

// Kind returns the key's second part.
func (k Key) Kind() string {
	parts := strings.SplitN(string(k), "/", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// Subjects returns what follows gate and kind, unescaped.
func (k Key) Subjects() []string {
	parts := strings.Split(string(k), "/")
	if len(parts) < 3 {
		return nil
	}
	out := make([]string, 0, len(parts)-2)
	for _, p := range parts[2:] {
		if u, err := url.PathUnescape(p); err == nil {
			p = u
		}
		out = append(out, p)
	}
	return out
}

func (k Key) check() error {
	if len(k) > 1024 || k.Gate() == "" || k.Kind() == "" {
		return fmt.Errorf("read evidence key %q: want gate/kind/subject", clip(string(k)))
	}
	return nil
}

// Ref names bytes in the store by their SHA-256 (lower-case hex), with their
// media type and length in bytes.
type Ref struct {
	SHA256 string `json:"sha256"`
	Media  string `json:"media"`
	Bytes  int64  `json:"bytes"`
}

// Zero reports whether the reference names nothing.
func (r Ref) Zero() bool { return r.SHA256 == "" }

func (r Ref) check() error {
	if !isDigest(r.SHA256) {
		return fmt.Errorf("read reference: %q is not a SHA-256 in lower-case hex", clip(r.SHA256))
	}
	if r.Bytes < 0 || r.Bytes > MaxObject {
		return fmt.Errorf("read reference %s: %d bytes is out of bounds", r.SHA256, r.Bytes)
	}
	return nil
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && strings.ToLower(s) == s
}

// Event is one line of the log.
type Event struct {
	Seq  int64           `json:"seq"` // from 1
	Time time.Time       `json:"time"`
	Kind Kind            `json:"kind"`
	Prev string          `json:"prev"`
	Gate string          `json:"gate,omitempty"`
	Step string          `json:"step,omitempty"`
	Host string          `json:"host,omitempty"`
	Body json.RawMessage `json:"body"`
}

// Finding is one reason of a verdict. Code belongs to the gate's closed list;
// Evidence is a Key or a SHA-256.
type Finding struct {
	Code     string `json:"code"`
	Host     string `json:"host,omitempty"`
	Engine   string `json:"engine,omitempty"`
	Want     string `json:"want,omitempty"`
	Got      string `json:"got,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	Hint     string `json:"hint,omitempty"`
	Message  string `json:"message,omitempty"`
	// Note marks what a person should know and what does not fail the gate.
	Note bool `json:"note,omitempty"`
}

// clip shortens foreign text for an error.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
