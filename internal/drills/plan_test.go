package drills

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
)

// step is what a plan says of one step.
type step struct {
	ID, Host      string
	Argv, Check   []string
	Script, Fetch string
	File          *struct{ Path string }
	Local         *struct {
		Op   string
		Runs map[string][]struct {
			Argv   []string
			Script string
		}
	}
}

// planned are the commands and files of a plan, by host. What a local operation only may
// run, as the bundle's look at files that need not be there, is false.
func planned(steps []step) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	must := true
	add := func(host, what string) {
		if out[host] == nil {
			out[host] = map[string]bool{}
		}
		out[host][what] = must
	}
	for _, s := range steps {
		must = true
		switch {
		case s.Argv != nil:
			add(s.Host, "run "+remote.Quote(s.Argv...))
		case s.Script != "":
			add(s.Host, "run "+script(s.Script))
		case s.File != nil:
			add(s.Host, "put "+s.File.Path)
		}
		if s.Local != nil {
			must = s.Local.Op != "bundle"
			for host, runs := range s.Local.Runs {
				for _, r := range runs {
					if r.Script != "" {
						add(host, "run "+script(r.Script))
					} else {
						add(host, "run "+remote.Quote(r.Argv...))
					}
				}
			}
		}
	}
	return out
}

// script is the end of the command line that runs a script.
func script(text string) string { return remote.Quote("--", text) }

// TestPlanIsWhatRuns compares, gate by gate, the plan that was shown before with what the
// hosts' SSH servers were made to do: every command and file of the plan, and no other.
// Beside the plan stand the session's own: the lease, the live look, and the digests by
// which a file proves itself.
func TestPlanIsWhatRuns(t *testing.T) {
	w := newWorld(t, 2)
	state := w.copyState("")
	for _, letter := range []string{"A", "B", "C", "D", "E", "F", "G"} {
		shown := w.run(state, nil, "gate", "plan", letter, "-f", w.fleet, "--format", "json")
		if shown.exit != 0 {
			t.Fatalf("gate %s is not planned: %s", letter, tail(shown.err))
		}
		var e struct {
			Data struct{ Gates []struct{ Steps []step } }
		}
		must(t, json.Unmarshal([]byte(shown.out), &e))
		var steps []step
		for _, g := range e.Data.Gates {
			steps = append(steps, g.Steps...)
		}
		w.seen.take()
		if r := w.run(state, nil, "gate", "run", letter, "-f", w.fleet, "--yes", "--format", "json"); r.exit != 0 {
			t.Fatalf("gate %s: exit %d\n%s", letter, r.exit, tail(r.err))
		}
		want, acts := planned(steps), w.seen.take()
		for _, h := range w.sbx.Hosts {
			compare(t, letter, h.ID, want[h.ID], acts[h.ID])
		}
	}
}

func compare(t *testing.T, letter, host string, want map[string]bool, acts []loopback.Act) {
	t.Helper()
	left := maps.Clone(want)
	for _, a := range acts {
		what := ""
		switch a.Kind {
		case "exec":
			fits := func(p string) bool { c, ok := strings.CutPrefix(p, "run "); return ok && strings.Contains(a.Text, c) }
			if p := slices.IndexFunc(slices.Collect(maps.Keys(want)), fits); p >= 0 {
				for c := range want {
					if fits(c) {
						delete(left, c)
					}
				}
				continue
			}
			if ownWork(a.Text, want) {
				continue
			}
			what = a.Text
		default:
			put := func(p string) bool {
				f, ok := strings.CutPrefix(p, "put ")
				return ok && (a.Text == f || a.Target == f || path.Dir(a.Text) == path.Dir(f) || strings.HasPrefix(f, a.Text+"/"))
			}
			known := false
			for p := range want {
				if put(p) {
					known = true
					if a.Target == strings.TrimPrefix(p, "put ") {
						delete(left, p)
					}
				}
			}
			if known {
				continue
			}
			what = a.Text + " " + a.Target
		}
		t.Errorf("gate %s, host %s: %s was done and is in no plan: %s", letter, host, a.Kind, what[max(0, len(what)-400):])
	}
	for p, must := range left {
		if !must {
			continue
		}
		t.Errorf("gate %s, host %s: planned and not done: %.300s", letter, host, p)
	}
}

// ownWork tells a session's own commands: its lease, its live look, and the digest of a
// file that the plan puts there.
func ownWork(text string, want map[string]bool) bool {
	for _, sign := range []string{"/.lease.lock", "/lease; i=", `"facts":{"boot"`} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	for p := range want {
		if f, ok := strings.CutPrefix(p, "put "); ok && strings.Contains(text, path.Dir(f)) && strings.Contains(text, "sha256") {
			return true
		}
	}
	return false
}
