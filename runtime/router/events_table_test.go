package router

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// unseenEvents are kinds and members that no test of this package brings about, and why.
var unseenEvents = map[string]string{
	"journal_dropped":   "of the journal's writer, whose tests bring it about",
	"journal_recovered": "of the journal's writer, whose tests bring it about",
	"journal_changed":   "of the journal's writer, whose tests bring it about",
	"journal_reopened":  "of the journal's writer, whose tests bring it about",
}

// happened is what events the router wrote in the whole run of the tests: "kind member".
var happened struct {
	sync.Mutex
	seen    map[string]bool
	unknown map[string]bool
}

func init() {
	happened.seen, happened.unknown = map[string]bool{}, map[string]bool{}
	kinds := map[string]map[string]journal.Field{}
	for _, k := range journal.EventKinds() {
		kinds[k.Name] = map[string]journal.Field{}
		for _, f := range k.Fields {
			kinds[k.Name][f.Key] = f
		}
	}
	eventNoted = func(name string, fields map[string]any) {
		happened.Lock()
		defer happened.Unlock()
		known, ok := kinds[name]
		if !ok {
			happened.unknown[name] = true
			return
		}
		happened.seen[name] = true
		for k, v := range fields {
			f, ok := known[k]
			if !ok || !isOf(f.Type, v) {
				happened.unknown[fmt.Sprintf("%s %s: %T", name, k, v)] = true
			}
			happened.seen[name+" "+k] = true
		}
		for k, f := range known {
			if _, has := fields[k]; !has && f.When == "" {
				happened.unknown[name+" without "+k] = true
			}
		}
	}
}

// isOf reports whether a value is written as a type of the tables.
func isOf(want string, v any) bool {
	raw, err := json.Marshal(v)
	if err != nil {
		return false
	}
	kind, null := strings.CutSuffix(want, " or null")
	switch c := raw[0]; {
	case string(raw) == "null":
		return null
	case c == '"':
		return kind == "string"
	case c == '{':
		return kind == "object"
	case c == '[':
		return kind == "list"
	case c == 't' || c == 'f':
		return kind == "bool"
	}
	return kind == "number" || kind == "int" && !strings.ContainsAny(string(raw), ".e")
}

// judgeEvents returns what the run of the tests says about the table of events; whole means
// that every test ran.
func judgeEvents(whole bool) (wrong []string) {
	happened.Lock()
	defer happened.Unlock()
	for u := range happened.unknown {
		wrong = append(wrong, "event differs from the journal's table: "+u)
	}
	if !whole {
		return wrong
	}
	for _, k := range journal.EventKinds() {
		if seen, why := happened.seen[k.Name], unseenEvents[k.Name]; seen == (why != "") {
			wrong = append(wrong, fmt.Sprintf("event %s: seen %v, listed as unseen %v", k.Name, seen, why != ""))
		}
		for _, f := range k.Fields {
			name := k.Name + " " + f.Key
			if happened.seen[k.Name] && happened.seen[name] == (unseenEvents[name] != "") {
				wrong = append(wrong, fmt.Sprintf("member %s: seen %v, listed as unseen %v", name, happened.seen[name], unseenEvents[name] != ""))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}
