package tenant

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"strings"
)

// digest is the SHA-256 of a key.
type digest [sha256.Size]byte

const (
	digestPrefix = "sha256:"
	// maxKeyBytes bounds a presented key. Whoever presents more has none.
	maxKeyBytes = 512
)

// KeyDigest returns what stands in a tenants file for a key: "sha256:" and 64 hexadecimal
// digits. A key must be random, of 128 bits or more: the digest of a guessable one tells it.
func KeyDigest(key string) string {
	d := hashed(key)
	return digestPrefix + hex.EncodeToString(d[:])
}

// hashed digests a key; of a key above maxKeyBytes it sees the beginning only.
func hashed(key string) digest {
	var b [maxKeyBytes]byte
	return sha256.Sum256(b[:copy(b[:], key)])
}

func parseDigest(s string) (d digest, ok bool) {
	text, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(text) != hex.EncodedLen(len(d)) {
		return d, false
	}
	_, err := hex.Decode(d[:], []byte(text))
	return d, err == nil
}

// wellFormed reports whether a key is 1 to maxKeyBytes visible ASCII characters.
func wellFormed(key string) bool {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return false
		}
	}
	return key != "" && len(key) <= maxKeyBytes
}

// bearer returns the token of an Authorization header, "" if it holds none.
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}

// presented returns the digest of the key that two headers hold. A header that is "" is
// absent. Two different keys are as good as none.
func presented(authorization, apiKey string) (digest, Reason) {
	var d digest
	if authorization == "" && apiKey == "" {
		return d, NoKey
	}
	if authorization != "" {
		token := bearer(authorization)
		if !wellFormed(token) {
			return d, BadKey
		}
		d = hashed(token)
	}
	if apiKey != "" {
		if !wellFormed(apiKey) {
			return d, BadKey
		}
		other := hashed(apiKey)
		if authorization != "" && subtle.ConstantTimeCompare(d[:], other[:]) != 1 {
			return d, BadKey
		}
		d = other
	}
	return d, Admitted
}

// headers returns the two headers of a request; ok is false when one is given twice.
func headers(h map[string][]string) (authorization, apiKey string, ok bool) {
	a, k := h["Authorization"], h["X-Api-Key"]
	if len(a) > 1 || len(k) > 1 {
		return "", "", false
	}
	if len(a) == 1 {
		authorization = a[0]
	}
	if len(k) == 1 {
		apiKey = k[0]
	}
	return authorization, apiKey, true
}
