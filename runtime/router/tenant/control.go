package tenant

import (
	"crypto/subtle"
	"errors"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Control guards the routes that change or reveal the router's state. The zero Control has
// no token.
type Control struct {
	token digest
	set   bool
}

// leastToken is a length below which a token can be guessed.
const leastToken = 16

// NewControl makes the guard of a token, of which it keeps the digest only. An empty secret
// is none. The error never holds the token.
func NewControl(token fleet.Secret) (Control, error) {
	if token.Empty() {
		return Control{}, nil
	}
	text := token.Reveal()
	if !wellFormed(text) || len(text) < leastToken {
		return Control{}, errors.New("read control token: want 16 to 512 visible ASCII characters")
	}
	return Control{hashed(text), true}, nil
}

// Guarded reports whether Allow asks for anything under the table in force.
func (c Control) Guarded(s *Set) bool { return c.set || s != nil && s.Table().HasAdmin() }

// Allow lets a request into the control routes that presents the token or the key of an
// admin tenant, in its Authorization ("Bearer …") or X-API-Key header; an absent header is
// "". Where there is neither a token nor an admin, everybody may in: then only the network
// guards. The error is an *UnauthorizedError.
func (c Control) Allow(s *Set, authorization, apiKey string) error {
	if !c.Guarded(s) {
		return nil
	}
	d, why := presented(authorization, apiKey)
	if why != Admitted {
		return unauthorized[why]
	}
	ok := 0
	if c.set {
		ok = subtle.ConstantTimeCompare(c.token[:], d[:])
	}
	if s != nil {
		t := s.Table()
		if i, hit := t.match(d); hit && t.tenants[i].Admin {
			ok = 1
		}
	}
	if ok != 1 {
		return unauthorized[UnknownKey]
	}
	return nil
}

// AllowIn is Allow on a request's headers, under their canonical names.
func (c Control) AllowIn(s *Set, header map[string][]string) error {
	authorization, apiKey, ok := headers(header)
	if !ok && c.Guarded(s) {
		return unauthorized[BadKey]
	}
	return c.Allow(s, authorization, apiKey)
}
