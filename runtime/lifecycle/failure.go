package lifecycle

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Refusal is an order that the router did not carry out.
type Refusal struct {
	Status int    // 409: the order does not fit now; 503: this router cannot give it
	Reason string // the router's own words
}

func (e *Refusal) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("the router refuses with status %d and no reason", e.Status)
	}
	return e.Reason
}

// Denied is an order whose sender the router does not let in.
type Denied struct {
	Status int
	Reason string
	Sent   bool // a token came along
}

func (e *Denied) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("the router answers %d", e.Status)
	}
	return fmt.Sprintf("the router answers %d: %s", e.Status, e.Reason)
}

// Unreachable is a router that gave no answer.
type Unreachable struct{ cause error }

func (e *Unreachable) Error() string { return e.cause.Error() }
func (e *Unreachable) Unwrap() error { return e.cause }

// Outdated are engines whose profiles are of other processes than those that run. Waiting mends none
// of them: each needs a new profile, which the router then takes up.
type Outdated struct {
	IIDs   []string
	Reason string
}

func (e *Outdated) Error() string { return e.Reason }

// Strange is an answer that no router gives.
type Strange struct{ text string }

func (e *Strange) Error() string { return e.text }

// Unknown is an engine that the router does not have.
type Unknown struct {
	IID   string
	Known []string
}

func (e *Unknown) Error() string { return fmt.Sprintf("the router has no engine %q", e.IID) }

func unexpected(status int, b []byte) error {
	if why := reasonOf(b); why != "" {
		return &Strange{fmt.Sprintf("status %d: %s", status, why)}
	}
	return &Strange{fmt.Sprintf("status %d", status)}
}

// reasonOf finds the words in the forms of a router's failures, "" in any other.
func reasonOf(b []byte) string {
	var in struct{ Error, Detail json.RawMessage }
	if json.Unmarshal(b, &in) != nil {
		return ""
	}
	for _, raw := range []json.RawMessage{in.Error, in.Detail} {
		var text string
		var object struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(raw, &text) == nil && text != "" {
			return short(text)
		}
		if json.Unmarshal(raw, &object) == nil && object.Message != "" {
			return short(object.Message)
		}
	}
	return ""
}

// short bounds a foreign text, on a rune's edge.
func short(s string) string {
	if len(s) <= maxReason {
		return s
	}
	n := maxReason
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
