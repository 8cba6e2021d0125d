package attest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBundleAsAnOutsiderReadsIt checks the bundle with the standard library alone.
func TestBundleAsAnOutsiderReadsIt(t *testing.T) {
	s, _ := keys()
	raw := mustSign(t, s, testStatement())
	var b struct {
		MediaType            string
		VerificationMaterial struct{ PublicKey struct{ Hint string } }
		DsseEnvelope         struct {
			Payload, PayloadType string
			Signatures           []struct{ Sig string }
		}
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(s.Public().PEM())
	sum := sha256.Sum256(block.Bytes)
	if b.MediaType != "application/vnd.dev.sigstore.bundle.v0.3+json" || b.VerificationMaterial.PublicKey.Hint != base64.StdEncoding.EncodeToString(sum[:]) {
		t.Fatalf("bundle %s", raw)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := base64.StdEncoding.DecodeString(b.DsseEnvelope.Payload)
	sig, _ := base64.StdEncoding.DecodeString(b.DsseEnvelope.Signatures[0].Sig)
	pae := fmt.Sprintf("DSSEv1 %d %s %d %s", len(b.DsseEnvelope.PayloadType), b.DsseEnvelope.PayloadType, len(payload), payload)
	digest := sha256.Sum256([]byte(pae))
	if !ecdsa.VerifyASN1(key.(*ecdsa.PublicKey), digest[:], sig) {
		t.Fatal("the signature does not fit the pre-authentication encoding")
	}
	if !bytes.Contains(payload, []byte(`"_type":"https://in-toto.io/Statement/v1"`)) || !bytes.Contains(payload, []byte(`{"verdict":"passed","n":1.50,"text":"<&>"}`)) {
		t.Fatalf("payload %s", payload)
	}
}

func TestEveryChangedBitIsRefused(t *testing.T) {
	s, _ := keys()
	raw := mustSign(t, s, testStatement())
	v := mustVerifier(t, testPolicy(s))
	if got, err := v.Verify(raw); err != nil || got.Key.Hint() != s.Public().Hint() || len(got.Ignored) > 0 {
		t.Fatalf("unchanged: %+v, %v", got, err)
	}
	for i := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << bit
			if _, err := v.Verify(bad); !errors.Is(err, ErrUnverified) {
				t.Fatalf("byte %d from %q to %q: %v", i, raw[i], bad[i], err)
			}
		}
	}
	for n := range raw {
		if _, err := v.Verify(raw[:n]); err == nil {
			t.Fatalf("the first %d bytes verify", n)
		}
	}
}

// edit changes a bundle as a tree.
func edit(t *testing.T, raw []byte, change func(top, mat, env map[string]any)) []byte {
	t.Helper()
	var top map[string]any
	if err := json.Unmarshal(raw, &top); err != nil {
		t.Fatal(err)
	}
	change(top, top["verificationMaterial"].(map[string]any), top["dsseEnvelope"].(map[string]any))
	out, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRefusals(t *testing.T) {
	s, other := keys()
	good := mustSign(t, s, testStatement())
	type m = map[string]any
	do := func(change func(top, mat, env m)) []byte { return edit(t, good, change) }
	signed := func(payload string) []byte { // a true signature over any payload
		return rawSign(t, s, PayloadType, []byte(payload))
	}
	text := func(typ, subject, predicate string) string {
		return `{"_type":"` + typ + `","subject":` + subject + `,"predicateType":"` + predicate + `","predicate":{}}`
	}
	hash := strings.Repeat("a", 64)
	subject := `[{"name":"record","digest":{"sha256":"` + hash + `"}}]`
	cases := []struct {
		name string
		raw  []byte
		want error
	}{
		{"other key", mustSign(t, other, testStatement()), ErrUnknownKey},
		{"other key under a trusted hint", do(func(top, _, env m) {
			var o m
			_ = json.Unmarshal(mustSign(t, other, testStatement()), &o)
			top["dsseEnvelope"] = o["dsseEnvelope"]
		}), ErrSignature},
		{"media type v0.2", do(func(top, _, _ m) { top["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=0.2" }), ErrMediaType},
		{"no signature", do(func(_, _, env m) { env["signatures"] = []any{} }), ErrSignatures},
		{"signature twice", do(func(_, _, env m) { l := env["signatures"].([]any); env["signatures"] = append(l, l[0]) }), ErrSignatures},
		{"extra key", do(func(top, _, _ m) { top["extra"] = 1 }), ErrFormat},
		{"certificate", do(func(_, mat, _ m) { mat["certificate"] = m{} }), ErrFormat},
		{"foreign key id", do(func(_, _, env m) { env["signatures"].([]any)[0].(m)["keyid"] = "x" }), ErrFormat},
		{"base64 with newline", do(func(_, _, env m) { env["payload"] = "\n" + env["payload"].(string) }), ErrFormat},
		{"duplicate key", append([]byte(`{"mediaType":"x",`), good[1:]...), ErrFormat},
		{"trailing text", append(slices.Clone(good), " {}"...), ErrFormat},
		{"too large", append(slices.Clone(good), bytes.Repeat([]byte(" "), MaxBundle)...), ErrTooLarge},
		{"payload type", rawSign(t, s, "application/json", []byte(`{}`)), ErrPayloadType},
		{"not JSON", signed(`hello`), ErrStatement},
		{"statement v2", signed(text("https://in-toto.io/Statement/v2", subject, testPredicate)), ErrStatement},
		{"no subject", signed(text(StatementV1, `[]`, testPredicate)), ErrStatement},
		{"null subject", signed(text(StatementV1, `null`, testPredicate)), ErrStatement},
		{"subject without digest", signed(text(StatementV1, `[{"name":"record","digest":{}}]`, testPredicate)), ErrStatement},
		{"upper-case digest", signed(text(StatementV1, strings.ToUpper(subject), testPredicate)), ErrStatement},
		{"duplicate predicate type", signed(`{"predicateType":"x",` + text(StatementV1, subject, testPredicate)[1:]), ErrStatement},
		{"predicate is text", signed(strings.Replace(text(StatementV1, subject, testPredicate), "{}", `"x"`, 1)), ErrStatement},
		{"statement too large", signed(`{"` + strings.Repeat("x", MaxStatement) + `":1}`), ErrTooLarge},
		{"predicate type", signed(text(StatementV1, subject, "https://example.test/other")), ErrPredicateType},
		{"subject", signed(text(StatementV1, subject, testPredicate)), ErrSubject},
		{"one subject more", mustSign(t, s, func() Statement {
			st := testStatement()
			st.Subject = append(st.Subject, SHA256Subject("more", hash))
			return st
		}()), ErrSubject},
	}
	v := mustVerifier(t, testPolicy(s))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := v.Verify(c.raw)
			if !errors.Is(err, c.want) || !errors.Is(err, ErrUnverified) || Code(err) != Code(c.want) {
				t.Fatalf("%v (%s); want %v", err, Code(err), c.want)
			}
		})
	}
}

// rawSign wraps any payload in a correctly signed bundle.
func rawSign(t *testing.T, s *Signer, payloadType string, payload []byte) []byte {
	t.Helper()
	pae := fmt.Sprintf("DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
	sig, err := s.sv.SignMessage(strings.NewReader(pae))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := encodeBundle(s.pub.hint, payload, sig)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(raw, []byte(PayloadType), []byte(payloadType), 1)
}

func TestForeignFormsThatAreAccepted(t *testing.T) {
	s, _ := keys()
	good := mustSign(t, s, testStatement())
	v := mustVerifier(t, testPolicy(s))
	with := edit(t, good, func(_, mat, env map[string]any) {
		mat["tlogEntries"] = []any{}
		mat["timestampVerificationData"] = map[string]any{"rfc3161Timestamps": []any{}}
		env["signatures"].([]any)[0].(map[string]any)["keyid"] = ""
	})
	if got, err := v.Verify(with); err != nil || len(got.Ignored) != 0 {
		t.Fatalf("empty material: %+v, %v", got, err)
	}
	logged := edit(t, good, func(_, mat, _ map[string]any) { mat["tlogEntries"] = []any{map[string]any{"logIndex": "1"}} })
	if got, err := v.Verify(logged); err != nil || !slices.Equal(got.Ignored, []string{"tlogEntries"}) {
		t.Fatalf("log entry: %+v, %v; want it named as ignored", got, err)
	}
	old := testStatement()
	old.Type = StatementV01
	if got, err := v.Verify(mustSign(t, s, old)); err != nil || got.Statement.Type != StatementV01 {
		t.Fatalf("statement v0.1: %v", err)
	}
	anyName := testPolicy(s)
	anyName.Subjects = []Subject{{Digest: anyName.Subjects[0].Digest}}
	if _, err := mustVerifier(t, anyName).Verify(good); err != nil {
		t.Fatalf("subject without a name: %v", err)
	}
}

func TestVerifierNeedsItsChoices(t *testing.T) {
	s, _ := keys()
	for name, change := range map[string]func(*Policy){
		"no key":            func(p *Policy) { p.Keys = nil },
		"nil key":           func(p *Policy) { p.Keys = append(p.Keys, nil) },
		"empty key":         func(p *Policy) { p.Keys = []*Public{{}} },
		"no predicate type": func(p *Policy) { p.PredicateTypes = nil },
		"empty type":        func(p *Policy) { p.PredicateTypes = []string{""} },
		"no subject":        func(p *Policy) { p.Subjects = nil },
		"both":              func(p *Policy) { p.AnySubject = true },
		"bad digest":        func(p *Policy) { p.Subjects = []Subject{SHA256Subject("x", "abc")} },
	} {
		p := testPolicy(s)
		change(&p)
		if v, err := NewVerifier(p); !errors.Is(err, ErrPolicy) || v != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSignRefusesWhatItWouldNotVerify(t *testing.T) {
	s, _ := keys()
	for name, change := range map[string]func(*Statement){
		"no subject":    func(st *Statement) { st.Subject = nil },
		"no predicate":  func(st *Statement) { st.Predicate = nil },
		"array":         func(st *Statement) { st.Predicate = json.RawMessage(`[]`) },
		"not JSON":      func(st *Statement) { st.Predicate = json.RawMessage(`{`) },
		"duplicate key": func(st *Statement) { st.Predicate = json.RawMessage(`{"a":1,"a":2}`) },
		"no type":       func(st *Statement) { st.PredicateType = "" },
		"other type":    func(st *Statement) { st.Type = "x" },
	} {
		st := testStatement()
		change(&st)
		if _, err := Sign(s, st); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}

func TestKeys(t *testing.T) {
	private, public, err := GenerateKey([]byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(private, []byte("BEGIN PRIVATE")) {
		t.Fatal("the key is not encrypted")
	}
	for _, pass := range []string{"", "wrong"} {
		if _, err := LoadSigner(private, []byte(pass)); !errors.Is(err, ErrPassphrase) {
			t.Fatalf("passphrase %q: %v", pass, err)
		}
	}
	s, err := LoadSigner(private, []byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	pub, err := LoadPublic(public)
	if err != nil || pub.Hint() != s.Public().Hint() {
		t.Fatalf("public key %v, %v", pub, err)
	}
	if _, err := LoadPublic(append(public, public...)); err == nil {
		t.Fatal("two keys loaded as one")
	}
	for _, bad := range []string{"", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", strings.Repeat("x", MaxKey+1)} {
		if _, err := LoadSigner([]byte(bad), nil); err == nil {
			t.Errorf("%.20q loaded", bad)
		}
	}
}

func TestOtherKindsOfKeys(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	big, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]any{"ed25519": ed, "rsa": big} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		s, err := LoadSigner(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := mustVerifier(t, testPolicy(s)).Verify(mustSign(t, s, testStatement())); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "engine.key")
	first, created, err := OpenKeyFile(path, nil)
	if err != nil || !created {
		t.Fatalf("made: %v, %v", created, err)
	}
	again, created, err := OpenKeyFile(path, nil)
	if err != nil || created || again.Public().Hint() != first.Public().Hint() {
		t.Fatalf("loaded: %v, %v", created, err)
	}
	pub, err := LoadPublicFile(path + ".pub")
	if err != nil || pub.Hint() != first.Public().Hint() {
		t.Fatalf("public: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenKeyFile(path, nil); err == nil {
		t.Fatal("a key that others may read was used")
	}
}

func FuzzVerify(f *testing.F) {
	s, other := keys()
	good := mustSign(f, s, testStatement())
	f.Add(good)
	f.Add(mustSign(f, other, testStatement()))
	f.Add([]byte(`{"mediaType":"","verificationMaterial":{"publicKey":{"hint":null}},"dsseEnvelope":{"payload":"","payloadType":"","signatures":[null]}}`))
	v := mustVerifier(f, testPolicy(s))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := v.Verify(raw)
		if err != nil {
			if !errors.Is(err, ErrUnverified) {
				t.Fatalf("error without a refusal: %v", err)
			}
			return
		}
		if want, _ := v.Verify(good); !bytes.Equal(got.Payload, want.Payload) {
			t.Fatalf("verified another payload: %s", got.Payload)
		}
	})
}

func FuzzStatement(f *testing.F) {
	f.Add([]byte(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"a","digest":{"sha256":"00"}}],"predicateType":"x","predicate":{}}`))
	f.Add([]byte(`{"_type":"","subject":null,"predicateType":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if st, err := parseStatement(raw); err == nil && (len(st.Subject) == 0 || st.PredicateType == "") {
			t.Fatalf("accepted %s", raw)
		}
	})
}
