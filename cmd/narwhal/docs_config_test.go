package main

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/router"
	"github.com/narwhal-fleet/narwhal/schema"
)

// leaves lists the keys below a definition as the router's table names them.
func (s *jsonSchema) leaves(prefix string, x *jsonSchema, covered func(string) bool) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(x.Properties)) {
		key, p := prefix+name, s.deref(x.Properties[name])
		switch {
		case covered(key + ".*"):
			out = append(out, key+".*")
		case p.Type == "object":
			out = append(out, s.leaves(key+".", p, covered)...)
		case p.Type == "array" && p.Items != nil && len(s.deref(p.Items).Properties) > 0:
			out = append(append(out, key), s.leaves(key+"[].", s.deref(p.Items), covered)...)
		default:
			out = append(out, key)
		}
	}
	return out
}

// TestSettingsAreTheSchemas checks that the table has each key of a plain document, and no other.
func TestSettingsAreTheSchemas(t *testing.T) {
	s, err := readJSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]router.Setting{}
	for _, k := range router.Settings() {
		if _, twice := table[k.Key]; twice {
			t.Errorf("key %s is repeated", k.Key)
		}
		table[k.Key] = k
		if _, _, _, err := s.row(k); err != nil {
			t.Error(err)
		}
		if k.Says == "" && k.Use == router.UseActed {
			t.Errorf("key %s says nothing", k.Key)
		}
	}
	top := *s.deref(&jsonSchema{Ref: s.Ref})
	top.Properties = maps.Clone(top.Properties)
	delete(top.Properties, "deploy") // of the gates: docs/fleet-file.md
	keys := s.leaves("", &top, func(k string) bool { _, ok := table[k]; return ok })
	for _, k := range keys {
		if _, ok := table[k]; !ok {
			t.Errorf("runtime/router/config_table.go lacks the key %s", k)
		}
	}
	for k := range table {
		if !slices.Contains(keys, k) {
			t.Errorf("key %s is not in the schema of a plain document", k)
		}
	}
}

// TestFlagsOfSettingsExist checks the flags beside keys.
func TestFlagsOfSettingsExist(t *testing.T) {
	c := serveVerb(&app{out: io.Discard, err: io.Discard})
	for _, k := range router.Settings() {
		if name := strings.TrimPrefix(k.Flag, "--"); name != "" && c.Flags().Lookup(name) == nil {
			t.Errorf("key %s: narwhal serve has no %s", k.Key, k.Flag)
		}
	}
}

// TestUnusedSettingsAreNamed takes every key of the schema that nobody acts on from its default:
// the router must name it, and nothing of a document that leaves all to the defaults.
func TestUnusedSettingsAreNamed(t *testing.T) {
	s, err := readJSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	if names := router.Unused(documentWith(t, "", nil)); len(names) != 0 {
		t.Errorf("of a document of defaults: %v", names)
	}
	for _, k := range router.Settings() {
		if k.Use != router.UseNone {
			continue
		}
		kind, def, _, err := s.row(k)
		if err != nil {
			t.Fatal(err)
		}
		var v any = "x"
		if kind = strings.Split(kind, ",")[0]; kind == "number" || kind == "integer" {
			v = 7
		}
		if names := router.Unused(documentWith(t, k.Key, v)); !slices.Equal(names, []string{k.Key}) {
			t.Errorf("key %s (%s, default %s) as %v: the router names %v", k.Key, kind, def, v, names)
		}
	}
	for key, v := range map[string]any{"controller.reactive.demand_rise_tolerance": 0, "engines": []any{map[string]any{"iid": "a", "url": "http://h:1", "shared_device": map[string]any{}}}} {
		if names := router.Unused(documentWith(t, key, v)); len(names) != 1 || !strings.HasPrefix(names[0], key) {
			t.Errorf("%s as %v: the router names %v", key, v, names)
		}
	}
}

// documentWith is an effective document of defaults in which one key has another value.
func documentWith(t *testing.T, key string, v any) fleet.Fleet {
	t.Helper()
	l, err := schema.Load(t.Context(), []schema.Source{{Name: "fleet.json", Data: []byte(`{"schema":"narwhal.fleet","schema_version":2,"model":"m","slo":{"ttft_s":1,"tpot_s":1},
		"engines":[{"iid":"a","url":"http://h:1","role":"prefill"},{"iid":"b","url":"http://h:2"}]}`)}}, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(l.Fleet)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	at := doc
	parts := strings.Split(key, ".")
	for _, p := range parts[:len(parts)-1] {
		at = at[p].(map[string]any)
	}
	if key != "" {
		at[parts[len(parts)-1]] = v
	}
	raw, err = json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var f fleet.Fleet
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	return f
}
