package router

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// replayDiff lists what a client can tell apart between a recorded answer and ours; values
// that differ by nature (ids, clocks, wording) are not compared.
func replayDiff(want, got answer, names *strings.Replacer) (list []string) {
	if got.status == 0 {
		return []string{"connection broken"}
	}
	if want.status != got.status {
		list = append(list, fmt.Sprintf("status %d → %d", want.status, got.status))
	}
	for _, h := range []string{"Content-Type", "Retry-After", "Allow", "Cache-Control"} {
		if w, g := want.header.Get(h), got.header.Get(h); w != g {
			list = append(list, fmt.Sprintf("%s %s → %s", strings.ToLower(h), word(w), word(g)))
		}
	}
	if w, g := want.header.Get("Content-Length") != "", got.header.Get("Content-Length") != ""; w != g {
		list = append(list, fmt.Sprintf("content-length %v → %v", w, g))
	}
	if w, g := want.header.Get("X-Request-Id") != "", len(got.header.Get("X-Request-Id")) == 36; w != g {
		list = append(list, fmt.Sprintf("x-request-id %v → %v", w, g))
	}
	w, g := neutral(want, nil), neutral(got, names)
	if strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") && strings.HasPrefix(want.header.Get("Content-Type"), "text/event-stream") {
		return append(list, streamDiff(w, g)...)
	}
	if want.status != got.status && (want.status < 300) != (got.status < 300) {
		return list // an answer beside an error: nothing to compare
	}
	return append(list, jsonDiff("", w, g)...)
}

func word(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// neutral puts a fixed name for the request's id, and the recorded names for addresses.
func neutral(a answer, names *strings.Replacer) string {
	s := a.body
	if id := a.header.Get("X-Request-Id"); id != "" {
		s = strings.ReplaceAll(s, id, "RID")
	}
	if names != nil {
		s = names.Replace(s)
	}
	return s
}

// jsonDiff compares two documents.
func jsonDiff(at, want, got string) []string {
	var w, g any
	if json.Unmarshal([]byte(want), &w) != nil || json.Unmarshal([]byte(got), &g) != nil {
		if want == got {
			return nil
		}
		return []string{fmt.Sprintf("%s%s → %s", at, word(want), word(got))}
	}
	return valueDiff(at, w, g)
}

// ofNature reports a member whose wording or clock no client compares.
func ofNature(at string) bool {
	return strings.HasSuffix(at, "error.message") || strings.HasSuffix(at, "deadline_at")
}

func valueDiff(at string, want, got any) (list []string) {
	w, isObject := want.(map[string]any)
	g, both := got.(map[string]any)
	if isObject && both {
		return objectDiff(at, w, g)
	}
	wl, isList := want.([]any)
	gl, bothList := got.([]any)
	if isList && bothList && len(wl) == len(gl) {
		for i := range wl {
			list = append(list, valueDiff(fmt.Sprintf("%s[%d]", at, i), wl[i], gl[i])...)
		}
		return list
	}
	if _, isText := want.(string); ofNature(at) && isText == (reflect.TypeOf(got) == reflect.TypeFor[string]()) {
		return nil
	}
	if !reflect.DeepEqual(want, got) {
		return []string{fmt.Sprintf("%s %s → %s", at, brief(want), brief(got))}
	}
	return nil
}

func objectDiff(at string, want, got map[string]any) (list []string) {
	if at != "" {
		at += "."
	}
	keys := slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		w, inWant := want[k]
		g, inGot := got[k]
		switch {
		case !inWant:
			list = append(list, fmt.Sprintf("%s%s absent → %s", at, k, brief(g)))
		case !inGot:
			list = append(list, fmt.Sprintf("%s%s %s → absent", at, k, brief(w)))
		default:
			list = append(list, valueDiff(at+k, w, g)...)
		}
	}
	return list
}

func brief(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// streamDiff compares two streams event by event. Where the order of events differs, that
// order is the difference; else each event is compared as a document.
func streamDiff(want, got string) (list []string) {
	w, g := replayEvents(want), replayEvents(got)
	wl, gl := labels(w), labels(g)
	if !slices.Equal(wl, gl) {
		return []string{fmt.Sprintf("events %s → %s", strings.Join(wl, " · "), strings.Join(gl, " · "))}
	}
	for i := range w {
		list = append(list, jsonDiff(fmt.Sprintf("event %d ", i), strings.TrimPrefix(w[i], "data: "), strings.TrimPrefix(g[i], "data: "))...)
	}
	return list
}

// labels name events: a token by its text, an error by its type and code, anything else as
// it stands.
func labels(events []string) (list []string) {
	for _, e := range events {
		var c struct {
			Error   *struct{ Type, Code string }
			Usage   any
			Choices []struct {
				Text  string
				Delta struct{ Content string }
			}
		}
		switch {
		case !strings.HasPrefix(e, "data: {") || json.Unmarshal([]byte(e[6:]), &c) != nil:
			list = append(list, strings.ReplaceAll(strings.TrimPrefix(e, "data: "), "\n", " ↵ "))
		case c.Error != nil:
			list = append(list, "error "+c.Error.Type+" "+c.Error.Code)
		case len(c.Choices) > 0:
			list = append(list, fmt.Sprintf("%q", c.Choices[0].Text+c.Choices[0].Delta.Content))
		default:
			list = append(list, "usage")
		}
	}
	return list
}
