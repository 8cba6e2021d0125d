package router

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// idle is the value with which a key that nobody acts on asks for nothing, where that is not
// zero: the default of the schema.
var idle = map[string]any{
	"controller.reactive.evidence_max_span_s":   120.0,
	"controller.reactive.evidence_min_arrivals": 10.0,
	"controller.reactive.demand_rise_tolerance": 0.25,
}

// unweighed are keys that only the gates act on although a router might be expected to.
var unweighed = []string{"engines[].shared_device"}

// Unused names settings of a fleet that this router reads but does not act on, so that nobody
// relies on them unknowingly: keys of which Settings says so, and keys that it lacks.
func Unused(f fleet.Fleet) (names []string) {
	raw, err := json.Marshal(f)
	if err != nil {
		return []string{"the whole document: " + err.Error()}
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return []string{"the whole document: " + err.Error()}
	}
	delete(doc, "deploy") // of the gates
	table := map[string]Use{}
	for _, k := range Settings() {
		table[k.Key] = k.Use
	}
	values("", doc, func(key string, v any) {
		use, known := useOf(table, key)
		switch {
		case slices.ContainsFunc(unweighed, func(u string) bool { return strings.HasPrefix(key, u+".") }):
			key = unweighed[0]
		case known && use != UseNone, !asks(key, v):
			return
		}
		if !slices.Contains(names, key) {
			names = append(names, key)
		}
	})
	slices.Sort(names)
	return names
}

// asks reports whether a value wants something.
func asks(key string, v any) bool {
	if d, ok := idle[key]; ok {
		return v != d
	}
	return !slices.Contains([]any{nil, 0.0, "", false}, v)
}

// useOf finds the use of a key, by itself or by the row of everything above it.
func useOf(table map[string]Use, key string) (use Use, ok bool) {
	if use, ok = table[key]; ok {
		return use, true
	}
	for at := strings.LastIndexByte(key, '.'); at >= 0 && !ok; at = strings.LastIndexByte(key[:at], '.') {
		use, ok = table[key[:at]+".*"]
	}
	return use, ok
}

// values calls f for each value of a document that is no object or list of objects.
func values(prefix string, v any, f func(key string, v any)) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			values(strings.TrimPrefix(prefix+"."+k, "."), x, f)
		}
	case []any:
		for _, x := range v {
			values(prefix+"[]", x, f)
		}
	default:
		f(prefix, v)
	}
}
