package attest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/sigstore/sigstore/pkg/signature/dsse"
)

// Sign returns a Sigstore bundle over the statement, after verifying it against
// the signer's own public key.
func Sign(s *Signer, st Statement) ([]byte, error) {
	if st.Type == "" {
		st.Type = StatementV1
	}
	var payload bytes.Buffer
	enc := json.NewEncoder(&payload)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(st); err != nil {
		return nil, fmt.Errorf("sign statement: %w", err)
	}
	text := bytes.TrimSuffix(payload.Bytes(), []byte("\n"))
	if _, err := parseStatement(text); err != nil {
		return nil, fmt.Errorf("sign statement: %w", err)
	}
	sealed, err := dsse.WrapSigner(s.sv, PayloadType).SignMessage(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("sign statement: %w", err)
	}
	var env struct {
		Signatures []struct{ Sig string } `json:"signatures"`
	}
	if err := json.Unmarshal(sealed, &env); err != nil || len(env.Signatures) != 1 {
		return nil, fmt.Errorf("sign statement: the envelope is not readable: %w", err)
	}
	sig, err := base64.StdEncoding.DecodeString(env.Signatures[0].Sig)
	if err != nil {
		return nil, fmt.Errorf("sign statement: %w", err)
	}
	out, err := encodeBundle(s.pub.hint, text, sig)
	if err != nil {
		return nil, fmt.Errorf("sign statement: %w", err)
	}
	v, err := NewVerifier(Policy{Keys: []*Public{s.pub}, PredicateTypes: []string{st.PredicateType}, Subjects: st.Subject})
	if err != nil {
		return nil, fmt.Errorf("verify what was just signed: %w", err)
	}
	if _, err := v.Verify(out); err != nil {
		return nil, fmt.Errorf("verify what was just signed: %w", err)
	}
	return out, nil
}
