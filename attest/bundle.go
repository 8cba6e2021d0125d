package attest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
)

type bundle struct {
	MediaType string   `json:"mediaType"`
	Material  material `json:"verificationMaterial"`
	Envelope  envelope `json:"dsseEnvelope"`
}

type material struct {
	PublicKey publicKey `json:"publicKey"`
}

type publicKey struct {
	Hint string `json:"hint"`
}

type envelope struct {
	Payload     string       `json:"payload"`
	PayloadType string       `json:"payloadType"`
	Signatures  []signatureT `json:"signatures"`
}

type signatureT struct {
	Sig string `json:"sig"`
}

// parsed is a bundle whose form is right; nothing in it is believed yet.
type parsed struct {
	hint        string // "" with a certificate
	certificate []byte // DER
	entries     []any  // of the log, with a certificate
	payloadType string
	payload     []byte
	sig         []byte
	ignored     []string
}

// parseBundle reads a bundle in the accepted form: exact keys, each once, exact
// media type, canonical base64, one signature.
func parseBundle(raw []byte) (parsed, error) {
	var p parsed
	if len(raw) > MaxBundle {
		return p, fmt.Errorf("read bundle: %d bytes, limit %d: %w", len(raw), MaxBundle, ErrTooLarge)
	}
	top, err := canonical.ParseObject(raw)
	if err != nil {
		return p, fmt.Errorf("read bundle: %w: %w", ErrFormat, err)
	}
	f := &fields{}
	mediaType := f.text(top, "mediaType")
	mat := f.object(top, "verificationMaterial")
	env := f.object(top, "dsseEnvelope")
	f.keys(top, []string{"mediaType", "verificationMaterial", "dsseEnvelope"})
	by := "publicKey"
	if _, ok := mat["certificate"]; ok {
		by = "certificate"
	}
	f.keys(mat, []string{by}, "tlogEntries", "timestampVerificationData")
	f.keys(env, []string{"payload", "payloadType", "signatures"})
	key := f.object(mat, by)
	if by == "certificate" {
		f.keys(key, []string{"rawBytes"})
		p.certificate = f.bytes(key, "rawBytes")
		p.entries, _ = mat["tlogEntries"].([]any)
	} else {
		f.keys(key, []string{"hint"})
		p.hint = f.text(key, "hint")
	}
	p.payloadType = f.text(env, "payloadType")
	p.payload = f.bytes(env, "payload")
	if f.err != nil {
		return p, fmt.Errorf("read bundle: %w: %w", ErrFormat, f.err)
	}
	if mediaType != BundleMediaType {
		return p, fmt.Errorf("read bundle: %w: %q", ErrMediaType, clip(mediaType))
	}
	for _, k := range []string{"tlogEntries", "timestampVerificationData"} {
		if v, ok := mat[k]; ok && !empty(v) && (k != "tlogEntries" || p.certificate == nil) {
			p.ignored = append(p.ignored, k)
		}
	}
	return p, p.signature(env["signatures"])
}

func (p *parsed) signature(v any) error {
	list, ok := v.([]any)
	if !ok || len(list) != 1 {
		return fmt.Errorf("read bundle: %w", ErrSignatures)
	}
	m, ok := list[0].(map[string]any)
	if !ok {
		return fmt.Errorf("read bundle: %w: a signature is no object", ErrFormat)
	}
	f := &fields{}
	f.keys(m, []string{"sig"}, "keyid")
	if _, ok := m["keyid"]; ok {
		if id := f.text(m, "keyid"); id != "" && id != p.hint {
			f.fail("the signature names another key than the bundle")
		}
	}
	p.sig = f.bytes(m, "sig")
	if f.err != nil {
		return fmt.Errorf("read bundle: %w: %w", ErrFormat, f.err)
	}
	return nil
}

func empty(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case []any:
		return len(t) == 0
	case map[string]any:
		return len(t) == 0 || len(t) == 1 && slices.ContainsFunc([]string{"rfc3161Timestamps"}, func(k string) bool {
			inner, ok := t[k]
			return ok && empty(inner)
		})
	}
	return false
}

// fields reads a tree and keeps the first complaint.
type fields struct{ err error }

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *fields) keys(m map[string]any, required []string, optional ...string) {
	if err := onlyKeys(m, required, optional...); err != nil {
		f.fail("%w", err)
	}
}

func (f *fields) object(m map[string]any, key string) map[string]any {
	v, ok := m[key].(map[string]any)
	if !ok {
		f.fail("%s is no object", key)
	}
	return v
}

func (f *fields) text(m map[string]any, key string) string {
	v, ok := m[key].(string)
	if !ok {
		f.fail("%s is no text", key)
	}
	return v
}

// bytes reads base64 that is written in its one canonical way.
func (f *fields) bytes(m map[string]any, key string) []byte {
	text := f.text(m, key)
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(b) != text {
		f.fail("%s is not canonical base64", key)
	}
	return b
}

// encodeBundle writes a bundle around a DSSE envelope's parts.
func encodeBundle(hint string, payload, sig []byte) ([]byte, error) {
	return json.Marshal(bundle{
		MediaType: BundleMediaType,
		Material:  material{PublicKey: publicKey{Hint: hint}},
		Envelope: envelope{
			Payload: base64.StdEncoding.EncodeToString(payload), PayloadType: PayloadType,
			Signatures: []signatureT{{Sig: base64.StdEncoding.EncodeToString(sig)}},
		},
	})
}
