package router

import (
	"encoding/json"
	flags "flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var writeDifferences = flags.Bool("write-differences", false, "write the table of docs/differences.md anew")

// The page tells what the tables tell: no more, no less.
func TestReplayDifferencesPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "differences.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(page), "| Case |")
	if !ok {
		t.Fatal("the page has no table")
	}
	want := head + differencesTable()
	if *writeDifferences {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("docs/differences.md does not tell what the tables of the tests tell; run: go test ./runtime/router -run TestReplayDifferencesPage -write-differences")
	}
}

func differencesTable() string {
	var b strings.Builder
	b.WriteString("| Case | Reference → narwhal | Why |\n| --- | --- | --- |\n")
	row := func(kind string, d difference) {
		cells := []string{kind + "`" + strings.ReplaceAll(d.name, ", ", "`, `") + "`", "`" + d.what + "`", d.why}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	for _, d := range deliberate {
		row("", d)
	}
	for _, d := range legDifferences {
		row("leg ", d)
	}
	return b.String()
}

// Every row of the tables belongs to a case that is played; a row for nothing excuses nothing.
func TestReplayTablesNameRecordedCases(t *testing.T) {
	// Not recorded as exchanges; each has a test of its own.
	names := []string{"lifecycle_events", "second_drain_without_contract", "recovery_with_a_dead_engine", "sidecar_fails_once", "refused_reader_stray", "stream_at_stop", "foreign_host", "framework_pages", "stuck_health", "prompt_beyond_context", "recorded_handoff"}
	for _, file := range []string{"exchanges-inspection", "exchanges-success", "errors", "errors-queue", "errors-saturated", "errors-no-engines", "exchanges-topologies", "exchanges-lifecycle-uncontracted"} {
		for _, c := range replayCases(t, file+".jsonl") {
			names = append(names, c.Case)
		}
	}
	for _, c := range retriedStreams(t) {
		names = append(names, c.Case)
	}
	seen := map[string]bool{}
	for _, d := range slices.Concat(deliberate, defects) {
		for _, n := range strings.Split(d.name, ", ") {
			if !slices.Contains(names, n) || seen[n] || d.what == "" || d.why == "" {
				t.Errorf("row of %s: unknown, repeated or empty", n)
			}
			seen[n] = true
		}
	}
	for n := range replaySetups {
		if !slices.Contains(names, n) {
			t.Errorf("setup of %s: no such case", n)
		}
	}
}

// A lifecycle document has the recorded members, whatever happened to the engine.
func TestReplayLifecycleMembers(t *testing.T) {
	c := caseNamed(t, "exchanges-lifecycle-uncontracted.jsonl", "drain_without_contract")
	b := startCase(t, c.Case)
	var want, got map[string]any
	if json.Unmarshal(c.Response.Body, &want) != nil || json.Unmarshal([]byte(b.send(c.Request).body), &got) != nil {
		t.Fatal("no JSON")
	}
	for _, part := range []func(map[string]any) any{
		func(m map[string]any) any { return m },
		func(m map[string]any) any { return m["router"] },
		func(m map[string]any) any { return m["wave"] },
		func(m map[string]any) any { return m["engines"] },
		func(m map[string]any) any { return m["engines"].(map[string]any)["d1"] },
	} {
		if w, g := keysOf(part(want)), keysOf(part(got)); !slices.Equal(w, g) {
			t.Errorf("members %v, recorded %v", g, w)
		}
	}
	events := func(m map[string]any) int { return len(m["events"].([]any)) }
	what := ""
	if events(got) < events(want) {
		what = "events " + brief(events(want)) + " → " + brief(events(got))
	}
	if judge := judgeCase("lifecycle_events", what); judge != "" {
		t.Error(judge)
	}
}

func keysOf(v any) (keys []string) {
	m, _ := v.(map[string]any)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
