package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
)

// forms lists how a secret may be written: as it is, escaped for JSON, for a URL, encoded
// as base64, and each long line of it alone.
func forms(v string) []string {
	out := []string{v, inJSON(v), url.QueryEscape(v), url.PathEscape(v)}
	if len(v) >= 8 {
		out = append(out, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(v)), "="),
			strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(v)), "="))
	}
	if strings.Contains(v, "\n") {
		for _, line := range strings.Split(v, "\n") {
			if line = strings.TrimSpace(line); len(line) >= 16 && !strings.HasPrefix(line, "-----") {
				out = append(out, line)
			}
		}
	}
	return out
}

// inJSON is v as it stands between the quotes of a JSON string.
func inJSON(v string) string {
	q := quote(v)
	return q[1 : len(q)-1]
}

// quote writes a JSON string without escaping HTML.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// known finds the literals in s, overlapping ones too.
func (r *Redactor) known(s string) []span {
	var out []span
	for _, l := range r.literals {
		for at := 0; ; {
			i := strings.Index(s[at:], l.form)
			if i < 0 {
				break
			}
			out = append(out, span{at + i, at + i + len(l.form), l.value})
			at += i + 1
		}
	}
	return out
}
