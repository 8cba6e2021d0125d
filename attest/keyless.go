package attest

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
)

// Refusals of a bundle that is signed with a certificate. Statements of engines are signed
// with plain keys and never meet them.
var (
	ErrCertificate error = &sentinel{"certificate", "the certificate does not hold", ErrUnverified}
	ErrIdentity    error = &sentinel{"identity", "signed by an identity that is not trusted", ErrUnverified}
	ErrLogEntry    error = &sentinel{"log_entry", "the log's entry does not hold", ErrUnverified}
)

// logEntry is the part of a transparency log's entry that is read.
type logEntry struct {
	LogIndex string `json:"logIndex"`
	LogID    struct {
		KeyID string `json:"keyId"`
	} `json:"logId"`
	Kind struct {
		Kind    string `json:"kind"`
		Version string `json:"version"`
	} `json:"kindVersion"`
	IntegratedTime string `json:"integratedTime"`
	Promise        struct {
		SET string `json:"signedEntryTimestamp"`
	} `json:"inclusionPromise"`
	Body string `json:"canonicalizedBody"`
}

// keyless verifies a signature by a short-lived certificate: the log's promise gives the
// time, the authority's chain must hold then, the certificate must name a trusted
// identity, and the log's entry must be about this very signature.
func (v *Verifier) keyless(p parsed) (*CertIdentity, *Public, error) {
	bad := func(err error) (*CertIdentity, *Public, error) {
		return nil, nil, fmt.Errorf("verify bundle: %w: %w", ErrCertificate, err)
	}
	if v.root == nil || len(v.identities) == 0 {
		return nil, nil, fmt.Errorf("verify bundle: %w: it is signed with a certificate, and no identity is trusted", ErrUnknownKey)
	}
	cert, err := x509.ParseCertificate(p.certificate)
	if err != nil {
		return bad(err)
	}
	at, err := v.root.promised(p)
	if err != nil {
		return nil, nil, fmt.Errorf("verify bundle: %w: %w", ErrLogEntry, err)
	}
	id, err := v.root.identified(cert, at)
	if err != nil {
		return bad(err)
	}
	if !slices.Contains(v.identities, id) {
		return nil, nil, fmt.Errorf("verify bundle: %w: %s by the word of %s", ErrIdentity, clip(id.Subject), clip(id.Issuer))
	}
	pub, err := newPublic(cert.PublicKey)
	if err != nil {
		return bad(err)
	}
	return &id, pub, nil
}

// promised verifies the entry of the log and returns its time.
func (r *TrustedRoot) promised(p parsed) (time.Time, error) {
	var none time.Time
	if len(p.entries) == 0 {
		return none, errors.New("it has no entry of the log, whose promise gives the time; timestamps of other authorities are not read")
	}
	if len(p.entries) != 1 {
		return none, fmt.Errorf("%d log entries, want one", len(p.entries))
	}
	var e logEntry
	text, err := json.Marshal(p.entries[0])
	if err != nil {
		return none, err
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return none, err
	}
	if e.Promise.SET == "" {
		return none, errors.New("the entry has no promise of the log, which gives the time; timestamps of other authorities are not read")
	}
	when, terr := strconv.ParseInt(e.IntegratedTime, 10, 64)
	index, ierr := strconv.ParseInt(cmp.Or(e.LogIndex, "0"), 10, 64) // left out where it is 0
	if terr != nil || ierr != nil {
		return none, errors.New("the entry's time or place is no number")
	}
	id := hex.EncodeToString(b64(e.LogID.KeyID))
	log, ok := r.logs[id]
	at := time.Unix(when, 0)
	if !ok || !log.span.holds(at) {
		return none, errors.New("the trusted root does not name this log at that time")
	}
	// The promise is over this one form: members sorted, no spaces.
	promise := fmt.Appendf(nil, `{"body":%q,"integratedTime":%d,"logID":"%s","logIndex":%d}`, e.Body, when, id, index)
	v, err := signature.LoadVerifier(log.key, crypto.SHA256)
	if err != nil {
		return none, err
	}
	if err := v.VerifySignature(bytes.NewReader(b64(e.Promise.SET)), bytes.NewReader(promise)); err != nil {
		return none, errors.New("the log's promise does not fit")
	}
	return at, e.about(p)
}

// about proves that the entry is about this signature, certificate and payload.
func (e logEntry) about(p parsed) error {
	digest := sha256.Sum256(p.payload)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.certificate})
	type hash struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"value"`
	}
	var body struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Spec       struct {
			PayloadHash hash `json:"payloadHash"` // dsse
			Signatures  []struct {
				Signature string `json:"signature"`
				Verifier  string `json:"verifier"`
			} `json:"signatures"`
			Content struct { // intoto
				PayloadHash hash `json:"payloadHash"`
				Envelope    struct {
					Signatures []struct {
						Sig       string `json:"sig"`
						PublicKey string `json:"publicKey"`
					} `json:"signatures"`
				} `json:"envelope"`
			} `json:"content"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(b64(e.Body), &body); err != nil {
		return fmt.Errorf("read the entry's body: %w", err)
	}
	payload, sig, by := body.Spec.PayloadHash, "", ""
	switch kind := body.Kind + " " + body.APIVersion; {
	case e.Kind.Kind != body.Kind || e.Kind.Version != body.APIVersion:
		return errors.New("the entry names another kind than its body")
	case kind == "dsse 0.0.1" && len(body.Spec.Signatures) == 1:
		sig, by = body.Spec.Signatures[0].Signature, body.Spec.Signatures[0].Verifier
	case kind == "intoto 0.0.2" && len(body.Spec.Content.Envelope.Signatures) == 1:
		s := body.Spec.Content.Envelope.Signatures[0]
		payload, sig, by = body.Spec.Content.PayloadHash, string(b64(s.Sig)), s.PublicKey
	default:
		return fmt.Errorf("an entry of kind %s with one signature is wanted, it is %s", "dsse 0.0.1 or intoto 0.0.2", clip(kind))
	}
	switch {
	case payload.Algorithm != "sha256" || payload.Value != hex.EncodeToString(digest[:]):
		return errors.New("the entry is about another payload")
	case sig != base64.StdEncoding.EncodeToString(p.sig):
		return errors.New("the entry is about another signature")
	case !samePEM(b64(by), certificate):
		return errors.New("the entry is about another certificate")
	}
	return nil
}

func samePEM(a, b []byte) bool {
	x, _ := pem.Decode(a)
	y, _ := pem.Decode(b)
	return x != nil && y != nil && x.Type == y.Type && bytes.Equal(x.Bytes, y.Bytes)
}
