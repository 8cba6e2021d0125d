package record

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// genEvent draws an event over few gates, steps and keys, so that they meet.
func genEvent(t *rapid.T, seq int64) Event {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	gate, step, host := pick("gate", "", "A", "B"), pick("step", "", "s1", "s2"), pick("host", "", "h1", "h2")
	ref := Ref{SHA256: digestOf([]byte(pick("object", "x", "y"))), Media: "m", Bytes: 1}
	intent := rapid.Int64Range(0, 6).Draw(t, "intent")
	key := Key(pick("key", "A/host/h1", "A/host/h2", "B/file/f"))
	choices := []struct {
		kind Kind
		body any
	}{
		{KindCreated, Created{Run: "r", FleetName: "f", Fleet: ref}},
		{KindResumed, Resumed{PID: 1}},
		{KindInterrupted, Interrupted{Signal: "SIGINT"}},
		{KindRepair, Repair{DroppedSHA256: ref.SHA256}},
		{KindFacts, Facts{Values: map[string]string{pick("fact", "a", "b"): pick("value", "1", "2")}}},
		{KindStarted, Started{}},
		{KindPlan, Plan{Digest: "d", Object: ref}},
		{KindIntent, Intent{Effect: pick("effect", EffectObserve, EffectMutate, EffectDisrupt)}},
		{KindOutcome, Outcome{Intent: intent, Status: pick("status", StatusOK, StatusFailed, StatusCanceled)}},
		{KindResolved, Resolved{Intent: intent, Status: pick("found", ResolvedDone, ResolvedUndone, ResolvedUnclear)}},
		{KindEvidence, Evidence{Key: key, Ref: ref, Bonds: map[string]string{"a": "1"}}},
		{KindStale, Stale{Key: key, Because: "x"}},
		{KindVerdict, Verdict{State: pick("state", VerdictPassed, VerdictFailed, VerdictInconclusive)}},
		{KindSeal, Seal{Ref: ref, Seq: 1, Digest: ref.SHA256}},
		{KindUndone, Undone{Step: step, Intent: intent}},
		{KindUndone, Undone{Key: key}},
		{KindUndone, Undone{}},
		{KindRollbackStarted, RollbackStarted{To: "A"}},
		{KindRollbackStep, RollbackStep{ID: step, Intent: intent, Status: pick("rb", RollbackRunning, RollbackOK, RollbackFailed)}},
		{KindRollbackDone, RollbackDone{Rerun: []string{"B"}}},
		{KindNote, Note{Text: "x"}},
		{"unheard", Note{}},
	}
	c := choices[rapid.IntRange(0, len(choices)-1).Draw(t, "kind")]
	raw, err := marshal(c.body)
	if err != nil {
		t.Fatal(err)
	}
	return Event{Seq: seq, Time: start.Add(time.Duration(seq) * time.Second), Kind: c.kind, Gate: gate, Step: step, Host: host, Body: raw}
}

func TestFoldOfPrefixAndRestIsFoldOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "n")
		events := make([]Event, n)
		for i := range events {
			events[i] = genEvent(t, int64(i+1))
		}
		want := FoldAll(events)
		cut := rapid.IntRange(0, n).Draw(t, "cut")
		s := FoldAll(events[:cut])
		for _, ev := range events[cut:] {
			before := s.clone()
			next := Fold(s, ev)
			if !reflect.DeepEqual(s, before) {
				t.Fatalf("folding %s changed its input", ev.Kind)
			}
			s = next
		}
		if !reflect.DeepEqual(s, want) {
			t.Fatalf("prefix and rest:\n%+v\nall:\n%+v", s, want)
		}
		accounted(t, events, want)
	})
}

// accounted checks that no mutating intent disappears: it is unknown, done,
// partial, or an event said what became of it.
func accounted(t *rapid.T, events []Event, s State) {
	settled := 0
	intents := 0
	for _, ev := range events {
		switch body, _ := ev.Decode(); b := body.(type) {
		case *Intent:
			if b.Effect != EffectObserve {
				intents++
			}
		case *Undone, *RollbackStep:
			settled++
		case *Resolved:
			settled++
		case *Outcome:
			settled++ // a success settles the failed tries of its step
		}
	}
	held := 0
	for _, list := range [][]Action{s.Unknown, s.Done, s.Partial} {
		for _, a := range list {
			if a.Effect != EffectObserve {
				held++
			}
		}
	}
	if settled == 0 && held != intents {
		t.Fatalf("%d intents, %d held, nothing settled them", intents, held)
	}
	if held > intents {
		t.Fatalf("%d intents became %d", intents, held)
	}
}

// story folds events given as kind, gate, step, body.
func story(t *testing.T, lines ...any) State {
	t.Helper()
	var s State
	for i := 0; i+3 < len(lines); i += 4 {
		raw, err := json.Marshal(lines[i+3])
		if err != nil {
			t.Fatal(err)
		}
		ev := Event{Seq: int64(i/4 + 1), Time: start, Kind: lines[i].(Kind), Gate: lines[i+1].(string), Step: lines[i+2].(string), Host: "h1", Body: raw}
		if _, err := ev.Decode(); err != nil {
			t.Fatal(err)
		}
		s = Fold(s, ev)
	}
	return s
}

func steps(list []Action) []string {
	var out []string
	for _, a := range list {
		out = append(out, fmt.Sprintf("%s#%d", a.Step, a.Seq))
	}
	return out
}

func TestWhatBecomesOfAnIntent(t *testing.T) {
	mutate, observe := Intent{Effect: EffectMutate}, Intent{Effect: EffectObserve}
	ok, failed := Outcome{Status: StatusOK}, Outcome{Status: StatusFailed}
	cases := map[string]struct {
		lines                  []any
		unknown, done, partial []string
	}{
		"no outcome":               {lines: []any{KindIntent, "C", "s", mutate}, unknown: []string{"s#1"}},
		"done":                     {lines: []any{KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok}, done: []string{"s#1"}},
		"failed":                   {lines: []any{KindIntent, "C", "s", mutate, KindOutcome, "C", "s", failed}, partial: []string{"s#1"}},
		"failed, then done":        {lines: []any{KindIntent, "C", "s", mutate, KindOutcome, "C", "s", failed, KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok}, done: []string{"s#3"}},
		"observed":                 {lines: []any{KindIntent, "C", "s", observe, KindOutcome, "C", "s", ok}},
		"observed twice, one lost": {lines: []any{KindIntent, "C", "s", observe, KindIntent, "C", "s", observe}, unknown: []string{"s#2"}},
		"mutated twice, one lost":  {lines: []any{KindIntent, "C", "s", mutate, KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok}, unknown: []string{"s#1"}, done: []string{"s#2"}},
		"outcome by seq":           {lines: []any{KindIntent, "C", "s", mutate, KindIntent, "C", "s", mutate, KindOutcome, "C", "s", Outcome{Intent: 1, Status: StatusOK}}, unknown: []string{"s#2"}, done: []string{"s#1"}},
		"outcome of another gate":  {lines: []any{KindIntent, "C", "s", mutate, KindOutcome, "D", "s", ok}, unknown: []string{"s#1"}},
		"resolved done":            {lines: []any{KindIntent, "C", "s", mutate, KindResolved, "C", "s", Resolved{Status: ResolvedDone}}, done: []string{"s#1"}},
		"resolved undone":          {lines: []any{KindIntent, "C", "s", mutate, KindResolved, "C", "s", Resolved{Status: ResolvedUndone}}},
		"resolved unclear":         {lines: []any{KindIntent, "C", "s", mutate, KindResolved, "C", "s", Resolved{Status: ResolvedUnclear}}, unknown: []string{"s#1"}},
		"undone":                   {lines: []any{KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok, KindUndone, "C", "s", Undone{Step: "s"}}},
		"undone, newest first": {lines: []any{KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok, KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok,
			KindUndone, "C", "", Undone{Step: "s"}}, done: []string{"s#1"}},
		"undone, newest of all lists": {lines: []any{KindIntent, "C", "s", mutate, KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok,
			KindUndone, "C", "", Undone{Step: "s"}}, unknown: []string{"s#1"}},
		"order of ending": {lines: []any{KindIntent, "C", "a", mutate, KindIntent, "C", "b", mutate, KindOutcome, "C", "b", ok, KindOutcome, "C", "a", ok}, done: []string{"b#2", "a#1"}},
		"rolled back":     {lines: []any{KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok, KindRollbackStarted, "", "", RollbackStarted{To: "B"}, KindRollbackStep, "C", "", RollbackStep{ID: "u1", Intent: 1, Status: RollbackOK}}},
		"roll back ran":   {lines: []any{KindIntent, "C", "s", mutate, KindOutcome, "C", "s", ok, KindRollbackStep, "C", "", RollbackStep{ID: "u1", Intent: 1, Status: RollbackRunning}}, done: []string{"s#1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := story(t, c.lines...)
			if !slices.Equal(steps(s.Unknown), c.unknown) || !slices.Equal(steps(s.Done), c.done) || !slices.Equal(steps(s.Partial), c.partial) {
				t.Fatalf("unknown %v done %v partial %v; want %v %v %v", steps(s.Unknown), steps(s.Done), steps(s.Partial), c.unknown, c.done, c.partial)
			}
		})
	}
}

func TestLifeOfAGate(t *testing.T) {
	ref := Ref{SHA256: digestOf(nil), Media: "m"}
	ev := Evidence{Key: "C/engine/p0", Ref: ref, Bonds: map[string]string{"boot": "1"}}
	lines := []any{KindFacts, "", "", Facts{Values: map[string]string{"boot": "1"}}, KindStarted, "C", "", Started{}}
	at := func(want string, more ...any) State {
		t.Helper()
		lines = append(lines, more...)
		s := story(t, lines...)
		if got := s.Gates["C"].State; got != want {
			t.Fatalf("state %q; want %q", got, want)
		}
		return s
	}
	at(GateRunning)
	at(GateRunning, KindEvidence, "C", "s", ev)
	s := at(VerdictPassed, KindVerdict, "C", "", Verdict{State: VerdictPassed}, KindSeal, "C", "", Seal{Ref: ref, Seq: 3, Digest: ref.SHA256})
	if s.Gates["C"].Seal == nil || len(s.Broken()) != 0 {
		t.Fatalf("gate %+v, broken %v", s.Gates["C"], s.Broken())
	}
	s = at(VerdictPassed, KindFacts, "", "", Facts{Values: map[string]string{"boot": "2"}})
	if b := s.Broken(); len(b) != 1 || b[0] != (Broken{Key: ev.Key, Fact: "boot", Was: "1", Now: "2"}) {
		t.Fatalf("broken %v", b)
	}
	s = at(GateStale, KindStale, "C", "", Stale{Key: ev.Key, Because: "boot changed"})
	if e, _ := s.Evidence(ev.Key); !e.Stale || e.Because != "boot changed" || len(s.Broken()) != 0 {
		t.Fatalf("entry %+v", e)
	}
	s = at(GateRunning, KindStarted, "C", "", Started{})
	if s.Gates["C"].Seal != nil || s.Gates["C"].Verdict != "" || len(s.Seals) != 1 {
		t.Fatalf("restarted gate %+v", s.Gates["C"])
	}
	ev.Bonds = map[string]string{"boot": "2"}
	at(VerdictFailed, KindEvidence, "C", "s", ev, KindVerdict, "C", "", Verdict{State: VerdictFailed, Findings: []Finding{{Code: "x"}}})
	s = at(GateUndone, KindRollbackStarted, "", "", RollbackStarted{To: "B"}, KindRollbackDone, "", "", RollbackDone{Rerun: []string{"C", "D"}})
	if s.Rollback != nil || s.LastRollback == nil || s.Gates["D"].State != GatePending {
		t.Fatalf("after the rollback: %+v", s)
	}
	if e, _ := s.Evidence(ev.Key); !e.Stale {
		t.Fatal("evidence of an undone gate holds")
	}
}
