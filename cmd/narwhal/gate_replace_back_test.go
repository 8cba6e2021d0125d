package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// launched is the digest of the launch that an engine's evidence is bound to.
func (w *world) launched(t *testing.T, engine string) string {
	t.Helper()
	e, ok := w.latest().State.Evidence(record.NewKey("C", "launch", engine))
	if !ok || e.Stale {
		t.Fatalf("no fresh launch of %s", engine)
	}
	return e.Bonds["fleet/launch/"+engine]
}

// refusedBack wants a way back refused with a code and a hint.
func refusedBack(t *testing.T, w *world, exit int, code string, args ...string) {
	t.Helper()
	r := w.reply(w.must(exit, w.replace(append([]string{"--yes"}, args...)...)))
	if len(r.Errors) != 1 || r.Errors[0].Code != code || r.Errors[0].Hint == "" {
		t.Errorf("%v: %+v", args, r.Errors)
	}
}

// TestReplaceBack takes replacements back under open streams, with the fleet file as it is.
func TestReplaceBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4, nil)
	w.must(0, w.gates())
	refusedBack(t, w, 6, "nothing_to_take_back", "--back")
	refusedBack(t, w, 2, "invalid_arguments", "--back=x")
	refusedBack(t, w, 2, "invalid_arguments", "e1", "-o", filepath.Join(w.dir, "x.json"))
	refusedBack(t, w, 2, "invalid_arguments", "--only", "e1")
	launch, profile := w.launched(t, "e3"), w.digest(t, "F/profile/e3")
	w.relaunch("e3", 0.01)
	w.must(0, w.replace("e3", "--yes"))
	left := w.launched(t, "e3")
	file := filepath.Join(filepath.Dir(w.fleet), "back.json") // its references are relative
	t.Run("another launch", func(t *testing.T) {
		seq := w.latest().Seq
		if r := w.must(0, w.run("gate", "replace", "--back", "-f", w.fleet, "--dry-run")); !strings.Contains(r.out, "take back e3") || !strings.Contains(r.out, "the profile of e3 comes back") || w.latest().Seq != seq {
			t.Errorf("the plan, %d lines: %s", w.latest().Seq-seq, r.out)
		}
		refusedBack(t, w, 6, "nothing_to_take_back", "--back", "e1")
		refusedBack(t, w, 6, "nothing_to_take_back", "--back=2")
		before := w.identities()
		w.under(t, func() { w.must(0, w.replace("--back", "-o", file, "--yes")) })
		w.onlyChanged(t, before, "engine-e3", "sidecar-e3")
		keys := made(t, w.latest(), seq)
		if w.launched(t, "e3") != launch || w.digest(t, "F/profile/e3") != profile || !slices.Contains(keys, "G/activation") || slices.Contains(keys, "F/profile/e2") {
			t.Errorf("launch %s, profile %s, made %v", w.launched(t, "e3"), w.digest(t, "F/profile/e3"), keys)
		}
		refusedBack(t, w, 6, "nothing_to_take_back", "--back")
	})
	t.Run("a run with the file that was left", func(t *testing.T) {
		before := w.identities()
		if r := w.reply(w.must(6, w.gates())); r.Errors[0].Code != "launch_left" || !strings.Contains(r.Errors[0].Message, "e3") {
			t.Errorf("errors %+v", r.Errors)
		}
		if r := w.must(0, w.run("gate", "run", "-f", file, "--yes")); !strings.Contains(r.out, "nothing to do") {
			t.Errorf("with the document of what runs: %s", tail(r.out))
		}
		if got := changed(before, w.identities()); len(got) > 0 {
			t.Errorf("it changed %v", got)
		}
		w.must(0, w.run("gate", "verify", "-f", w.fleet))
	})
	t.Run("the launch that was left, asked for", func(t *testing.T) {
		w.must(0, w.replace("e3", "--yes"))
		if w.launched(t, "e3") != left {
			t.Error("it is another launch")
		}
		w.settled(t)
		w.relaunch("e3", 0)
		w.must(0, w.replace("e3", "--yes"))
	})
	t.Run("profiles, one by one", func(t *testing.T) {
		p0, p2 := w.digest(t, "F/profile/e0"), w.digest(t, "F/profile/e2")
		w.must(0, w.replace("e0", "e2", "--profile", "--yes"))
		if w.digest(t, "F/profile/e0") == p0 {
			t.Fatal("the same profile was measured")
		}
		w.under(t, func() { w.must(0, w.replace("--back", "e2", "--yes")) })
		if w.digest(t, "F/profile/e2") != p2 || w.digest(t, "F/profile/e0") == p0 {
			t.Error("not the profile of e2 alone came back")
		}
		w.settled(t)
		w.must(0, w.replace("--back", "--yes"))
		if w.digest(t, "F/profile/e0") != p0 {
			t.Error("the profile of e0 did not come back")
		}
		w.settled(t)
	})
	t.Run("a wave of some", func(t *testing.T) {
		before := w.identities()
		w.under(t, func() { w.must(0, w.replace("--wave", "--only", "e1,e3", "--yes")) })
		w.onlyChanged(t, before, "engine-e1", "engine-e3", "sidecar-e1", "sidecar-e3")
		w.settled(t)
	})
	t.Run("a wave", func(t *testing.T) {
		seq := w.latest().Seq
		w.must(0, w.replace("e0", "e1", "e2", "e3", "--wave", "--profile", "--yes"))
		before := w.identities()
		w.must(0, w.replace(fmt.Sprintf("--back=%d", begun(t, w, seq)), "--yes"))
		if got := changed(before, w.identities()); len(got) != 8 {
			t.Errorf("other processes: %v", got)
		}
		w.settled(t)
		w.must(0, w.run("gate", "verify", "-f", w.fleet))
	})
}

// begun is the line after seq that begins a replacement.
func begun(t *testing.T, w *world, seq int64) int64 {
	t.Helper()
	for _, ev := range w.latest().Events {
		if ev.Seq > seq && ev.Kind == record.KindReplaceStarted {
			return ev.Seq
		}
	}
	t.Fatal("no replacement was begun")
	return 0
}

// TestReplaceBackIsKilled takes a replacement back that stopped, is killed after its events, and
// goes on with what it recorded.
func TestReplaceBackIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, nil)
	w.must(0, w.gates())
	launch, profile := w.launched(t, "e1"), w.digest(t, "F/profile/e1")
	w.relaunch("e1", 0.01)
	w.rewrite(func(doc map[string]any) {
		other := doc["deploy"].(map[string]any)["launch"].(map[string]any)["other"].(map[string]any)
		other["simulated"].(map[string]any)["max_model_len"] = 8192
	})
	w.must(1, w.replace("e1", "--yes"))
	refused := func(what string, r ran) {
		t.Helper()
		if got := w.reply(w.must(6, r)); got.Errors[0].Code != "replacement_unfinished" {
			t.Errorf("%s: %+v", what, got.Errors)
		}
	}
	refused("another engine", w.replace("e2", "--yes"))
	kills := 0
	w.env = []string{"NARWHAL_CRASH_AFTER=3"}
	args := []string{"--back", "--yes"}
	r := w.replace(args...)
	for ; r.code == -1 && kills < 100; r = w.replace(args...) {
		if kills++; kills == 2 {
			w.env = nil
			refused("a run in between", w.gates())
			refused("the way forth", w.replace("e1", "--yes"))
			args = []string{"--yes"}
		}
		w.env = []string{"NARWHAL_CRASH_AFTER=" + strconv.Itoa(3+kills)}
	}
	w.env = nil
	w.must(0, r)
	if kills < 5 {
		t.Errorf("killed %d times only", kills)
	}
	if w.launched(t, "e1") != launch || w.digest(t, "F/profile/e1") != profile {
		t.Error("it is not as before")
	}
	w.must(0, w.run("gate", "verify", "-f", w.fleet))
	w.relaunch("e1", 0)
	w.must(0, w.gates()) // freezes the document
	w.settled(t)
	t.Run("requests that run too long", func(t *testing.T) { backLate(t, w) })
	t.Run("what is not as it was recorded", func(t *testing.T) { damagedBack(t, w) })
}

// backLate lets an engine serve again that was waited for too long: its process and its request stay.
func backLate(t *testing.T, w *world) {
	await(t, "a long request on e2", func() bool {
		resp, err := http.Post("http://"+w.router()+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a whale","max_tokens":12000,"ignore_eos":true,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		_, _ = resp.Body.Read(make([]byte, 64)) // its first token
		return w.residents(t, "e2") > 0
	})
	before := w.identities()
	w.must(4, w.replace("e2", "--below-floor", "--drain", "1s", "--yes"))
	w.must(0, w.replace("--back", "--yes"))
	if got := changed(before, w.identities()); len(got) > 0 || w.residents(t, "e2") == 0 {
		t.Errorf("other processes: %v, %d requests", got, w.residents(t, "e2"))
	}
	if state, draining := w.engineDoc(t, "e2"); draining {
		t.Errorf("e2 is %s", state)
	}
	w.settled(t)
}

// damagedBack refuses to go back to what the record does not hold any more.
func damagedBack(t *testing.T, w *world) {
	old := w.digest(t, "F/profile/e1")
	w.relaunch("e1", 0.01)
	w.must(0, w.replace("e1", "--below-floor", "--yes")) // roles may have moved
	before := w.identities()
	object := func(sum string) string { return filepath.Join(w.runDir(), "objects", sum) }
	damage := func(sum string) func() {
		b, err := os.ReadFile(object(sum))
		if err != nil || os.Remove(object(sum)) != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(object(sum), append([]byte(" "), b...), 0o600); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := os.WriteFile(object(sum), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	mend := damage(old)
	refusedBack(t, w, 8, "before_damaged", "--back")
	mend()
	w.rewrite(func(doc map[string]any) {
		doc["deploy"].(map[string]any)["profile"].(map[string]any)["output_tokens"] = 9
	})
	refusedBack(t, w, 6, "before_differs", "--back")
	w.rewrite(func(doc map[string]any) {
		doc["deploy"].(map[string]any)["profile"].(map[string]any)["output_tokens"] = 8
	})
	if got := changed(before, w.identities()); len(got) > 0 || w.latest().State.Replacement != nil {
		t.Errorf("it changed %v", got)
	}
}
