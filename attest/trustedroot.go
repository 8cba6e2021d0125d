package attest

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// MaxRoot is how many bytes a trusted root may have.
const MaxRoot = 4 << 20

// CertIdentity is who a short-lived certificate was given to, and by whose word.
type CertIdentity struct {
	Issuer  string // of the OpenID token
	Subject string // of the certificate: an address or a URI
}

// TrustedRoot holds certificate authorities and transparency logs, from the file that
// Sigstore's tools write. Nothing is fetched.
type TrustedRoot struct {
	authorities []authority
	logs        map[string]tlog // by key id, hex
}

type authority struct {
	roots, between *x509.CertPool
	span           span
}

type tlog struct {
	key  crypto.PublicKey
	span span
}

// span is a time that may be open at its end.
type span struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

func (s span) holds(t time.Time) bool {
	return !t.Before(s.Start) && (s.End.IsZero() || !t.After(s.End))
}

// rootFile is the part of a trusted root that is read.
type rootFile struct {
	MediaType string `json:"mediaType"`
	Tlogs     []struct {
		PublicKey struct {
			Raw      []byte `json:"rawBytes"`
			ValidFor span   `json:"validFor"`
		} `json:"publicKey"`
		LogID struct {
			KeyID []byte `json:"keyId"`
		} `json:"logId"`
	} `json:"tlogs"`
	Authorities []struct {
		Chain struct {
			Certificates []struct {
				Raw []byte `json:"rawBytes"`
			} `json:"certificates"`
		} `json:"certChain"`
		ValidFor span `json:"validFor"`
	} `json:"certificateAuthorities"`
}

// ParseTrustedRoot reads a Sigstore trusted root in JSON.
func ParseTrustedRoot(raw []byte) (*TrustedRoot, error) {
	if len(raw) > MaxRoot {
		return nil, fmt.Errorf("read trusted root: %d bytes, limit %d", len(raw), MaxRoot)
	}
	var f rootFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("read trusted root: %w", err)
	}
	if !strings.HasPrefix(f.MediaType, "application/vnd.dev.sigstore.trustedroot") {
		return nil, fmt.Errorf("read trusted root: media type is %q", clip(f.MediaType))
	}
	r := &TrustedRoot{logs: map[string]tlog{}}
	for i, a := range f.Authorities {
		out := authority{roots: x509.NewCertPool(), between: x509.NewCertPool(), span: a.ValidFor}
		last := len(a.Chain.Certificates) - 1
		for j, c := range a.Chain.Certificates {
			cert, err := x509.ParseCertificate(c.Raw)
			if err != nil {
				return nil, fmt.Errorf("read trusted root: certificate %d of authority %d: %w", j, i, err)
			}
			if j == last {
				out.roots.AddCert(cert)
			} else {
				out.between.AddCert(cert)
			}
		}
		if last >= 0 {
			r.authorities = append(r.authorities, out)
		}
	}
	for i, l := range f.Tlogs {
		key, err := x509.ParsePKIXPublicKey(l.PublicKey.Raw)
		if err != nil {
			return nil, fmt.Errorf("read trusted root: key of log %d: %w", i, err)
		}
		r.logs[hex.EncodeToString(l.LogID.KeyID)] = tlog{key, l.PublicKey.ValidFor}
	}
	if len(r.authorities) == 0 || len(r.logs) == 0 {
		return nil, errors.New("read trusted root: it names no certificate authority or no log")
	}
	return r, nil
}

// identified verifies a certificate's chain at a time and returns who it names.
func (r *TrustedRoot) identified(cert *x509.Certificate, at time.Time) (CertIdentity, error) {
	err := errors.New("no authority of the trusted root was valid then")
	for _, a := range r.authorities {
		if !a.span.holds(at) {
			continue
		}
		_, err = cert.Verify(x509.VerifyOptions{Roots: a.roots, Intermediates: a.between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})
		if err == nil {
			return identityOf(cert)
		}
	}
	return CertIdentity{}, err
}

// Extensions of certificates that name the issuer of the token: as text, and as DER.
const (
	issuerText = "1.3.6.1.4.1.57264.1.1"
	issuerDER  = "1.3.6.1.4.1.57264.1.8"
)

func identityOf(cert *x509.Certificate) (CertIdentity, error) {
	var id CertIdentity
	for _, e := range cert.Extensions {
		switch e.Id.String() {
		case issuerDER:
			if text, ok := utf8String(e.Value); ok {
				id.Issuer = text
			}
		case issuerText:
			if id.Issuer == "" {
				id.Issuer = string(e.Value)
			}
		}
	}
	names := cryptoutils.GetSubjectAlternateNames(cert)
	if len(names) != 1 || names[0] == "" || id.Issuer == "" {
		return id, errors.New("the certificate does not name exactly one subject and its issuer")
	}
	id.Subject = names[0]
	return id, nil
}

// utf8String reads a short DER UTF8String.
func utf8String(der []byte) (string, bool) {
	if len(der) < 2 || der[0] != 0x0c {
		return "", false
	}
	n, at := int(der[1]), 2
	if n == 0x81 && len(der) > 2 {
		n, at = int(der[2]), 3
	} else if n >= 0x80 {
		return "", false
	}
	if len(der) != at+n {
		return "", false
	}
	return string(der[at:]), true
}

// b64 is standard base64 without an error: an odd text decodes to nothing that verifies.
func b64(text string) []byte {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}
