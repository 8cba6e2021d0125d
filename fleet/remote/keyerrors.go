package remote

import (
	"fmt"
	"strings"
)

// UnknownHostKeyError is a host whose key neither a pin nor a known_hosts line names.
type UnknownHostKeyError struct {
	Host        string // fleet id of the hop
	Addr        string
	Fingerprint string // SHA256:…
	// Pin is the key as an element of deploy.hosts.ID.host_keys.
	Pin string
	// FleetLine sets the pin in a fleet file in CUE; "" where the hop is not a host of the fleet.
	FleetLine string
	// KnownHostsLine is the line for a known_hosts file.
	KnownHostsLine string
}

func (e *UnknownHostKeyError) Error() string {
	return fmt.Sprintf("host key of %s (%s) is unknown: %s %s", e.Host, e.Addr, keyType(e.Pin), e.Fingerprint)
}

func keyType(pin string) string {
	t, _, _ := strings.Cut(pin, " ")
	return t
}

// Expected is a key that a host should have had.
type Expected struct {
	// Source is "pin N" of the fleet's host_keys, or file:line of a known_hosts file.
	Source string
	// Fingerprint is SHA256:…
	Fingerprint string
}

// ChangedHostKeyError is a host that shows another key than the one known for it. It never passes.
type ChangedHostKeyError struct {
	Host string
	Addr string
	// Got are the fingerprints that the host showed; empty when it has no key of a known type.
	Got []string
	// Want are the keys known for it.
	Want []Expected
	// Offered are the host's key algorithms where it has none of a known type.
	Offered []string
	// Revoked marks a key that a known_hosts file revokes.
	Revoked bool
}

func (e *ChangedHostKeyError) Error() string {
	var want []string
	for _, w := range e.Want {
		want = append(want, fmt.Sprintf("%s (%s)", w.Fingerprint, w.Source))
	}
	known := strings.Join(want, ", ")
	switch {
	case e.Revoked:
		return fmt.Sprintf("host key of %s (%s) is revoked: %s, by %s", e.Host, e.Addr, strings.Join(e.Got, ", "), known)
	case len(e.Got) == 0:
		return fmt.Sprintf("host %s (%s) has no key of a known type: it offers %s, known is %s",
			e.Host, e.Addr, strings.Join(e.Offered, ", "), known)
	}
	return fmt.Sprintf("host key of %s (%s) changed: %s, known is %s", e.Host, e.Addr, strings.Join(e.Got, ", "), known)
}

// AuthError is a host that accepted none of the credentials.
type AuthError struct {
	User string
	// Tried are the credentials that were at hand, described without their content.
	Tried []string
	// Problems are credentials that could not be used, and why.
	Problems []string
	Err      error
}

func (e *AuthError) Error() string {
	tried := "no credential was at hand"
	if len(e.Tried) > 0 {
		tried = "tried " + strings.Join(e.Tried, ", ")
	}
	s := fmt.Sprintf("user %s is not let in: %s", e.User, tried)
	if len(e.Problems) > 0 {
		s += "; " + strings.Join(e.Problems, "; ")
	}
	return s
}

func (e *AuthError) Unwrap() error { return e.Err }
