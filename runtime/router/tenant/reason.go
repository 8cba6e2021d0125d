package tenant

import "errors"

// Reason says why a client was turned away. The set is closed, so that it may label a metric.
type Reason uint8

// The reasons. NoKey to UnknownKey concern who the client is (401), the rest how much it
// asks for (429; Removed is 401 too).
const (
	Admitted   Reason = iota
	NoKey             // no key was presented, and the anonymous may not in
	BadKey            // the headers hold no well-formed key, or two that differ
	UnknownKey        // no tenant has the key
	Removed           // the tenant went with a reload between Find and Admit
	TooLarge          // more tokens than the tenant's bucket ever holds: waiting does not help
	Inflight          // the tenant holds its most seats
	Tokens            // the tenant's bucket holds too few tokens now
	Share             // free seats are kept for tenants that hold less of their share
	Full              // no seat of the router is free
	reasons
)

var reasonNames = [reasons]string{"admitted", "no_key", "malformed_key", "unknown_key", "tenant_removed", "tenant_burst", "tenant_inflight",
	"tenant_tokens", "tenant_share", "inflight_limit"}

func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "unknown"
}

// MarshalText writes the name of the reason.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Reasons lists every reason to turn a client away.
func Reasons() []Reason {
	out := make([]Reason, 0, reasons-1)
	for r := NoKey; r < reasons; r++ {
		out = append(out, r)
	}
	return out
}

// ErrUnauthorized is the cause of every refusal that concerns who the client is. What the
// client hears should be the same for all of them.
var ErrUnauthorized = errors.New("refuse client: no valid API key")

// UnauthorizedError is ErrUnauthorized with the reason, for the router's own books.
type UnauthorizedError struct{ Why Reason }

func (e *UnauthorizedError) Error() string { return ErrUnauthorized.Error() + ": " + e.Why.String() }

// Unwrap returns ErrUnauthorized.
func (e *UnauthorizedError) Unwrap() error { return ErrUnauthorized }

var unauthorized = [reasons]*UnauthorizedError{NoKey: {NoKey}, BadKey: {BadKey}, UnknownKey: {UnknownKey}}
