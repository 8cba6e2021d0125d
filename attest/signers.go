package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
)

// Names of the signing policy's format.
const (
	SigningPolicySchema  = "narwhal.signing_policy"
	SigningPolicyVersion = 1
)

// ErrScope refuses a signature that is good, by a signer who may not sign this.
var ErrScope error = &sentinel{"signer_scope", "the signer may not sign this", ErrUnverified}

// TrustedSigner is one who may sign, by a key or by an identity.
type TrustedSigner struct {
	Name     string
	Key      *Public       // nil with an identity
	Identity *CertIdentity // nil with a key
	// Scope lists what the signer may seal: gate letters and "rollback"; nil = everything.
	Scope []string
}

// Signers says who may sign what.
type Signers struct {
	List []TrustedSigner
	Root *TrustedRoot // for identities
}

// SignersOf trusts keys with everything.
func SignersOf(keys []*Public) Signers {
	var out Signers
	for _, k := range keys {
		out.List = append(out.List, TrustedSigner{Key: k})
	}
	return out
}

// Policy is the verifier's policy that believes every signer of the list.
func (s Signers) Policy(types []string) Policy {
	p := Policy{PredicateTypes: types, AnySubject: true}
	for _, t := range s.List {
		if t.Identity != nil {
			p.Identities, p.Root = append(p.Identities, *t.Identity), s.Root
		} else {
			p.Keys = append(p.Keys, t.Key)
		}
	}
	return p
}

// Allow refuses with ErrScope when whoever signed may not seal the name.
func (s Signers) Allow(v *Verified, name string) error {
	for _, t := range s.List {
		same := t.Identity != nil && v.Identity != nil && *t.Identity == *v.Identity || t.Key != nil && v.Identity == nil && t.Key.hint == v.Key.hint
		if same && (t.Scope == nil || slices.Contains(t.Scope, name)) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s, by %s", ErrScope, clip(name), clip(v.Signer()))
}

// ParseSigners reads a signing policy. read returns the files that it names: public keys
// in PEM, and the trusted root.
func ParseSigners(raw []byte, read func(string) ([]byte, error)) (Signers, error) {
	var out Signers
	bad := func(format string, args ...any) (Signers, error) {
		return Signers{}, fmt.Errorf("read signing policy: "+format, args...)
	}
	if len(raw) > MaxResponse {
		return bad("%d bytes, limit %d", len(raw), MaxResponse)
	}
	tree, err := canonical.ParseObject(raw)
	if err != nil {
		return bad("%w", err)
	}
	if err := onlyKeys(tree, []string{"schema", "schema_version", "signers"}, "trusted_root"); err != nil {
		return bad("%w", err)
	}
	if v, ok := tree["schema_version"].(json.Number); tree["schema"] != SigningPolicySchema || !ok || v.String() != fmt.Sprint(SigningPolicyVersion) {
		return bad("want schema %s, version %d", SigningPolicySchema, SigningPolicyVersion)
	}
	list, _ := tree["signers"].([]any)
	if len(list) == 0 {
		return bad("it names no signer")
	}
	seen := map[string]bool{}
	for i, v := range list {
		m, _ := v.(map[string]any)
		s, err := trustedSigner(m, read)
		if err == nil && seen[s.Name] {
			err = errors.New("the name comes twice")
		}
		if err != nil {
			return bad("signers[%d]: %w", i, err)
		}
		seen[s.Name] = true
		out.List = append(out.List, s)
	}
	keyless := slices.ContainsFunc(out.List, func(s TrustedSigner) bool { return s.Identity != nil })
	path, named := tree["trusted_root"].(string)
	if keyless != named || named && path == "" {
		return bad("trusted_root and signers with an issuer come together")
	}
	if named {
		b, err := read(path)
		if err != nil {
			return bad("trusted_root: %w", err)
		}
		if out.Root, err = ParseTrustedRoot(b); err != nil {
			return bad("trusted_root: %w", err)
		}
	}
	return out, nil
}

// scopes is what may be sealed.
const scopes = "A B C D E F G rollback"

func trustedSigner(m map[string]any, read func(string) ([]byte, error)) (TrustedSigner, error) {
	var s TrustedSigner
	by := []string{"key"}
	if _, ok := m["key"]; !ok {
		by = []string{"issuer", "subject"}
	}
	if err := onlyKeys(m, append([]string{"name", "gates"}, by...)); err != nil {
		return s, err
	}
	f := &fields{}
	s.Name = f.text(m, "name")
	gates, _ := m["gates"].([]any)
	for _, g := range gates {
		name, _ := g.(string)
		if !slices.Contains(strings.Fields(scopes), name) || slices.Contains(s.Scope, name) {
			f.fail("gates: %q is none of %s, or comes twice", clip(name), scopes)
		}
		s.Scope = append(s.Scope, name)
	}
	if s.Name == "" || len(s.Scope) == 0 {
		f.fail("the name or the list of gates is empty")
	}
	if len(by) == 2 {
		s.Identity = &CertIdentity{Issuer: f.text(m, "issuer"), Subject: f.text(m, "subject")}
		if s.Identity.Issuer == "" || s.Identity.Subject == "" {
			f.fail("issuer or subject is empty")
		}
		return s, f.err
	}
	path := f.text(m, "key")
	if f.err != nil {
		return s, f.err
	}
	b, err := read(path)
	if err != nil {
		return s, fmt.Errorf("key: %w", err)
	}
	if s.Key, err = LoadPublic(b); err != nil {
		return s, fmt.Errorf("key %s: %w", path, err)
	}
	return s, nil
}
