package attest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sigstore/sigstore/pkg/signature/dsse"
)

// Policy says what a verifier believes. Every choice must be made.
type Policy struct {
	// Keys are trusted; at least one, unless Identities are.
	Keys []*Public
	// Identities are trusted where a certificate below Root names them.
	Identities []CertIdentity
	Root       *TrustedRoot
	// PredicateTypes are accepted; at least one.
	PredicateTypes []string
	// Subjects are exactly the statement's subjects, in any order. An empty name
	// matches any name; every digest named here must be there and equal.
	Subjects []Subject
	// AnySubject leaves the subjects to the caller, who compares them in Verified.
	AnySubject bool
}

// Verifier checks bundles against a policy. It may be used from many goroutines.
type Verifier struct {
	keys       map[string]*Public
	identities []CertIdentity
	root       *TrustedRoot
	predicates []string
	subjects   []Subject
	any        bool
}

// Verified is what a verified bundle says.
type Verified struct {
	Statement Statement
	Key       *Public // the key that signed: a trusted one, or that of the certificate
	// Identity is whom the certificate names, nil for a plain key.
	Identity *CertIdentity
	Payload  []byte // the statement's bytes as signed
	// Ignored names material in the bundle that was not checked.
	Ignored []string
}

// Signer names who signed: the identity, else the key's hint.
func (v Verified) Signer() string {
	if v.Identity != nil {
		return v.Identity.Subject + " by the word of " + v.Identity.Issuer
	}
	return v.Key.Hint()
}

// NewVerifier refuses, with ErrPolicy, a policy that leaves a choice open or contradicts itself.
func NewVerifier(p Policy) (*Verifier, error) {
	open := func(what string) error { return fmt.Errorf("make verifier: %w: %s", ErrPolicy, what) }
	switch {
	case len(p.Keys)+len(p.Identities) == 0 || slices.Contains(p.Keys, nil):
		return nil, open("no key is trusted")
	case (len(p.Identities) == 0) != (p.Root == nil):
		return nil, open("identities and a trusted root come together")
	case slices.ContainsFunc(p.Identities, func(i CertIdentity) bool { return i.Issuer == "" || i.Subject == "" }):
		return nil, open("an identity lacks its issuer or subject")
	case len(p.PredicateTypes) == 0 || slices.Contains(p.PredicateTypes, ""):
		return nil, open("no predicate type is named")
	case len(p.Subjects) == 0 && !p.AnySubject:
		return nil, open("neither subjects nor AnySubject")
	case len(p.Subjects) > 0 && p.AnySubject:
		return nil, open("subjects and AnySubject together")
	}
	v := &Verifier{keys: map[string]*Public{}, identities: slices.Clone(p.Identities), root: p.Root, predicates: slices.Clone(p.PredicateTypes), subjects: slices.Clone(p.Subjects), any: p.AnySubject}
	for _, s := range p.Subjects {
		if err := s.check(); err != nil {
			return nil, open(err.Error())
		}
	}
	for _, k := range p.Keys {
		if k.v == nil {
			return nil, open("a key is empty")
		}
		v.keys[k.hint] = k
	}
	return v, nil
}

// Verify checks form, key, signature, statement, predicate type and subjects, in
// this order. Every error is below ErrUnverified.
func (v *Verifier) Verify(bundle []byte) (*Verified, error) {
	p, err := parseBundle(bundle)
	if err != nil {
		return nil, err
	}
	var id *CertIdentity
	key, ok := v.keys[p.hint]
	if p.certificate != nil {
		if id, key, err = v.keyless(p); err != nil {
			return nil, err
		}
	} else if !ok {
		return nil, fmt.Errorf("verify bundle: %w: %q", ErrUnknownKey, clip(p.hint))
	}
	if p.payloadType != PayloadType {
		return nil, fmt.Errorf("verify bundle: %w: %q", ErrPayloadType, clip(p.payloadType))
	}
	if err := checkSignature(key, p); err != nil {
		return nil, err
	}
	st, err := parseStatement(p.payload)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(v.predicates, st.PredicateType) {
		return nil, fmt.Errorf("verify bundle: %w: %q", ErrPredicateType, clip(st.PredicateType))
	}
	if !v.any {
		if err := matchSubjects(v.subjects, st.Subject); err != nil {
			return nil, err
		}
	}
	return &Verified{Statement: st, Key: key, Identity: id, Payload: p.payload, Ignored: p.ignored}, nil
}

func checkSignature(key *Public, p parsed) error {
	env, err := json.Marshal(envelope{
		Payload: base64.StdEncoding.EncodeToString(p.payload), PayloadType: p.payloadType,
		Signatures: []signatureT{{Sig: base64.StdEncoding.EncodeToString(p.sig)}},
	})
	if err != nil {
		return fmt.Errorf("verify bundle: %w: %w", ErrFormat, err)
	}
	var signed []byte
	w := dsse.WrapVerifier(key.v, dsse.WithExpectedPayloadType(PayloadType), dsse.WithDecodedPayload(&signed))
	if err := w.VerifySignature(bytes.NewReader(env), nil); err != nil {
		return fmt.Errorf("verify bundle: %w", ErrSignature)
	}
	if !bytes.Equal(signed, p.payload) {
		return fmt.Errorf("verify bundle: %w: it covers other bytes", ErrSignature)
	}
	return nil
}

// matchSubjects pairs wanted and found subjects one to one.
func matchSubjects(want, got []Subject) error {
	if len(want) != len(got) {
		return fmt.Errorf("verify bundle: %w: %d subjects, want %d", ErrSubject, len(got), len(want))
	}
	left := slices.Clone(got)
	for _, w := range want {
		i := slices.IndexFunc(left, w.matches)
		if i < 0 {
			return fmt.Errorf("verify bundle: %w: none is %q with its digest", ErrSubject, clip(w.Name))
		}
		left = slices.Delete(left, i, i+1)
	}
	return nil
}

func (s Subject) matches(got Subject) bool {
	if s.Name != "" && s.Name != got.Name {
		return false
	}
	for alg, digest := range s.Digest {
		if got.Digest[alg] != digest {
			return false
		}
	}
	return true
}
