package attest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
)

// Subject names what a statement is about, by digests (algorithm → lower-case hex).
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// Statement is an in-toto statement.
type Statement struct {
	Type          string          `json:"_type"` // "" = StatementV1 when signing
	Subject       []Subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"` // an object
}

// SHA256Subject is a subject with one digest; digest may carry "sha256:".
func SHA256Subject(name, digest string) Subject {
	return Subject{Name: name, Digest: map[string]string{"sha256": strings.TrimPrefix(digest, "sha256:")}}
}

// parseStatement reads a statement, with exactly its keys, each once.
func parseStatement(raw []byte) (Statement, error) {
	if len(raw) > MaxStatement {
		return Statement{}, fmt.Errorf("read statement: %d bytes, limit %d: %w", len(raw), MaxStatement, ErrTooLarge)
	}
	tree, err := canonical.ParseObject(raw)
	if err != nil {
		return Statement{}, fmt.Errorf("read statement: %w: %w", ErrStatement, err)
	}
	if err := onlyKeys(tree, []string{"_type", "subject", "predicateType"}, "predicate"); err != nil {
		return Statement{}, fmt.Errorf("read statement: %w: %w", ErrStatement, err)
	}
	var st Statement
	if err := json.Unmarshal(raw, &st); err != nil {
		return Statement{}, fmt.Errorf("read statement: %w: %w", ErrStatement, err)
	}
	subjects, _ := tree["subject"].([]any) // check refuses none
	for _, s := range subjects {
		m, ok := s.(map[string]any)
		if !ok || onlyKeys(m, []string{"digest"}, "name") != nil {
			return Statement{}, fmt.Errorf("read statement: %w: a subject has other keys", ErrStatement)
		}
	}
	return st, st.check()
}

func (st Statement) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("read statement: %w: %s", ErrStatement, fmt.Sprintf(format, args...))
	}
	if st.Type != StatementV1 && st.Type != StatementV01 {
		return bad("type is %q", clip(st.Type))
	}
	if st.PredicateType == "" {
		return bad("no predicate type")
	}
	if len(st.Predicate) == 0 || st.Predicate[0] != '{' {
		return bad("the predicate is no object")
	}
	if len(st.Subject) == 0 || len(st.Subject) > MaxSubjects {
		return bad("%d subjects", len(st.Subject))
	}
	for _, s := range st.Subject {
		if err := s.check(); err != nil {
			return bad("%s", err)
		}
	}
	return nil
}

func (s Subject) check() error {
	if len(s.Digest) == 0 {
		return fmt.Errorf("subject %q has no digest", clip(s.Name))
	}
	for alg, d := range s.Digest {
		b, err := hex.DecodeString(d)
		if err != nil || strings.ToLower(d) != d || len(b) < 16 || (alg == "sha256" && len(b) != 32) {
			return fmt.Errorf("subject %q: digest %s is not lower-case hex of its length", clip(s.Name), clip(alg))
		}
	}
	return nil
}

// onlyKeys refuses a missing required key and any key that is neither required nor optional.
func onlyKeys(m map[string]any, required []string, optional ...string) error {
	known := map[string]bool{}
	for _, k := range required {
		if _, ok := m[k]; !ok {
			return fmt.Errorf("no %s", k)
		}
		known[k] = true
	}
	for _, k := range optional {
		known[k] = true
	}
	for k := range m {
		if !known[k] {
			return fmt.Errorf("unknown key %q", clip(k))
		}
	}
	return nil
}

// clip shortens foreign text for an error.
func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
