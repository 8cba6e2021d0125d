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

// TestUnusedSettingsAreMarked compares what a router warns of with the table.
func TestUnusedSettingsAreMarked(t *testing.T) {
	var f fleet.Fleet
	err := json.Unmarshal([]byte(`{"engines":[{"shared_device":{}}],"serving":{"max_attempts":3},
		"controller":{"thresholds":{"panic_ratio":2}},"engine":{"first_token_calibration_path":"x"}}`), &f)
	if err != nil {
		t.Fatal(err)
	}
	unused := router.Unused(f)
	if len(unused) < 4 {
		t.Errorf("unused: %v", unused)
	}
	for _, name := range unused {
		key, rest, _ := strings.Cut(name, " ")
		ok := slices.ContainsFunc(router.Settings(), func(k router.Setting) bool {
			return strings.TrimSuffix(k.Key, ".*") == key && (k.Use != router.UseActed || rest != "")
		})
		if !ok {
			t.Errorf("the router warns that %s is not acted on, and the table does not say so", name)
		}
	}
}
