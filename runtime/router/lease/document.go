package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// Schema and SchemaVersion name the stored document.
	Schema        = "narwhal.router-lease"
	SchemaVersion = 1

	maxDocument = 4096 // bytes
	maxHolder   = 512  // bytes
	maxEpoch    = 1 << 53
	maxSeconds  = 1e11
)

// Document is a stored lease. The zero Document means that none is stored.
type Document struct {
	Epoch     int64
	Holder    string
	ExpiresAt float64 // Unix seconds
	UpdatedAt float64 // Unix seconds
}

// MalformedError is a stored document that cannot be trusted. It is never read as absent.
type MalformedError struct {
	Reason string
	// Foreign: it is whole, but no lease of a version that this router reads. Whoever writes
	// it may serve.
	Foreign bool
}

func (e *MalformedError) Error() string { return "lease document: " + e.Reason }

func malformed(format string, args ...any) error {
	return &MalformedError{Reason: fmt.Sprintf(format, args...)}
}

// Make is the document of a term that starts or is extended at now.
func Make(holder string, epoch int64, now time.Time, ttl time.Duration) Document {
	return Document{Epoch: epoch, Holder: holder, ExpiresAt: unix(now.Add(ttl)), UpdatedAt: unix(now)}
}

// Stored reports whether there is a lease at all.
func (d Document) Stored() bool { return d.Epoch > 0 }

// Expired reports whether the lease is free at now.
func (d Document) Expired(now time.Time) bool { return unix(now) >= d.ExpiresAt }

// Is reports whether d is the document of a term.
func (d Document) Is(t Term) bool { return d.Stored() && d.Epoch == t.Epoch && d.Holder == t.Holder }

// Held is the error for a claimant who finds d unexpired.
func (d Document) Held() *HeldError {
	return &HeldError{Holder: d.Holder, Epoch: d.Epoch, ExpiresAt: time.UnixMicro(int64(math.Round(d.ExpiresAt * 1e6)))}
}

func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// Encode writes the reference's bytes: keys in alphabetical order, one line.
func (d Document) Encode() []byte {
	holder, _ := json.Marshal(d.Holder) // a string always marshals
	return fmt.Appendf(nil, `{"epoch": %d, "expires_at": %s, "holder": %s, "schema": %q, "schema_version": %d, "updated_at": %s}`+"\n",
		d.Epoch, decimal(d.ExpiresAt), holder, Schema, SchemaVersion, decimal(d.UpdatedAt))
}

// decimal is the shortest text of a float with at least one decimal place.
func decimal(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.ContainsRune(s, '.') {
		s += ".0"
	}
	return s
}

// Decode reads a document of at most 4096 bytes: exactly the six keys, each once, with
// their types. Every refusal is a *MalformedError.
func Decode(data []byte) (Document, error) {
	d, err := decode(data)
	var damaged *MalformedError
	if errors.As(err, &damaged) {
		damaged.Foreign = foreign(data)
	}
	return d, err
}

// foreign reports whether a text is whole and names another schema or version.
func foreign(data []byte) bool {
	var head struct {
		Schema  string      `json:"schema"`
		Version json.Number `json:"schema_version"`
	}
	return len(data) <= maxDocument && json.Unmarshal(data, &head) == nil && head.Schema != "" &&
		(head.Schema != Schema || head.Version.String() != strconv.Itoa(SchemaVersion))
}

func decode(data []byte) (Document, error) {
	if len(data) > maxDocument {
		return Document{}, malformed("more than %d bytes", maxDocument)
	}
	members, err := flat(data)
	if err != nil {
		return Document{}, err
	}
	var d Document
	var schema string
	var version int64
	read := map[string]func(any) bool{
		"schema": func(v any) bool { return text(v, &schema) }, "schema_version": func(v any) bool { return integer(v, &version) },
		"epoch": func(v any) bool { return integer(v, &d.Epoch) }, "holder": func(v any) bool { return text(v, &d.Holder) },
		"expires_at": func(v any) bool { return number(v, &d.ExpiresAt) }, "updated_at": func(v any) bool { return number(v, &d.UpdatedAt) },
	}
	var missing, wrong []string
	for _, key := range slices.Sorted(maps.Keys(read)) {
		if v, ok := members[key]; !ok {
			missing = append(missing, key)
		} else if !read[key](v) {
			wrong = append(wrong, key)
		}
		delete(members, key)
	}
	switch {
	case len(missing) > 0:
		return Document{}, malformed("missing keys: %s", strings.Join(missing, ", "))
	case len(wrong) > 0:
		return Document{}, malformed("keys with a wrong value: %s", strings.Join(wrong, ", "))
	}
	switch {
	case len(members) > 0:
		return Document{}, malformed("%d unknown keys", len(members))
	case schema != Schema || version != SchemaVersion:
		return Document{}, malformed("is %.64q version %d, want %s version %d", schema, version, Schema, SchemaVersion)
	case d.Epoch < 1 || d.Epoch >= maxEpoch: // the one after it must be readable too
		return Document{}, malformed("epoch %d is out of range", d.Epoch)
	}
	return d, checkHolder(d.Holder)
}

// ErrNoEpoch: no epoch is left that every reader of JSON has exactly.
var ErrNoEpoch = errors.New("claim lease: no epoch is left after the stored one: stop all routers, remove the lease and the files beside it, and start one")

// Exhausted reports whether an epoch is beyond those that are read.
func Exhausted(epoch int64) bool { return epoch >= maxEpoch }

// CheckID refuses a router's name that no holder's may begin with.
func CheckID(id string) error {
	if len(NewHolder(id)) > maxHolder || strings.ContainsFunc(id, unicode.IsControl) || !utf8.ValidString(id) {
		return fmt.Errorf("the router's name is longer than %d bytes, no UTF-8 or holds control characters", maxHolder-len(NewHolder("")))
	}
	return nil
}

func checkHolder(h string) error {
	if h == "" || len(h) > maxHolder || strings.ContainsFunc(h, unicode.IsControl) {
		return malformed("holder is empty, longer than %d bytes or holds control characters", maxHolder)
	}
	return nil
}

// flat reads one JSON object whose members are strings and numbers.
func flat(data []byte) (map[string]any, error) {
	if !utf8.Valid(data) || !json.Valid(data) {
		return nil, malformed("no JSON text")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, malformed("no JSON object")
	}
	members := map[string]any{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, malformed("no JSON object")
		}
		name, _ := key.(string)
		if _, twice := members[name]; twice {
			return nil, malformed("a key stands twice")
		}
		if members[name], err = dec.Token(); err != nil {
			return nil, malformed("no JSON object")
		}
		if _, nested := members[name].(json.Delim); nested {
			return nil, malformed("holds a list or an object")
		}
	}
	if _, err := dec.Token(); err != nil && !errors.Is(err, io.EOF) {
		return nil, malformed("no JSON object")
	}
	return members, nil
}

func text(v any, to *string) bool {
	s, ok := v.(string)
	*to = s
	return ok
}

func integer(v any, to *int64) bool {
	n, ok := v.(json.Number)
	if !ok {
		return false
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	*to = i
	return err == nil
}

func number(v any, to *float64) bool {
	n, ok := v.(json.Number)
	if !ok {
		return false
	}
	f, err := n.Float64()
	*to = f
	return err == nil && f >= 0 && f < maxSeconds
}
