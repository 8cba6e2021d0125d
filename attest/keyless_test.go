package attest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// authorityOf is a certificate authority with a transparency log.
type authorityOf struct {
	t         *testing.T
	root, mid *x509.Certificate
	midKey    *ecdsa.PrivateKey
	logKey    *ecdsa.PrivateKey
	now       time.Time
}

func p256(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newAuthority(t *testing.T) *authorityOf {
	t.Helper()
	a := &authorityOf{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), midKey: p256(t), logKey: p256(t)}
	rootKey := p256(t)
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: a.now.Add(-time.Hour), NotAfter: a.now.Add(24 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
	}
	a.root = a.issue(template("root"), template("root"), &rootKey.PublicKey, rootKey)
	a.mid = a.issue(template("between"), a.root, &a.midKey.PublicKey, rootKey)
	return a
}

func (a *authorityOf) issue(c, parent *x509.Certificate, pub *ecdsa.PublicKey, by *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, parent, pub, by)
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

// trusted is the authority's trusted root, as a file.
func (a *authorityOf) trusted() []byte {
	der, err := x509.MarshalPKIXPublicKey(&a.logKey.PublicKey)
	if err != nil {
		a.t.Fatal(err)
	}
	id := sha256.Sum256(der)
	b := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1",
"tlogs":[{"baseUrl":"https://log.example.test","hashAlgorithm":"SHA2_256","publicKey":{"rawBytes":"%s","keyDetails":"PKIX_ECDSA_P256_SHA_256","validFor":{"start":"2026-01-01T00:00:00Z"}},"logId":{"keyId":"%s"}}],
"certificateAuthorities":[{"uri":"x","certChain":{"certificates":[{"rawBytes":"%s"},{"rawBytes":"%s"}]},"validFor":{"start":"2026-01-01T00:00:00Z","end":"2026-12-31T00:00:00Z"}}],
"ctlogs":[],"timestampAuthorities":[]}`, b(der), b(id[:]), b(a.mid.Raw), b(a.root.Raw))
}

func (a *authorityOf) parsed() *TrustedRoot {
	a.t.Helper()
	r, err := ParseTrustedRoot(a.trusted())
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

// keylessOptions change what a bundle of the authority is.
type keylessOptions struct {
	kind      string // "" = dsse 0.0.1
	at        time.Duration
	uri       string
	issuer    string
	extension bool // the older form of the issuer
	usage     x509.ExtKeyUsage
	entry     func(body, entry map[string]any) // before the log's promise
	after     func(entry, material map[string]any)
}

var testIdentity = CertIdentity{Issuer: "https://issuer.example.test", Subject: "ci@example.test"}

// sign makes a bundle with a certificate of ten minutes.
func (a *authorityOf) sign(o keylessOptions) []byte {
	a.t.Helper()
	key := p256(a.t)
	issuer := testIdentity.Issuer
	if o.issuer != "" {
		issuer = o.issuer
	}
	value, err := asn1.MarshalWithParams(issuer, "utf8")
	if err != nil {
		a.t.Fatal(err)
	}
	oid := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
	if o.extension {
		oid[8], value = 1, []byte(issuer)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: a.now, NotAfter: a.now.Add(10 * time.Minute), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, EmailAddresses: []string{testIdentity.Subject}, ExtraExtensions: []pkix.Extension{{Id: oid, Value: value}},
	}
	if o.uri != "" {
		leaf.EmailAddresses = append(leaf.EmailAddresses, o.uri)
	}
	if o.usage != 0 {
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{o.usage}
	}
	cert := a.issue(leaf, a.mid, &key.PublicKey, a.midKey)
	payload, err := json.Marshal(func() Statement { st := testStatement(); st.Type = StatementV1; return st }())
	if err != nil {
		a.t.Fatal(err)
	}
	pae := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(PayloadType), PayloadType, len(payload), payload))
	sig, err := ecdsa.SignASN1(rand.Reader, key, pae[:])
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := encodeBundle("x", payload, sig)
	if err != nil {
		a.t.Fatal(err)
	}
	b64 := base64.StdEncoding.EncodeToString
	return edit(a.t, raw, func(_, mat, _ map[string]any) {
		delete(mat, "publicKey")
		mat["certificate"] = map[string]any{"rawBytes": b64(cert.Raw)}
		entry := a.entry(o, payload, sig, cert)
		mat["tlogEntries"] = []any{entry}
		if o.after != nil {
			o.after(entry, mat)
		}
	})
}

func (a *authorityOf) entry(o keylessOptions, payload, sig []byte, cert *x509.Certificate) map[string]any {
	a.t.Helper()
	b64 := base64.StdEncoding.EncodeToString
	digest := sha256.Sum256(payload)
	hash := map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(digest[:])}
	certPEM := b64(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	kind, version := "dsse", "0.0.1"
	spec := map[string]any{"payloadHash": hash, "signatures": []any{map[string]any{"signature": b64(sig), "verifier": certPEM}}}
	if o.kind == "intoto" {
		kind, version = "intoto", "0.0.2"
		spec = map[string]any{"content": map[string]any{"payloadHash": hash, "envelope": map[string]any{
			"signatures": []any{map[string]any{"sig": b64([]byte(b64(sig))), "publicKey": certPEM}}}}}
	}
	body := map[string]any{"kind": kind, "apiVersion": version, "spec": spec}
	der, err := x509.MarshalPKIXPublicKey(&a.logKey.PublicKey)
	if err != nil {
		a.t.Fatal(err)
	}
	id := sha256.Sum256(der)
	when := a.now.Add(time.Minute + o.at).Unix()
	entry := map[string]any{
		"logIndex": "42", "logId": map[string]any{"keyId": b64(id[:])}, "kindVersion": map[string]any{"kind": kind, "version": version},
		"integratedTime": fmt.Sprint(when),
	}
	if o.entry != nil {
		o.entry(body, entry)
	}
	text, err := json.Marshal(body)
	if err != nil {
		a.t.Fatal(err)
	}
	entry["canonicalizedBody"] = b64(text)
	promise := sha256.Sum256(fmt.Appendf(nil, `{"body":"%s","integratedTime":%d,"logID":"%x","logIndex":42}`, b64(text), when, id))
	set, err := ecdsa.SignASN1(rand.Reader, a.logKey, promise[:])
	if err != nil {
		a.t.Fatal(err)
	}
	entry["inclusionPromise"] = map[string]any{"signedEntryTimestamp": b64(set)}
	return entry
}

func keylessPolicy(r *TrustedRoot) Policy {
	return Policy{Identities: []CertIdentity{testIdentity}, Root: r, PredicateTypes: []string{testPredicate}, Subjects: testStatement().Subject}
}

func TestKeyless(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	v := mustVerifier(t, keylessPolicy(a.parsed()))
	for name, o := range map[string]keylessOptions{"dsse": {}, "intoto": {kind: "intoto"}, "the older form of the issuer": {extension: true}} {
		got, err := v.Verify(a.sign(o))
		if err != nil || got.Identity == nil || *got.Identity != testIdentity || !strings.Contains(got.Signer(), testIdentity.Subject) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	stamp := map[string]any{"rfc3161Timestamps": []any{map[string]any{"signedTimestamp": "MAA="}}}
	stamped, err := v.Verify(a.sign(keylessOptions{after: func(_, m map[string]any) { m["timestampVerificationData"] = stamp }}))
	if err != nil || !slices.Equal(stamped.Ignored, []string{"timestampVerificationData"}) {
		t.Errorf("a timestamp beside the log's promise: %+v, %v", stamped, err)
	}
	spec := func(body map[string]any) map[string]any { return body["spec"].(map[string]any) }
	one := func(body map[string]any) map[string]any {
		return spec(body)["signatures"].([]any)[0].(map[string]any)
	}
	for name, c := range map[string]struct {
		by   *authorityOf
		o    keylessOptions
		want error
	}{
		"another authority":            {other, keylessOptions{}, ErrLogEntry},
		"another issuer":               {a, keylessOptions{issuer: "https://evil.example.test"}, ErrIdentity},
		"two subjects":                 {a, keylessOptions{uri: "b@example.test"}, ErrCertificate},
		"a certificate for servers":    {a, keylessOptions{usage: x509.ExtKeyUsageServerAuth}, ErrCertificate},
		"after the certificate":        {a, keylessOptions{at: time.Hour}, ErrCertificate},
		"before the certificate":       {a, keylessOptions{at: -time.Hour}, ErrCertificate},
		"after the authority":          {a, keylessOptions{at: 400 * 24 * time.Hour}, ErrCertificate},
		"before the log":               {a, keylessOptions{at: -100 * 24 * time.Hour}, ErrLogEntry},
		"an entry of another payload":  {a, keylessOptions{entry: func(b, _ map[string]any) { spec(b)["payloadHash"].(map[string]any)["value"] = strings.Repeat("0", 64) }}, ErrLogEntry},
		"an entry of another hash":     {a, keylessOptions{entry: func(b, _ map[string]any) { spec(b)["payloadHash"].(map[string]any)["algorithm"] = "md5" }}, ErrLogEntry},
		"an entry of another sig":      {a, keylessOptions{entry: func(b, _ map[string]any) { one(b)["signature"] = "AAAA" }}, ErrLogEntry},
		"an entry of another cert":     {a, keylessOptions{entry: func(b, _ map[string]any) { one(b)["verifier"] = "AAAA" }}, ErrLogEntry},
		"an entry of another kind":     {a, keylessOptions{entry: func(b, _ map[string]any) { b["kind"] = "hashedrekord" }}, ErrLogEntry},
		"an entry that says otherwise": {a, keylessOptions{entry: func(_, e map[string]any) { e["kindVersion"].(map[string]any)["version"] = "0.0.2" }}, ErrLogEntry},
		"two signatures in the entry": {a, keylessOptions{entry: func(b, _ map[string]any) {
			spec(b)["signatures"] = append(spec(b)["signatures"].([]any), map[string]any{})
		}}, ErrLogEntry},
		"a timestamp instead of an entry": {a, keylessOptions{after: func(_, m map[string]any) {
			delete(m, "tlogEntries")
			m["timestampVerificationData"] = stamp
		}}, ErrLogEntry},
		"no entry":         {a, keylessOptions{after: func(_, m map[string]any) { delete(m, "tlogEntries") }}, ErrLogEntry},
		"two entries":      {a, keylessOptions{after: func(e, m map[string]any) { m["tlogEntries"] = []any{e, e} }}, ErrLogEntry},
		"no promise":       {a, keylessOptions{after: func(e, _ map[string]any) { delete(e, "inclusionPromise") }}, ErrLogEntry},
		"another promise":  {a, keylessOptions{after: func(e, _ map[string]any) { e["inclusionPromise"] = map[string]any{"signedEntryTimestamp": "AAAA"} }}, ErrLogEntry},
		"another time":     {a, keylessOptions{after: func(e, _ map[string]any) { e["integratedTime"] = fmt.Sprint(a.now.Add(2 * time.Minute).Unix()) }}, ErrLogEntry},
		"another place":    {a, keylessOptions{after: func(e, _ map[string]any) { e["logIndex"] = "43" }}, ErrLogEntry},
		"no time":          {a, keylessOptions{after: func(e, _ map[string]any) { e["integratedTime"] = "now" }}, ErrLogEntry},
		"another log":      {a, keylessOptions{after: func(e, _ map[string]any) { e["logId"] = map[string]any{"keyId": "AAAA"} }}, ErrLogEntry},
		"no certificate":   {a, keylessOptions{after: func(_, m map[string]any) { m["certificate"] = map[string]any{"rawBytes": "AAAA"} }}, ErrCertificate},
		"a key beside it":  {a, keylessOptions{after: func(_, m map[string]any) { m["publicKey"] = map[string]any{"hint": "x"} }}, ErrFormat},
		"an entry of text": {a, keylessOptions{after: func(_, m map[string]any) { m["tlogEntries"] = []any{"x"} }}, ErrLogEntry},
	} {
		if _, err := v.Verify(c.by.sign(c.o)); !errors.Is(err, c.want) || !errors.Is(err, ErrUnverified) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	good := a.sign(keylessOptions{})
	byKey, _ := keys()
	if _, err := mustVerifier(t, testPolicy(byKey)).Verify(good); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("only a key is trusted: %v", err)
	}
	both := keylessPolicy(a.parsed())
	both.Keys = []*Public{byKey.Public()}
	for _, raw := range [][]byte{good, mustSign(t, byKey, testStatement())} {
		if _, err := mustVerifier(t, both).Verify(raw); err != nil {
			t.Errorf("key and identity are trusted: %v", err)
		}
	}
	changed := edit(t, good, func(_, _, env map[string]any) {
		env["payload"] = base64.StdEncoding.EncodeToString([]byte(`{}`))
	})
	if _, err := v.Verify(changed); !errors.Is(err, ErrLogEntry) {
		t.Errorf("another payload: %v", err)
	}
}

func TestTrustedRootRefuses(t *testing.T) {
	good := string(newAuthority(t).trusted())
	for name, raw := range map[string]string{
		"no JSON":       "{",
		"another file":  strings.Replace(good, "trustedroot", "signingconfig", 1),
		"no log":        strings.Replace(good, `"tlogs"`, `"tlog"`, 1),
		"no authority":  strings.Replace(good, `"certificateAuthorities"`, `"authorities"`, 1),
		"a broken key":  strings.Replace(good, `"publicKey":{"rawBytes":"MF`, `"publicKey":{"rawBytes":"MA`, 1),
		"a broken cert": strings.Replace(good, `"certificates":[{"rawBytes":"MI`, `"certificates":[{"rawBytes":"MA`, 1),
		"too large":     strings.Repeat(" ", MaxRoot+1),
	} {
		if _, err := ParseTrustedRoot([]byte(raw)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	a := newAuthority(t)
	for name, p := range map[string]Policy{
		"an identity without a root":   {Identities: []CertIdentity{testIdentity}},
		"a root without an identity":   {Root: a.parsed()},
		"an identity without a issuer": {Root: a.parsed(), Identities: []CertIdentity{{Subject: "x"}}},
	} {
		p.PredicateTypes, p.AnySubject = []string{testPredicate}, true
		if _, err := NewVerifier(p); !errors.Is(err, ErrPolicy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSigners(t *testing.T) {
	a, b := keys()
	authority := newAuthority(t)
	files := map[string][]byte{"a.pub": a.Public().PEM(), "b.pub": b.Public().PEM(), "root.json": authority.trusted()}
	read := func(name string) ([]byte, error) {
		if f, ok := files[name]; ok {
			return f, nil
		}
		return nil, os.ErrNotExist
	}
	const good = `{"schema":"narwhal.signing_policy","schema_version":1,"trusted_root":"root.json","signers":[
{"name":"operator","key":"a.pub","gates":["A","B","rollback"]},
{"name":"releases","key":"b.pub","gates":["G"]},
{"name":"ci","issuer":"https://issuer.example.test","subject":"ci@example.test","gates":["F"]}]}`
	s, err := ParseSigners([]byte(good), read)
	if err != nil {
		t.Fatal(err)
	}
	v := mustVerifier(t, s.Policy([]string{testPredicate}))
	for name, c := range map[string]struct {
		bundle []byte
		may    []string
	}{
		"operator": {mustSign(t, a, testStatement()), []string{"A", "B", "rollback"}},
		"releases": {mustSign(t, b, testStatement()), []string{"G"}},
		"ci":       {authority.sign(keylessOptions{}), []string{"F"}},
	} {
		got, err := v.Verify(c.bundle)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for gate := range strings.FieldsSeq(scopes + " Z") {
			err := s.Allow(got, gate)
			if want := slices.Contains(c.may, gate); (err == nil) != want || err != nil && !errors.Is(err, ErrScope) {
				t.Errorf("%s signs %s: %v", name, gate, err)
			}
		}
	}
	all := SignersOf([]*Public{a.Public()})
	if got, err := v.Verify(mustSign(t, a, testStatement())); err != nil || all.Allow(got, "G") != nil || all.Allow(got, "rollback") != nil {
		t.Errorf("a trusted key may not sign: %v", err)
	}
	for name, change := range map[string][2]string{
		"another schema":       {"signing_policy", "policy"},
		"another version":      {`"schema_version":1`, `"schema_version":2`},
		"another member":       {`"schema_version":1`, `"schema_version":1,"x":1`},
		"no signer":            {`"signers":[`, `"signers":[],"y":[`},
		"an unknown gate":      {`"gates":["G"]`, `"gates":["H"]`},
		"a gate twice":         {`"gates":["G"]`, `"gates":["G","G"]`},
		"no gate":              {`"gates":["G"]`, `"gates":[]`},
		"no name":              {`"name":"ci"`, `"name":""`},
		"a name twice":         {`"name":"ci"`, `"name":"operator"`},
		"key and issuer":       {`"key":"b.pub"`, `"key":"b.pub","issuer":"x"`},
		"a missing key":        {`"key":"b.pub"`, `"key":"c.pub"`},
		"a key that is none":   {`"key":"b.pub"`, `"key":"root.json"`},
		"an empty subject":     {`"subject":"ci@example.test"`, `"subject":""`},
		"no trusted root":      {`"trusted_root":"root.json",`, ``},
		"a missing root":       {`"trusted_root":"root.json"`, `"trusted_root":"x"`},
		"a root that is none":  {`"trusted_root":"root.json"`, `"trusted_root":"a.pub"`},
		"a root for nobody":    {`"issuer":"https://issuer.example.test","subject":"ci@example.test"`, `"key":"b.pub"`},
		"a member twice":       {`"schema_version":1`, `"schema_version":1,"schema_version":1`},
		"signers of something": {`"signers":[`, `"signers":[1,`},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := ParseSigners([]byte(text), read); err == nil || !strings.HasPrefix(err.Error(), "read signing policy: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzKeyless reads hostile certificates, entries and roots.
func FuzzKeyless(f *testing.F) {
	f.Add([]byte("{}"), []byte("{}"))
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot","tlogs":[{}]}`), []byte(`{"canonicalizedBody":"e30="}`))
	f.Fuzz(func(t *testing.T, root, entry []byte) {
		if r, err := ParseTrustedRoot(root); err == nil && (len(r.logs) == 0 || len(r.authorities) == 0) {
			t.Fatal("an empty root")
		}
		var tree any
		if json.Unmarshal(entry, &tree) != nil {
			return
		}
		r := &TrustedRoot{logs: map[string]tlog{}}
		if _, err := r.promised(parsed{entries: []any{tree}}); err == nil {
			t.Fatal("no log is trusted, and its promise is believed")
		}
		var e logEntry
		if json.Unmarshal(entry, &e) == nil && e.about(parsed{payload: []byte("x"), sig: []byte("y"), certificate: []byte("z")}) == nil && !bytes.Contains(b64(e.Body), []byte("spec")) {
			t.Fatal("an entry about nothing")
		}
		utf8String(entry)
	})
}
