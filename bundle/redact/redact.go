// Package redact cuts secrets out of text and JSON before they are written anywhere.
//
// It promises that JSON stays JSON, that a file of JSON lines keeps its lines, that the
// final newline stays as it was, that bytes without a secret come back unchanged, that
// redacting twice changes nothing more, and that equal secrets of one Redactor become
// equal placeholders. It works on whole buffers, which its callers bound.
//
// It refuses to guess that an unnamed word of free text is a secret: what is cut is named
// by its key, has the form of a credential, or was given as a literal.
package redact

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// MinLiteral is the least length in bytes of a literal: shorter ones are found everywhere,
// and cutting them tells more than it hides.
const MinLiteral = 4

const (
	mark    = "[redacted:"
	markLen = len(mark) + 6 + len("]")
	maxPass = 8 // repetitions until nothing more is found
	maxNest = 4 // JSON documents inside strings of JSON documents
)

// Redactor cuts secrets. It may be used from many goroutines.
type Redactor struct {
	key      []byte
	literals []literal
}

// literal is one form under which a known secret may appear.
type literal struct {
	form  string
	value string // what is hashed, so that every form has one placeholder
}

// New makes a redactor. A nil key is a fresh random one: then nobody can later try guesses
// against the placeholders. Literals are secrets to cut wherever they appear, also where
// they are escaped for JSON or a URL or encoded as base64.
func New(key []byte, literals []fleet.Secret) *Redactor {
	if key == nil {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails, as crypto/rand documents
	}
	r := &Redactor{key: bytes.Clone(key)}
	seen := map[string]bool{}
	for _, s := range literals {
		v := strings.TrimSpace(s.Reveal())
		for _, f := range forms(v) {
			if len(f) >= MinLiteral && !seen[f] && !strings.Contains(mark, f) {
				seen[f] = true
				r.literals = append(r.literals, literal{form: f, value: v})
			}
		}
	}
	// The longest first, so that a secret which begins with another one is named as itself.
	slices.SortStableFunc(r.literals, func(a, b literal) int { return len(b.form) - len(a.form) })
	return r
}

// placeholder stands for a secret: 24 bits of a keyed hash tell equal ones apart from others.
func (r *Redactor) placeholder(value string) string {
	h := hmac.New(sha256.New, r.key)
	h.Write([]byte(value))
	return mark + hex.EncodeToString(h.Sum(nil)[:3]) + "]"
}

// Bytes returns b without secrets and how many were cut. With 0 it returns b itself.
// Request content (prompts and messages) is cut too.
func (r *Redactor) Bytes(b []byte) ([]byte, int) { return r.bytes(b, true) }

// Text is Bytes for one line of text, such as an error.
func (r *Redactor) Text(s string) (string, int) {
	out, n := r.Bytes([]byte(s))
	return string(out), n
}

// Detect counts the secrets in b. Request content counts as none.
func (r *Redactor) Detect(b []byte) int {
	_, n := r.bytes(b, false)
	return n
}

// Where names the first secret in b: its line from 1, and the text before it, without
// secrets. It returns 0 where Detect does.
func (r *Redactor) Where(b []byte) (line int, before string) {
	out, n := r.bytes(b, false)
	if n == 0 {
		return 0, ""
	}
	at := 0
	for at < len(b) && at < len(out) && b[at] == out[at] {
		at++
	}
	from := max(bytes.LastIndexByte(out[:at], '\n')+1, at-48)
	return bytes.Count(out[:at], []byte("\n")) + 1, strings.ToValidUTF8(string(out[from:at]), "")
}

func (r *Redactor) bytes(b []byte, content bool) ([]byte, int) {
	total := 0
	for range maxPass {
		out, n := r.pass(b, content)
		if n == 0 {
			break
		}
		b, total = out, total+n
	}
	return b, total
}

// pass redacts a whole JSON document, or else line by line: JSON lines as JSON, and the
// runs of other lines between them as text.
func (r *Redactor) pass(b []byte, content bool) ([]byte, int) {
	if json.Valid(b) {
		return r.document(b, content, 0)
	}
	var out bytes.Buffer
	total := 0
	text := func(chunk []byte) {
		s, n := r.text(string(chunk), content, false)
		out.WriteString(s)
		total += n
	}
	from := 0
	for at := 0; at < len(b); {
		end := len(b)
		if i := bytes.IndexByte(b[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if line := b[at:end]; isRecord(line) {
			text(b[from:at])
			doc, n := r.document(line, content, 0)
			out.Write(doc)
			total += n
			from = end
		}
		at = end
	}
	text(b[from:])
	if total == 0 {
		return b, 0
	}
	return out.Bytes(), total
}

// isRecord reports whether a line is a JSON object, list or string of its own.
func isRecord(line []byte) bool {
	t := bytes.TrimLeft(line, " \t")
	return len(t) > 0 && (t[0] == '{' || t[0] == '[' || t[0] == '"') && json.Valid(line)
}
