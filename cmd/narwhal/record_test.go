package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestRecordOfAFullRun runs the pipeline once, with evidence that only some fleets ask for, and then attacks
// copies of its record.
func TestRecordOfAFullRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, func(doc map[string]any) {
		d := doc["deploy"].(map[string]any)
		d["fabric"].(map[string]any)["under_decode"] = true
		policy, _ := d["policy"].(map[string]any)
		policy["restart_drill"] = true
	})
	first := w.reply(w.must(0, w.gates()))
	if got := first.states(); got != allPassed {
		t.Fatalf("gates are %s", got)
	}
	dir := w.runDir()
	t.Run("again changes nothing", func(t *testing.T) {
		before := filesBelow(t, dir)
		log, _ := os.ReadFile(filepath.Join(dir, record.LogFile))
		r := w.must(0, w.run("gate", "run", "-f", w.fleet, "--yes"))
		if !strings.Contains(r.out, "nothing to do") {
			t.Errorf("says %q", r.out)
		}
		after, _ := os.ReadFile(filepath.Join(dir, record.LogFile))
		if string(log) != string(after) || len(filesBelow(t, dir)) != len(before) {
			t.Error("the record changed")
		}
	})
	t.Run("verifies", func(t *testing.T) {
		w.must(0, w.run("gate", "verify", "-f", w.fleet))
		w.must(0, w.run("gate", "verify", copyTree(t, dir), "--trust", filepath.Join(w.dir, "sbx/keys/operator.key.pub")))
	})
	t.Run("another key is refused", func(t *testing.T) {
		w.must(0, w.run("keys", "generate", "-o", filepath.Join(w.dir, "other.key")))
		w.must(8, w.run("gate", "verify", dir, "--trust", filepath.Join(w.dir, "other.key.pub")))
	})
	t.Run("a policy says who may sign which gate", func(t *testing.T) {
		policy := filepath.Join(w.dir, "policy.json")
		for gates, want := range map[string]int{`"A","B","C","D","E","F","G"`: 0, `"A","B","C","D","E","F"`: 8} {
			text := `{"schema":"narwhal.signing_policy","schema_version":1,"signers":[{"name":"operator","key":"sbx/keys/operator.key.pub","gates":[` + gates + `]}]}`
			if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := w.must(want, w.run("gate", "verify", dir, "--policy", policy, "--format", "json"))
			errs := w.reply(r).Errors
			if want != 0 && len(errs) == 0 {
				t.Errorf("says %s", tail(r.out))
			}
			for _, e := range errs { // gate G may have more seals than its newest
				if e.Code != "seal_unverified" || !strings.Contains(e.Message, "seal of G") && !strings.Contains(e.Message, "seal of gate G") {
					t.Errorf("says %+v", e)
				}
			}
		}
	})
	copied := copyTree(t, dir)
	t.Run("the independent verifier agrees", func(t *testing.T) { t.Parallel(); independentVerifier(t, w, copied) })
	t.Run("tamper anywhere", func(t *testing.T) { t.Parallel(); tamperAnywhere(t, w, copyTree(t, copied)) })
	t.Run("hide any evidence", func(t *testing.T) { t.Parallel(); hideEvidence(t, w, dir) })
}

// tamperAnywhere changes one byte of every file of the run, at its beginning, middle and end.
func tamperAnywhere(t *testing.T, w *world, dir string) {
	for _, file := range filesBelow(t, dir) {
		name, _ := filepath.Rel(dir, file)
		b, err := os.ReadFile(file)
		if err != nil || len(b) == 0 {
			continue
		}
		for _, at := range []int{0, len(b) / 2, len(b) - 1} {
			changed := append([]byte(nil), b...)
			changed[at] ^= 0x01
			if err := os.WriteFile(file, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			r := w.run("gate", "verify", dir, "--trust", filepath.Join(w.dir, "sbx/keys/operator.key.pub"), "--format", "json")
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if r.code != 8 {
				t.Errorf("%s, byte %d of %d: exit %d, want 8", name, at, len(b), r.code)
				continue
			}
			named := false
			for _, e := range w.reply(r).Errors {
				named = named || strings.HasSuffix(e.File, name)
			}
			if !named {
				t.Errorf("%s, byte %d: changed and not named: %s", name, at, tail(r.out))
			}
		}
	}
	w.must(0, w.run("gate", "verify", dir, "--trust", filepath.Join(w.dir, "sbx/keys/operator.key.pub")))
}

// hideEvidence takes each evidence object away in turn: nothing says passed without it.
func hideEvidence(t *testing.T, w *world, dir string) {
	snap, err := record.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for letter, g := range snap.State.Gates {
		for key, e := range g.Evidence {
			path := filepath.Join(dir, record.ObjectDir, e.Ref.SHA256)
			if err := os.Rename(path, path+".hidden"); err != nil {
				t.Fatal(err)
			}
			st := w.reply(w.run("gate", "status", "-f", w.fleet, "--format", "json"))
			verify := w.run("gate", "verify", "-f", w.fleet)
			if err := os.Rename(path+".hidden", path); err != nil {
				t.Fatal(err)
			}
			for _, s := range st.Data.Gates {
				if s.Gate == letter && s.State == "passed" {
					t.Errorf("%s is hidden and gate %s says passed", key, letter)
				}
			}
			if verify.code != 8 {
				t.Errorf("%s is hidden and verify ends with %d", key, verify.code)
			}
		}
	}
}

// TestKillAtEveryEvent kills runs after each event that they write, each through some of the gates
// on a fleet of its own; together they go through all, and through each step to the next gate.
func TestKillAtEveryEvent(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	killedAt := map[record.Kind]int{}
	t.Cleanup(func() { // once all have ended
		for _, k := range []record.Kind{record.KindStarted, record.KindPlan, record.KindIntent, record.KindEvidence, record.KindOutcome, record.KindVerdict, record.KindSeal} {
			if killedAt[k] == 0 {
				t.Errorf("never killed after %s", k)
			}
		}
	})
	for name, c := range map[string]struct{ from, to string }{"A to C": {"", "C"}, "C to E": {"B", "E"}, "E to G": {"D", "G"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2, nil)
			if c.from != "" {
				w.must(0, w.gates("--to", c.from))
			}
			kinds := killedAtEveryEvent(t, w, c.to)
			mu.Lock()
			defer mu.Unlock()
			for k, n := range kinds {
				killedAt[k] += n
			}
		})
	}
}

// killedAtEveryEvent kills the run after each event that it writes: after the first one of every
// attempt and, while attempts bring nothing new, after one more each time. The same command goes on
// until the gates up to one pass. The result counts the kills by the event that they followed.
func killedAtEveryEvent(t *testing.T, w *world, to string) map[record.Kind]int {
	kills, after, done := 0, 1, 0
	killedAt := map[record.Kind]int{}
	for {
		w.env = []string{"NARWHAL_CRASH_AFTER=" + strconv.Itoa(after)}
		r := w.gates("--to", to)
		if r.code == 0 {
			break
		}
		if r.code != -1 {
			t.Fatalf("after %d kills: exit %d\n%s\n%s", kills, r.code, tail(r.out), tail(r.err))
		}
		if kills++; kills > 2000 {
			t.Fatal("no end after 2000 kills")
		}
		snap := w.latest()
		killedAt[snap.Events[len(snap.Events)-1].Kind]++
		after++
		if n := settled(snap.State); n > done {
			after, done = 1, n
		}
	}
	w.env = nil
	want := allPassed[:strings.Index(allPassed, to+":")] + to + ":passed"
	if got := w.reply(w.must(0, w.gates("--to", to))).states(); !strings.HasPrefix(got, want) {
		t.Fatalf("gates are %s", got)
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	snap, err := record.Read(w.runDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range snap.State.Unknown {
		t.Errorf("the effect of %s stays unknown", a.Step)
	}
	checkOnce(t, snap)
	t.Logf("%d kills, %d events", kills, len(snap.Events))
	return killedAt
}

// latest reads the newest run's record.
func (w *world) latest() *record.Snapshot {
	w.t.Helper()
	dir, err := record.Resolve(w.state, "sandbox", "latest")
	if err != nil {
		w.t.Fatal(err)
	}
	snap, err := record.Read(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return snap
}

// settled counts what a later attempt need not repeat.
func settled(s record.State) int {
	steps := map[string]bool{}
	for _, a := range s.Done {
		steps[a.Gate+a.Step] = true
	}
	n := len(steps)
	for _, g := range s.Gates {
		for _, e := range g.Evidence {
			if !e.Stale {
				n++
			}
		}
		if g.Verdict != "" {
			n++
		}
		if g.Seal != nil {
			n++
		}
	}
	return n
}

// checkOnce finds evidence that was made again although its bonds held.
func checkOnce(t *testing.T, snap *record.Snapshot) {
	t.Helper()
	last := map[record.Key]string{}
	stale := map[record.Key]bool{}
	for _, ev := range snap.Events {
		switch ev.Kind {
		case record.KindStale:
			var s record.Stale
			_ = json.Unmarshal(ev.Body, &s)
			stale[s.Key] = true
		case record.KindEvidence:
			var e record.Evidence
			_ = json.Unmarshal(ev.Body, &e)
			bonds := ""
			for k, v := range e.Bonds {
				bonds += k + "=" + v + ";" + strconv.Itoa(len(v))
			}
			if _, again := last[e.Key]; again && !stale[e.Key] {
				t.Errorf("%s was made again while its evidence held (line %d)", e.Key, ev.Seq)
			}
			last[e.Key] = bonds
			delete(stale, e.Key)
		}
	}
}
