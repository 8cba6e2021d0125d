package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Difference is one member that came out another way.
type Difference struct {
	Row      string `json:"row"`   // the request's id, or the controller's moment
	Field    string `json:"field"` // path of the member
	Journal  string `json:"journal"`
	Replayed string `json:"replayed"`
}

// none stands for a member that is absent.
const none = "absent"

// maxShown bounds a value that is shown.
const maxShown = 120

// compare lists the members in which two JSON values differ, by path and in order.
func compare(path string, was, now any, found func(path, was, now string)) {
	switch a := was.(type) {
	case map[string]any:
		if b, ok := now.(map[string]any); ok {
			keys := map[string]bool{}
			for k := range a {
				keys[k] = true
			}
			for k := range b {
				keys[k] = true
			}
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				member(join(path, k), a, b, k, found)
			}
			return
		}
	case []any:
		if b, ok := now.([]any); ok {
			if len(a) != len(b) {
				found(path, fmt.Sprintf("%d items", len(a)), fmt.Sprintf("%d items", len(b)))
			}
			for i := range min(len(a), len(b)) {
				compare(fmt.Sprintf("%s[%d]", path, i), a[i], b[i], found)
			}
			return
		}
	}
	if x, y := shown(was), shown(now); x != y {
		found(path, x, y)
	}
}

func member(path string, a, b map[string]any, k string, found func(path, was, now string)) {
	x, before := a[k]
	y, after := b[k]
	switch {
	case before && after:
		compare(path, x, y, found)
	case before:
		found(path, shown(x), none)
	default:
		found(path, none, shown(y))
	}
}

func join(path, k string) string {
	if path == "" {
		return k
	}
	return path + "." + k
}

// shown is a value on one line. Equal values look alike: a number is its shortest form.
func shown(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func short(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "…"
	}
	return s
}

// plain is a value as JSON has it.
func plain(v any) (out any, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(b, &out)
}
