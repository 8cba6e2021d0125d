package bundle

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// ManifestFile is the first file of every archive.
const ManifestFile = "manifest.json"

// Manifest names everything in a bundle and everything that is missing from it.
type Manifest struct {
	Schema        string    `json:"schema"`
	SchemaVersion int       `json:"schema_version"`
	Fleet         string    `json:"fleet"`
	Run           string    `json:"run"`     // "" without a record
	Created       string    `json:"created"` // RFC 3339, UTC
	Tool          string    `json:"tool"`
	Hosts         []string  `json:"hosts"` // that answered
	Redactions    int       `json:"redactions"`
	Entries       []Entry   `json:"entries"` // by path
	Missing       []Missing `json:"missing"` // by path
}

// Entry is one file of a bundle.
type Entry struct {
	Path       string `json:"path"`
	Bytes      int64  `json:"bytes"`
	SHA256     string `json:"sha256"`
	Source     string `json:"source"`    // path on the host or in the record, URL, or command
	Collector  string `json:"collector"` // system | file | http | record | report
	Redactions int    `json:"redactions"`
	// Truncated says that the file holds the end of its source, or its beginning for answers.
	Truncated bool `json:"truncated,omitempty"`
	// Note says what was wrong with an answer that was kept.
	Note string `json:"note,omitempty"`
}

func (m *Manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write manifest: %w", err)
	}
	return append(b, '\n'), nil
}

// entry returns the entry of a path.
func (m *Manifest) entry(p string) (Entry, bool) {
	for _, e := range m.Entries {
		if e.Path == p {
			return e, true
		}
	}
	return Entry{}, false
}

// safePath reports whether p is a plain relative path that leaves no folder.
func safePath(p string) bool {
	if p == "" || len(p) > 512 || path.Clean(p) != p || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") {
		return false
	}
	for _, c := range p {
		if c < ' ' || c > '~' || c == '\\' || c == ':' {
			return false
		}
	}
	return true
}

// component makes one path component of a foreign name. Different names stay different.
func component(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || i > 0 && (c == '-' || c == '.')
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() == 0 {
		return "%"
	}
	if s := b.String(); b.Len() > 100 {
		return s[:80] + "%" + digestOf([]byte(name))[:16]
	}
	return b.String()
}
