package attest

import (
	"encoding/json"
	"sync"
	"testing"
)

var keys = sync.OnceValues(func() (*Signer, *Signer) {
	mk := func() *Signer {
		private, _, err := GenerateKey(nil)
		if err != nil {
			panic(err)
		}
		s, err := LoadSigner(private, nil)
		if err != nil {
			panic(err)
		}
		return s
	}
	return mk(), mk()
})

const testPredicate = "https://example.test/verdict/v1"

func testStatement() Statement {
	return Statement{
		Subject:       []Subject{SHA256Subject("record", "sha256:9784c3f70e2a4d482b22d2c373a8c82ee95e042837e81fe35e91d995b9babbd0")},
		PredicateType: testPredicate,
		Predicate:     json.RawMessage(`{"verdict":"passed","n":1.50,"text":"<&>"}`),
	}
}

func testPolicy(s *Signer) Policy {
	return Policy{Keys: []*Public{s.Public()}, PredicateTypes: []string{testPredicate}, Subjects: testStatement().Subject}
}

func mustSign(t testing.TB, s *Signer, st Statement) []byte {
	t.Helper()
	b, err := Sign(s, st)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustVerifier(t testing.TB, p Policy) *Verifier {
	t.Helper()
	v, err := NewVerifier(p)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
