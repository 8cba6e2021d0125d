package remote

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// verifier decides on the host key of one hop. It is used by one handshake at a time.
type verifier struct {
	hop     Hop
	pins    []pin
	db      *knownhosts.HostKeyDB
	lookup  string          // host:port for known_hosts files
	refused []ssh.PublicKey // keys seen that no pin matches
	passed  ssh.PublicKey
	failure error
}

func newVerifier(h Hop) (*verifier, error) {
	pins, err := parsePins(h.Pins)
	if err != nil {
		return nil, err
	}
	v := &verifier{hop: h, pins: pins, lookup: h.Addr()}
	if h.Alias != "" {
		v.lookup = net.JoinHostPort(h.Alias, "22")
	}
	if len(pins) > 0 {
		return v, nil
	}
	var files []string
	for _, path := range h.KnownHosts {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, path)
		} else if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read known_hosts: %w", err)
		}
	}
	if len(files) == 0 {
		return v, nil
	}
	if v.db, err = knownhosts.NewDB(files...); err != nil {
		return nil, fmt.Errorf("read known_hosts: %w", err)
	}
	return v, nil
}

// algorithms are those to offer in the next handshake: of the pinned key types; every type not
// refused yet while a pin is a fingerprint only; else those of the known_hosts lines.
func (v *verifier) algorithms() []string {
	if len(v.pins) == 0 {
		if v.db != nil {
			if known := v.db.HostKeyAlgorithms(v.lookup); len(known) > 0 {
				return known
			}
		}
		return keyAlgorithms
	}
	types := map[string]bool{}
	for _, p := range v.pins {
		if p.key == nil {
			for _, a := range keyAlgorithms {
				types[keyTypeOf(a)] = true
			}
		} else {
			types[p.key.Type()] = true
		}
	}
	for _, key := range v.refused {
		delete(types, key.Type())
	}
	return algorithmsOf(types)
}

// check is the ssh.HostKeyCallback.
func (v *verifier) check(_ string, remote net.Addr, key ssh.PublicKey) error {
	v.failure = v.verdict(remote, key)
	if v.failure == nil {
		v.passed = key
	}
	return v.failure
}

func (v *verifier) verdict(remote net.Addr, key ssh.PublicKey) error {
	if len(v.pins) > 0 {
		for _, p := range v.pins {
			if p.matches(key) {
				return nil
			}
		}
		v.refused = append(v.refused, key)
		return v.changed(nil)
	}
	if v.db == nil {
		return v.unknown(key)
	}
	err := v.db.HostKeyCallback()(v.lookup, remote, key)
	if err == nil {
		return nil
	}
	var revoked *xknownhosts.RevokedError
	if errors.As(err, &revoked) {
		e := v.changed([]xknownhosts.KnownKey{revoked.Revoked})
		e.Got, e.Revoked = []string{ssh.FingerprintSHA256(key)}, true
		return e
	}
	var mismatch *xknownhosts.KeyError
	if !errors.As(err, &mismatch) {
		return fmt.Errorf("check known_hosts: %w", err)
	}
	if len(mismatch.Want) == 0 {
		return v.unknown(key)
	}
	e := v.changed(mismatch.Want)
	e.Got = []string{ssh.FingerprintSHA256(key)}
	return e
}

// again reports whether the handshake that failed with err is worth repeating: a fingerprint
// does not say its key's type, so each type that the host has is looked at.
func (v *verifier) again(err error) bool {
	var changed *ChangedHostKeyError
	if len(v.pins) == 0 || !errors.As(err, &changed) || changed.Offered != nil {
		return false
	}
	for _, p := range v.pins {
		if p.key == nil {
			return len(v.algorithms()) > 0
		}
	}
	return false
}

// translate turns a failed negotiation of the host key into the error it means.
func (v *verifier) translate(err error) error {
	if v.failure != nil {
		return v.failure
	}
	var negotiation *ssh.AlgorithmNegotiationError
	if !errors.As(err, &negotiation) || negotiation.What != "host key" {
		return nil
	}
	if len(v.pins) > 0 {
		e := v.changed(nil)
		e.Offered = negotiation.RequestedAlgorithms
		return e
	}
	if v.db == nil {
		return nil
	}
	var want []xknownhosts.KnownKey
	known := v.known()
	if len(known) == 0 {
		return nil
	}
	e := v.changed(append(want, known...))
	e.Offered = negotiation.RequestedAlgorithms
	return e
}

// known returns the known_hosts lines of the hop with their places.
func (v *verifier) known() []xknownhosts.KnownKey {
	keys := v.db.HostKeys(v.lookup)
	if len(keys) == 0 {
		return nil
	}
	// A key that cannot match makes the database name every line that it would have taken.
	err := v.db.HostKeyCallback()(v.lookup, &net.TCPAddr{IP: net.IPv4zero}, noKey{})
	var mismatch *xknownhosts.KeyError
	if errors.As(err, &mismatch) {
		return mismatch.Want
	}
	return nil
}

type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("verify: no key") }

func (v *verifier) changed(want []xknownhosts.KnownKey) *ChangedHostKeyError {
	e := &ChangedHostKeyError{Host: v.hop.ID, Addr: v.hop.Addr()}
	for _, key := range v.refused {
		e.Got = append(e.Got, ssh.FingerprintSHA256(key))
	}
	for i, p := range v.pins {
		e.Want = append(e.Want, Expected{Source: "pin " + strconv.Itoa(i+1), Fingerprint: p.fingerprint})
	}
	for _, k := range want {
		e.Want = append(e.Want, Expected{Source: k.Filename + ":" + strconv.Itoa(k.Line), Fingerprint: ssh.FingerprintSHA256(k.Key)})
	}
	return e
}

func (v *verifier) unknown(key ssh.PublicKey) error {
	text := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	e := &UnknownHostKeyError{
		Host: v.hop.ID, Addr: v.hop.Addr(), Fingerprint: ssh.FingerprintSHA256(key), Pin: text,
		KnownHostsLine: xknownhosts.Line([]string{xknownhosts.Normalize(v.lookup)}, key),
	}
	if v.hop.InFleet {
		e.FleetLine = fmt.Sprintf("deploy: hosts: %q: host_keys: [%q]", v.hop.ID, text)
	}
	return e
}
