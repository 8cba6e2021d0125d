package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	attestlook "github.com/narwhal-fleet/narwhal/attest/look"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/install"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

const schemaDir = "../../docs/schemas"

// statementSchema is a schema of docs/schemas with its definitions.
type statementSchema struct{ root map[string]any }

func openSchema(t *testing.T, name string) statementSchema {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(schemaDir, name+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s statementSchema
	if err := json.Unmarshal(b, &s.root); err != nil {
		t.Fatal(err)
	}
	return s
}

// keywords are what the published schemas may use: all that check understands.
var keywords = []string{
	"$schema", "$id", "$defs", "title", "description", "format", "type", "properties", "required", "additionalProperties", "minProperties",
	"items", "minItems", "maxItems", "uniqueItems", "const", "enum", "pattern", "minLength", "minimum", "exclusiveMinimum", "oneOf", "$ref",
}

// check returns why a value does not fit a schema, "" when it does.
func (s statementSchema) check(schema map[string]any, v any, at string) string {
	for k := range schema {
		if !slices.Contains(keywords, k) {
			return at + ": unknown keyword " + k
		}
	}
	if ref, ok := schema["$ref"].(string); ok {
		def, ok := s.root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		if !ok {
			return at + ": no definition " + ref
		}
		return s.check(def, v, at)
	}
	if want, ok := schema["const"]; ok && !reflect.DeepEqual(want, v) {
		return fmt.Sprintf("%s: %v is not %v", at, v, want)
	}
	if list, ok := schema["enum"].([]any); ok && !slices.ContainsFunc(list, func(e any) bool { return reflect.DeepEqual(e, v) }) {
		return fmt.Sprintf("%s: %v is none of %v", at, v, list)
	}
	if why := typed(schema["type"], v); why != "" {
		return at + ": " + why
	}
	if list, ok := schema["oneOf"].([]any); ok {
		fits, whys := 0, []string{}
		for _, e := range list {
			if why := s.check(e.(map[string]any), v, at); why == "" {
				fits++
			} else {
				whys = append(whys, why)
			}
		}
		if fits != 1 {
			return fmt.Sprintf("%s: fits %d of the forms: %s", at, fits, strings.Join(whys, "; "))
		}
	}
	switch v := v.(type) {
	case string:
		if p, ok := schema["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(v) {
			return fmt.Sprintf("%s: %q does not match %s", at, v, p)
		}
		if n, ok := schema["minLength"].(float64); ok && float64(len(v)) < n {
			return at + ": is too short"
		}
		if _, err := time.Parse(time.RFC3339, v); schema["format"] == "date-time" && err != nil {
			return at + ": is no time"
		}
	case float64:
		if n, ok := schema["minimum"].(float64); ok && v < n {
			return at + ": is too small"
		}
		if n, ok := schema["exclusiveMinimum"].(float64); ok && v <= n {
			return at + ": is too small"
		}
	case []any:
		return s.list(schema, v, at)
	case map[string]any:
		return s.object(schema, v, at)
	}
	return ""
}

func typed(want, v any) string {
	if want == nil {
		return ""
	}
	list, ok := want.([]any)
	if !ok {
		list = []any{want}
	}
	got := map[reflect.Kind]string{reflect.String: "string", reflect.Float64: "number", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Map: "object", reflect.Invalid: "null"}[reflect.ValueOf(v).Kind()]
	if f, ok := v.(float64); ok && f == float64(int64(f)) && slices.Contains(list, any("integer")) {
		return ""
	}
	if !slices.Contains(list, any(got)) {
		return fmt.Sprintf("is %s, want %v", got, list)
	}
	return ""
}

func (s statementSchema) list(schema map[string]any, v []any, at string) string {
	if n, ok := schema["minItems"].(float64); ok && float64(len(v)) < n {
		return at + ": has too few"
	}
	if n, ok := schema["maxItems"].(float64); ok && float64(len(v)) > n {
		return at + ": has too many"
	}
	for i, e := range v {
		if schema["uniqueItems"] == true && slices.ContainsFunc(v[:i], func(o any) bool { return reflect.DeepEqual(o, e) }) {
			return at + ": has one twice"
		}
		if items, ok := schema["items"].(map[string]any); ok {
			if why := s.check(items, e, fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
	}
	return ""
}

func (s statementSchema) object(schema map[string]any, v map[string]any, at string) string {
	if n, ok := schema["minProperties"].(float64); ok && float64(len(v)) < n {
		return at + ": has too few"
	}
	required, _ := schema["required"].([]any)
	for _, k := range required {
		if _, ok := v[k.(string)]; !ok {
			return fmt.Sprintf("%s: no %s", at, k)
		}
	}
	known, _ := schema["properties"].(map[string]any)
	for k, e := range v {
		of, ok := known[k].(map[string]any)
		if !ok {
			if schema["additionalProperties"] == false {
				return fmt.Sprintf("%s: unknown %s", at, k)
			}
			if of, ok = schema["additionalProperties"].(map[string]any); !ok {
				continue
			}
		}
		if why := s.check(of, e, at+"."+k); why != "" {
			return why
		}
	}
	return ""
}

// fit checks a text against a schema, and that the schema refuses it with any required
// member gone and with one more.
func (s statementSchema) fit(t *testing.T, name string, raw []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if why := s.check(s.root, v, name); why != "" {
		t.Errorf("%s\n%s", why, raw)
		return
	}
	s.refuses(t, v, v, name)
}

// refuses takes members away and adds one, everywhere below part.
func (s statementSchema) refuses(t *testing.T, whole, part any, at string) {
	t.Helper()
	switch part := part.(type) {
	case []any:
		for i, e := range part {
			s.refuses(t, whole, e, fmt.Sprintf("%s[%d]", at, i))
		}
	case map[string]any:
		for k, e := range part {
			s.refuses(t, whole, e, at+"."+k)
		}
		if strings.HasSuffix(at, ".bonds") || strings.HasSuffix(at, ".sources") || strings.HasSuffix(at, ".launch") {
			return // any names
		}
		part["another"] = 1.0
		if s.check(s.root, whole, "") == "" {
			t.Errorf("%s may have any member", at)
		}
		delete(part, "another")
	}
}

// statementsFit checks everything signed in a record against the published schemas.
func statementsFit(t *testing.T, dir string, rolledBack bool) {
	t.Helper()
	snap, err := record.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]statementSchema{gates.PredicateGate: openSchema(t, "gate.v1"), gates.PredicateRollback: openSchema(t, "rollback.v1"), attest.PredicateEngine: openSchema(t, "engine.v1"), install.PredicateRelease: openSchema(t, "release.v1")}
	document := openSchema(t, "attestation.v1")
	count := map[string]int{}
	check := func(name string, bundle []byte) {
		t.Helper()
		var b struct {
			Envelope struct {
				Payload []byte `json:"payload"`
			} `json:"dsseEnvelope"`
		}
		var st attest.Statement
		if json.Unmarshal(bundle, &b) != nil || json.Unmarshal(b.Envelope.Payload, &st) != nil {
			t.Fatalf("%s is no bundle", name)
		}
		s, ok := schemas[st.PredicateType]
		if !ok {
			t.Fatalf("%s has type %s, which has no schema", name, st.PredicateType)
		}
		s.fit(t, name, b.Envelope.Payload)
		count[st.PredicateType]++
	}
	for _, ev := range snap.Events {
		body, err := ev.Decode()
		if err != nil {
			t.Fatal(err)
		}
		switch body := body.(type) {
		case *record.Seal:
			raw, err := snap.Load(body.Ref)
			if err != nil {
				t.Fatal(err)
			}
			check("seal of "+ev.Gate, raw)
		case *record.Evidence:
			if body.Key != "B/manifest" && (body.Key.Gate() != "E" || body.Key.Kind() != "statement") {
				continue
			}
			raw, err := snap.Load(body.Ref)
			var said struct {
				Bundle    json.RawMessage `json:"bundle"`
				Statement json.RawMessage `json:"statement"` // of a release
			}
			if err != nil || json.Unmarshal(raw, &said) != nil {
				t.Fatalf("%s: %v", body.Key, err)
			}
			if body.Key == "B/manifest" {
				said.Bundle = said.Statement
			}
			check(string(body.Key), said.Bundle)
		case *record.Plan:
			raw, err := snap.Load(body.Object)
			if err != nil || ev.Gate != "E" {
				continue
			}
			var p gates.Plan
			if err := json.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
			for _, step := range p.Steps {
				if step.File != nil {
					document.fit(t, step.ID, []byte(step.File.Content))
					count["document"]++
				}
			}
		}
	}
	for kind, n := range map[string]int{gates.PredicateGate: 7, attest.PredicateEngine: 1, install.PredicateRelease: 1, "document": 1, gates.PredicateRollback: map[bool]int{true: 1}[rolledBack]} {
		if count[kind] < n {
			t.Errorf("%d statements of %s, want at least %d", count[kind], kind, n)
		}
	}
}

// TestSchemasNameWhatTheCodeWrites compares schemas with the types behind them.
func TestSchemasNameWhatTheCodeWrites(t *testing.T) {
	predicate := func(name string) map[string]any {
		return openSchema(t, name).root["properties"].(map[string]any)["predicate"].(map[string]any)
	}
	def := func(name, of string) map[string]any {
		return openSchema(t, name).root["$defs"].(map[string]any)[of].(map[string]any)
	}
	for _, c := range []struct {
		what   string
		schema map[string]any
		value  any
	}{
		{"gate", predicate("gate.v1"), gates.SealedGate{}},
		{"evidence", def("gate.v1", "evidence"), gates.SealedObject{}},
		{"rollback", predicate("rollback.v1"), gates.SealedRollback{}},
		{"release", predicate("release.v1"), install.Released{}},
		{"binary", def("release.v1", "binary"), gates.Binary{}},
		{"contract", def("engine.v1", "contract"), fleet.Contract{}},
		{"contract of a document", def("attestation.v1", "contract"), fleet.Contract{}},
	} {
		var names, always []string
		collect(reflect.TypeOf(c.value), &names, &always)
		known, _ := c.schema["properties"].(map[string]any)
		var required []string
		for _, r := range c.schema["required"].([]any) {
			required = append(required, r.(string))
		}
		slices.Sort(names)
		slices.Sort(always)
		slices.Sort(required)
		if got := sortedNames(known); !slices.Equal(got, names) {
			t.Errorf("%s: the schema has %v, the code %v", c.what, got, names)
		}
		if !slices.Equal(required, always) {
			t.Errorf("%s: the schema requires %v, the code always writes %v", c.what, required, always)
		}
	}
	observed := predicate("engine.v1")["properties"].(map[string]any)["observed"].(map[string]any)["properties"].(map[string]any)
	want := slices.Sorted(slices.Values(attestlook.Names()))
	if got := sortedNames(observed); !slices.Equal(got, want) {
		t.Errorf("observed: the schema has %v, the code %v", got, want)
	}
}

func sortedNames(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// collect lists the members of a struct in JSON, and those that are always written.
func collect(typ reflect.Type, names, always *[]string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			collect(f.Type, names, always)
			continue
		}
		if name == "-" {
			continue
		}
		*names = append(*names, name)
		if !strings.Contains(options, "omitempty") {
			*always = append(*always, name)
		}
	}
}

// TestSigningPolicyOfTheDocs reads the example of docs/signing.md with schema and code.
func TestSigningPolicyOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/signing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(page, []byte("```json\n"))
	example, _, ok := bytes.Cut(rest, []byte("```"))
	if !ok {
		t.Fatal("no example")
	}
	openSchema(t, "signing-policy.v1").fit(t, "policy", example)
	_, public, err := attest.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = attest.ParseSigners(example, func(name string) ([]byte, error) {
		if name == "trusted_root.json" {
			return nil, os.ErrNotExist
		}
		return public, nil
	})
	if err == nil || !strings.Contains(err.Error(), "trusted_root") { // all but the root was read
		t.Errorf("%v", err)
	}
}
