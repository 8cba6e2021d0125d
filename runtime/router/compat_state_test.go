package router

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// stateDifferences are the members of the reference that this router's document has not,
// or has with another type, and why. * stands for an engine.
var stateDifferences = map[string]string{}

// shape lists every path of a document with its JSON type; null is "null". Members named
// by engine come as *.
func shape(t *testing.T, raw []byte) map[string][]string {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	walk(".", v, out)
	return out
}

// byEngine are the objects whose members are engine ids.
var byEngine = []string{".lifecycle.process_starts", ".lifecycle.engines", ".seats.engines", ".handoff", ".resident", ".health", ".residency", ".breaker.failures", ".peer_release"}

func walk(at string, v any, out map[string][]string) {
	kind := "null"
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		for k, x := range v {
			switch {
			case slices.Contains(byEngine, at):
				k = "*"
			case at == ".control.decisions" || at == ".control.flips":
				k = "*"
			}
			if at == "." {
				walk("."+k, x, out)
			} else {
				walk(at+"."+k, x, out)
			}
		}
	case []any:
		kind = "list"
		for _, x := range v {
			walk(at+"[]", x, out)
		}
	case string:
		kind = "string"
	case float64:
		kind = "number"
	case bool:
		kind = "bool"
	}
	if !slices.Contains(out[at], kind) {
		out[at] = append(out[at], kind)
	}
}

// excused names the difference that a path falls under; "" = none.
func excused(p string) string {
	for pattern := range stateDifferences {
		if p == pattern || strings.HasPrefix(p, pattern+".") {
			return pattern
		}
	}
	return ""
}

// TestThePageListsTheDocumentsDifferences keeps docs/compatibility.md to the tables of
// this package's tests.
func TestThePageListsTheDocumentsDifferences(t *testing.T) {
	b, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, why := range stateDifferences {
		if !strings.Contains(string(b), "| `"+what[1:]+"` | "+why+" |") {
			t.Errorf("no row for %s: %s", what, why)
		}
	}
	for what, why := range eventDifferences {
		if !strings.Contains(string(b), "| `"+what+"` | "+why+" |") {
			t.Errorf("no row for %s: %s", what, why)
		}
	}
}

// TestTheStateHasTheReferencesKeys compares key sets and types with four recorded
// documents, after traffic that leaves a failure, a decision and an ejection behind.
func TestTheStateHasTheReferencesKeys(t *testing.T) {
	b := startBed(t, 2, 2, quick(), func(c *Config) {
		c.Fleet.Controller.Reactive.StepS, c.Fleet.Recovery.ReadmitEvery = 0.05, 1<<20
	})
	for range 3 {
		if a := b.complete(body(false, 4)); a.status != 200 {
			t.Fatal(a.body)
		}
	}
	b.complete(`{"prompt":5}`)
	eventually(t, "a decision", func() bool { return b.state().Control["last_decision"] != nil })
	b.router.own.do(func() {
		b.router.own.n.attemptFailures[[2]string{"decode", "engine_error"}]++
		b.router.own.n.probes[[3]string{"d0", probeInference, "passed"}]++
		b.router.own.eject(b.router.own.node("d0"), causeLiveness)
	})
	eventually(t, "a pass has seen the ejection", func() bool { return len(b.state().PeerRelease) == 1 })
	var raw json.RawMessage
	b.get("/narwhal/state", &raw)
	ours := shape(t, raw)
	used := map[string]bool{}
	for _, name := range []string{"state.json", "state-ejected.json", "state-queue.json", "state-contracted.json"} {
		ref, err := os.ReadFile("testdata/reference-" + name)
		if err != nil {
			t.Fatal(err)
		}
		for p, kinds := range shape(t, ref) {
			got, ok := ours[p]
			switch {
			case fits(got, kinds, ok):
			case excused(p) != "":
				used[excused(p)] = true
			case !ok && strings.Contains(p, "[]"):
				// Members of a list that is empty here.
				if _, ok := ours[p[:strings.Index(p, "[]")]]; !ok {
					t.Errorf("%s: no %s", name, p)
				}
			case !ok:
				t.Errorf("%s: no %s", name, p)
			default:
				t.Errorf("%s: %s is a %s, want %v", name, p, got, kinds)
			}
		}
	}
	for p := range stateDifferences {
		if !used[p] {
			t.Errorf("%s is listed as a difference and is none", p)
		}
	}
}

// fits reports whether a member is there with the recorded type; null fits every type.
func fits(got, want []string, ok bool) bool {
	return ok && !slices.ContainsFunc(got, func(k string) bool {
		return k != "null" && !slices.Contains(want, k) && !slices.Contains(want, "null")
	})
}

// keyOrders lists every object's keys in the order of the text, by path.
func keyOrders(t *testing.T, raw []byte) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	var value func(at string)
	value = func(at string) {
		tok, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch tok {
		case json.Delim('{'):
			for d.More() {
				k, err := d.Token()
				if err != nil {
					t.Fatal(err)
				}
				key, _ := k.(string)
				if slices.Contains(byEngine, at) {
					key = "*"
				}
				if !slices.Contains(out[at], key) {
					out[at] = append(out[at], key)
				}
				value(at + "." + key)
			}
			_, _ = d.Token()
		case json.Delim('['):
			for d.More() {
				value(at + "[]")
			}
			_, _ = d.Token()
		}
	}
	value("")
	return out
}

// TestTheStateKeepsTheReferencesOrder compares the order of the keys that both have.
func TestTheStateKeepsTheReferencesOrder(t *testing.T) {
	b := startBed(t, 2, 2, quick())
	var raw json.RawMessage
	b.get("/narwhal/state", &raw)
	ref, err := os.ReadFile("testdata/reference-state.json")
	if err != nil {
		t.Fatal(err)
	}
	ours := keyOrders(t, raw)
	for at, want := range keyOrders(t, ref) {
		if excused(at) != "" || strings.HasPrefix(at, ".control.last_decision") {
			continue
		}
		both := func(a, b []string) []string {
			return slices.DeleteFunc(slices.Clone(a), func(k string) bool { return !slices.Contains(b, k) })
		}
		if a, b := both(want, ours[at]), both(ours[at], want); !slices.Equal(a, b) {
			t.Errorf("%s: order\n%v, want\n%v", at, b, a)
		}
	}
}
