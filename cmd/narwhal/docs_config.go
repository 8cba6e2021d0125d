package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/docgen"
	"github.com/narwhal-fleet/narwhal/runtime/router"
	"github.com/narwhal-fleet/narwhal/schema"
)

// jsonSchema is what the page needs of an exported definition.
type jsonSchema struct {
	Ref        string                 `json:"$ref"`
	Defs       map[string]*jsonSchema `json:"$defs"`
	Type       string                 `json:"type"`
	Properties map[string]*jsonSchema `json:"properties"`
	Items      *jsonSchema            `json:"items"`
	MinItems   int                    `json:"minItems"`
	AnyOf      []*jsonSchema          `json:"anyOf"`
	Enum       []any                  `json:"enum"`
	Const      *json.RawMessage       `json:"const"`
	Default    json.RawMessage        `json:"default"`
	Required   []string               `json:"required"`
	Pattern    string                 `json:"pattern"`
	Minimum    *float64               `json:"minimum"`
	Maximum    *float64               `json:"maximum"`
	Above      *float64               `json:"exclusiveMinimum"`
	Below      *float64               `json:"exclusiveMaximum"`
}

func readJSONSchema() (*jsonSchema, error) {
	b, err := schema.ExportJSONSchema()
	if err != nil {
		return nil, err
	}
	var s jsonSchema
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read the exported schema: %w", err)
	}
	return &s, nil
}

// deref follows a reference, and takes the other choice where one is null.
func (s *jsonSchema) deref(x *jsonSchema) *jsonSchema {
	for range 8 {
		if name, ok := strings.CutPrefix(x.Ref, "#/$defs/"); ok {
			x = s.Defs[name]
			continue
		}
		if len(x.AnyOf) == 2 && x.AnyOf[0].null() {
			x = x.AnyOf[1]
			continue
		}
		break
	}
	return x
}

// at finds the member that a key of the router's table names, and whether it is required.
func (s *jsonSchema) at(key string) (found *jsonSchema, required bool) {
	x := s.deref(&jsonSchema{Ref: s.Ref})
	for name := range strings.SplitSeq(strings.TrimSuffix(key, ".*"), ".") {
		name, list := strings.CutSuffix(name, "[]")
		p, ok := x.Properties[name]
		if !ok {
			return nil, false
		}
		required = false
		for _, r := range x.Required {
			required = required || r == name
		}
		found = p
		if x = s.deref(p); list {
			x = s.deref(x.Items)
		}
	}
	return found, required
}

// row describes a setting: type and unit, default, bounds.
func (s *jsonSchema) row(k router.Setting) (kind, def, bounds string, err error) {
	p, required := s.at(k.Key)
	if p == nil {
		return "", "", "", fmt.Errorf("key %s is not in the schema", k.Key)
	}
	x := s.deref(p)
	kind, bounds = x.kind(), x.bounds()
	if k.Unit != "" {
		kind += ", " + k.Unit
	}
	switch {
	case required:
		def = "required"
	case len(p.Default) > 0:
		def = code(string(p.Default))
	}
	return kind, def, bounds, nil
}

// null reports whether s allows null alone, which is read as no const at all.
func (s *jsonSchema) null() bool {
	return s.Const == nil && s.Ref == "" && s.Type == "" && len(s.Enum) == 0
}

func (s *jsonSchema) kind() string {
	if n := len(s.AnyOf); n > 0 {
		return s.AnyOf[n-1].kind()
	}
	switch {
	case s.Type == "array":
		return "list"
	case s.Type != "":
		return s.Type
	case s.Pattern != "" || len(s.Enum) > 0:
		return "string"
	case s.Const != nil && string(*s.Const)[0] == '"':
		return "string"
	}
	return "integer"
}

func (s *jsonSchema) bounds() string {
	var out []string
	for _, e := range s.Enum {
		out = append(out, code(fmt.Sprint(e)))
	}
	if s.Const != nil {
		out = append(out, code(strings.Trim(string(*s.Const), `"`)))
	}
	for _, b := range []struct {
		word string
		v    *float64
	}{{"≥", s.Minimum}, {">", s.Above}, {"≤", s.Maximum}, {"<", s.Below}} {
		if b.v != nil {
			out = append(out, fmt.Sprintf("%s %g", b.word, *b.v))
		}
	}
	for _, a := range s.AnyOf {
		if b := a.bounds(); b != "" && b != code("0.0") { // a zero of either kind of number
			out = append(out, b)
		}
	}
	if s.Type == "array" && s.MinItems > 0 {
		out = append(out, fmt.Sprintf("at least %d", s.MinItems))
	}
	return strings.Join(out, ", ")
}

const configIntro = "What each key of a plain fleet document (`narwhal.fleet` version 2) does in the router. [Fleet file](fleet-file.md) is about the whole\n" +
	"document, `deploy` included; [rules](rules.md) lists what must hold between keys. Types, defaults and bounds come from the schema.\n" +
	"Keys that begin with `_` are comments at every level. `null` counts as absent for a whole section.\n\n" +
	"*Gates* acts on a key in the gates only. *Note*: it tells people something. *Nobody*: the key is accepted, so that documents of the reference load, and has no effect;\n" +
	"a router warns at its start of those that are set and matter."

func configPage() docgen.Page {
	s, err := readJSONSchema()
	if err != nil {
		panic(err) // the definitions are embedded
	}
	table := docgen.Section{Head: []string{"Key", "Type", "Default", "Bounds", "What it does"}}
	for _, k := range router.Settings() {
		kind, def, bounds, err := s.row(k)
		if err != nil {
			panic(err) // TestSettingsAreTheSchemas names it
		}
		says := k.Says
		if k.Use != router.UseActed {
			says = strings.TrimSpace("*" + strings.ToUpper(string(k.Use[:1])) + string(k.Use[1:]) + ".* " + says)
		}
		if k.Flag != "" {
			says += " " + code(k.Flag) + "."
		}
		table.Rows = append(table.Rows, []string{code(k.Key), kind, def, bounds, says})
	}
	flags := docgen.Section{Title: "Flags", Before: "A flag behind a key above wins over it. What has no key is a flag of [narwhal serve](cli/serve.md) only: address, journal, lease and\n" +
		"standby, tenants and the control token, limits of the HTTP surface, keep-alive and continuation. Gate G sets those from\n" +
		"`deploy.router` of the fleet file."}
	return docgen.Sections("configuration.md", "Configuration", configIntro, table, flags)
}
