package gates

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

const (
	masked    = "********"
	minSecret = 4 // bytes; shorter values would mask ordinary text
)

// knownSecrets are resolved once a run: what a host prints of them, as an engine's log
// may, must reach neither the record nor the terminal.
func (r *Runner) knownSecrets() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.secrets != nil || r.Secrets == nil || r.Fleet.Deploy == nil {
		return r.secrets
	}
	r.secrets = [][]byte{}
	for _, ref := range r.Fleet.SecretRefs() {
		v, err := r.Secrets(ref)
		if err != nil || len(v.Reveal()) < minSecret {
			continue // a step that needs it fails by itself
		}
		r.secrets = append(r.secrets, []byte(v.Reveal()))
		if b, err := json.Marshal(v.Reveal()); err == nil {
			r.secrets = append(r.secrets, b[1:len(b)-1]) // as it stands inside JSON
		}
	}
	return r.secrets
}

// maskBytes replaces every known secret. Archives pass as they are: their collector has
// cut them already.
func (r *Runner) maskBytes(b []byte, media string) []byte {
	if media == "application/gzip" {
		return b
	}
	for _, s := range r.knownSecrets() {
		if bytes.Contains(b, s) {
			b = bytes.ReplaceAll(b, s, []byte(masked))
		}
	}
	return b
}

// maskError keeps the error and hides secrets in its text.
func (r *Runner) maskError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, s := range r.knownSecrets() {
		text = strings.ReplaceAll(text, string(s), masked)
	}
	if text == err.Error() {
		return err
	}
	return &maskedError{text, err}
}

// maskedError is an error whose text was made safe. It hides its cause's text, not its type.
type maskedError struct {
	text  string
	cause error
}

func (e *maskedError) Error() string        { return e.text }
func (e *maskedError) Is(target error) bool { return errors.Is(e.cause, target) }
func (e *maskedError) As(target any) bool   { return errors.As(e.cause, target) }
