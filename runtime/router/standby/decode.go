package standby

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"
)

// MalformedError is a handoff document that cannot be trusted.
type MalformedError struct{ Reason string }

func (e *MalformedError) Error() string { return "handoff document: " + e.Reason }

func malformed(format string, args ...any) error {
	return &MalformedError{fmt.Sprintf(format, args...)}
}

// VersionError is a handoff of another version, whatever else it holds.
type VersionError struct {
	Got   string // as written, at most 32 bytes
	Newer bool   // than this program reads
}

func (e *VersionError) Error() string {
	if e.Newer {
		return fmt.Sprintf("handoff version %s is newer than %d, which this router reads", e.Got, Version)
	}
	return fmt.Sprintf("handoff version %s is unreadable, want %d", e.Got, Version)
}

// Decode reads and validates a document of at most MaxDocument bytes. Each object has
// exactly its members, each once; a member that this program does not know would be lost
// at the next handoff. Errors are *VersionError and *MalformedError.
func Decode(data []byte) (Document, error) {
	if len(data) > MaxDocument {
		return Document{}, malformed("more than %d bytes", MaxDocument)
	}
	if !utf8.Valid(data) || !json.Valid(data) {
		return Document{}, malformed("no JSON text")
	}
	top, err := object("document", data)
	if err != nil {
		return Document{}, err
	}
	if err := checkVersion(top); err != nil {
		return Document{}, err
	}
	if err := exact("document", top, reflect.TypeFor[Document]()); err != nil {
		return Document{}, err
	}
	if err := nested(top); err != nil {
		return Document{}, err
	}
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return Document{}, malformed("%v", err)
	}
	for i, e := range d.Lifecycle.Events {
		var line bytes.Buffer
		if err := json.Compact(&line, e); err != nil {
			return Document{}, malformed("lifecycle.events: %v", err)
		}
		d.Lifecycle.Events[i] = line.Bytes()
	}
	if err := d.Validate(); err != nil {
		return Document{}, err
	}
	return d, nil
}

func checkVersion(top map[string]json.RawMessage) error {
	var schema string
	if json.Unmarshal(top["schema"], &schema) != nil || schema != Schema {
		return malformed("schema is not %s", Schema)
	}
	raw, ok := top["schema_version"]
	if !ok {
		return &VersionError{Got: "(none)"}
	}
	var n int64
	if json.Unmarshal(raw, &n) != nil || n < 1 {
		return &VersionError{Got: fmt.Sprintf("%.32s", raw)}
	}
	if n != Version {
		return &VersionError{Got: fmt.Sprint(n), Newer: n > Version}
	}
	return nil
}

// nested checks the objects below the top.
func nested(top map[string]json.RawMessage) error {
	for name, typ := range map[string]reflect.Type{"counters": reflect.TypeFor[Counters](), "outcome_reasons": reflect.TypeFor[Reasons](),
		"lifecycle": reflect.TypeFor[Lifecycle]()} {
		if _, err := objectOf(name, top[name], typ); err != nil {
			return err
		}
	}
	if string(top["demand_risk"]) != "null" {
		if _, err := objectOf("demand_risk", top["demand_risk"], reflect.TypeFor[Risk]()); err != nil {
			return err
		}
	}
	life, err := object("lifecycle", top["lifecycle"])
	if err != nil {
		return err
	}
	var records []json.RawMessage
	if err := json.Unmarshal(life["records"], &records); err != nil {
		return malformed("lifecycle.records: %v", err)
	}
	for _, r := range records {
		if _, err := objectOf("lifecycle.records", r, reflect.TypeFor[Record]()); err != nil {
			return err
		}
	}
	return nil
}

func objectOf(where string, raw json.RawMessage, typ reflect.Type) (map[string]json.RawMessage, error) {
	m, err := object(where, raw)
	if err != nil {
		return nil, err
	}
	return m, exact(where, m, typ)
}

// object splits valid JSON text into the members of an object.
func object(where string, raw []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, malformed("%s is no object", where)
	}
	m := map[string]json.RawMessage{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, malformed("%s is no object", where)
		}
		if _, twice := m[name]; twice {
			return nil, malformed("%s: member %.64q stands twice", where, name)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, malformed("%s: member %.64q: %v", where, name, err)
		}
		m[name] = v
	}
	return m, nil
}

// exact compares the members of an object with the JSON names of a struct; only what is a
// pointer there may be null.
func exact(where string, m map[string]json.RawMessage, typ reflect.Type) error {
	want := make([]string, typ.NumField())
	for i := range want {
		want[i] = typ.Field(i).Tag.Get("json")
		raw, ok := m[want[i]]
		if !ok {
			return malformed("%s: member %s is missing", where, want[i])
		}
		if string(raw) == "null" && typ.Field(i).Type.Kind() != reflect.Pointer {
			return malformed("%s: member %s is null", where, want[i])
		}
	}
	for name := range m {
		if !slices.Contains(want, name) {
			return malformed("%s: unknown member %.64q", where, name)
		}
	}
	return nil
}
