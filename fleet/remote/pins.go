package remote

import (
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// pin is one element of a host's host_keys.
type pin struct {
	key         ssh.PublicKey // nil when only the fingerprint is known
	fingerprint string        // SHA256:…
}

func (p pin) matches(key ssh.PublicKey) bool { return ssh.FingerprintSHA256(key) == p.fingerprint }

func parsePins(lines []string) ([]pin, error) {
	var pins []pin
	for i, text := range lines {
		p, err := parsePin(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("read host_keys[%d]: %w", i, err)
		}
		pins = append(pins, p)
	}
	return pins, nil
}

func parsePin(text string) (pin, error) {
	if digest, ok := strings.CutPrefix(text, "SHA256:"); ok {
		digest = strings.TrimRight(digest, "=")
		if raw, err := base64.RawStdEncoding.Strict().DecodeString(digest); err != nil || len(raw) != 32 {
			return pin{}, fmt.Errorf("want SHA256: and 43 characters of base64, as ssh-keygen -l prints")
		}
		return pin{fingerprint: "SHA256:" + digest}, nil
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(options) > 0 || len(rest) > 0 {
		return pin{}, fmt.Errorf("want a key like \"ssh-ed25519 AAAA…\" or a fingerprint like \"SHA256:…\"")
	}
	return pin{key: key, fingerprint: ssh.FingerprintSHA256(key)}, nil
}

// keyAlgorithms are those that a host may prove its key with, in order of preference.
var keyAlgorithms = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

// keyTypeOf returns the key type that an algorithm proves.
func keyTypeOf(algorithm string) string {
	if algorithm == ssh.KeyAlgoRSASHA512 || algorithm == ssh.KeyAlgoRSASHA256 {
		return ssh.KeyAlgoRSA
	}
	return algorithm
}

// algorithmsOf returns the algorithms for keys of the types in want.
func algorithmsOf(want map[string]bool) []string {
	var out []string
	for _, a := range keyAlgorithms {
		if want[keyTypeOf(a)] {
			out = append(out, a)
		}
	}
	return out
}
