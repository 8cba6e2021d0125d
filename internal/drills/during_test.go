package drills

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/process"
)

// trialRow begins the client request id of a trial's row in the router's journal.
var trialRow = regexp.MustCompile(`"client_rid": ?"([0-9a-f]{8})-\d+-`)

// during breaks something once the trial's first requests have ended. What act does must mend
// itself, or be registered before.
func during(act func(s *scene)) func(*scene) {
	return func(s *scene) {
		journal := filepath.Join(s.hosts[0].Root, "router", "journal.jsonl")
		tags := func() map[string]int {
			b, _ := os.ReadFile(journal) // there may be none yet
			out := map[string]int{}
			for _, m := range trialRow.FindAllSubmatch(b, -1) {
				out[string(m[1])]++
			}
			return out
		}
		old := tags()
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				for tag, n := range tags() {
					if old[tag] == 0 && n >= 3 {
						act(s)
						return
					}
				}
			}
		})
		s.heal(func() { cancel(); wg.Wait() })
	}
}

// inRouter names a file of the router.
func (s *scene) inRouter(name string) string {
	return filepath.Join(s.hosts[0].Root, "router", name)
}

// replaceJournal puts another file in the journal's place.
func replaceJournal(s *scene) {
	_ = os.Rename(s.inRouter("journal.jsonl"), s.inRouter("moved.jsonl"))
	_ = os.WriteFile(s.inRouter("journal.jsonl"), nil, 0o600)
}

// cutJournal takes rows away.
func cutJournal(s *scene) { _ = os.Truncate(s.inRouter("journal.jsonl"), 0) }

// noise writes a line that is none.
func noise(s *scene) {
	f, err := os.OpenFile(s.inRouter("journal.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, _ = f.WriteString("oops\n")
		_ = f.Close()
	}
}

// touchProfiles changes what the router was started with.
func touchProfiles(s *scene) {
	b, err := os.ReadFile(s.inRouter("profiles.json"))
	if err == nil {
		_ = os.WriteFile(s.inRouter("profiles.json"), append(b, '\n'), 0o600)
	}
}

// killEngine ends the engine of the second host.
func killEngine(s *scene) {
	if r, ok := process.Read(filepath.Join(s.hosts[1].Root, "run"), "engine-e1"); ok && r.Alive() {
		_ = syscall.Kill(-r.PID, syscall.SIGKILL)
	}
}

// nameless sends a request of somebody else, without an id.
func nameless(s *scene) {
	body := fmt.Sprintf(`{"model":%q,"prompt":"a b c","max_tokens":4}`, s.doc["model"])
	resp, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/v1/completions", portRouter(s.hosts[0])), "application/json", bytes.NewReader([]byte(body)))
	if err == nil {
		_ = resp.Body.Close()
	}
}

// dropped breaks the connection to the router's host.
func dropped(s *scene) { s.w.sbx.Server(0).Drop() }

// shortTrial is a trial of two rates that takes seconds.
var shortTrial = set(object{"rates": []any{10, 20}, "requests": 30, "attainment": 0.5, "max_input_tokens": 500, "max_output_tokens": 16}, "deploy", "trial")

var trialFaults = []fault{
	{id: "trial-journal-replaced", stage: "F", where: "file on host", how: "another file gets the journal's name during the trial", do: both(shortTrial, during(replaceJournal)), code: "reconcile-journal-replaced", exit: 1, hint: "deploy.router.journal.keep"},
	{id: "trial-journal-cut", stage: "F", where: "file on host", how: "the journal is emptied during the trial", do: both(shortTrial, during(cutJournal)), code: "reconcile-client-journal-ids", exit: 1, hint: "--again G"},
	{id: "trial-journal-noise", stage: "F", where: "file on host", how: "somebody else writes to the journal during the trial", do: both(shortTrial, during(noise)), code: "reconcile-journal-parse-error", exit: 1, hint: "something else writes"},
	{id: "trial-input-changed", stage: "F", where: "file on host", how: "the router's profiles change during the trial", do: both(shortTrial, during(touchProfiles)), code: "trial-input-changed", exit: 1, hint: "ROOT/router"},
	{id: "trial-engine-killed", stage: "F", where: "process", how: "an engine is killed during the trial", do: both(shortTrial, during(killEngine)), code: "trial-process-changed", exit: 1, hint: "engine-e1.log"},
	{id: "trial-stranger", stage: "F", where: "network", how: "another client without an id uses the router during the trial", do: both(shortTrial, during(nameless)), code: "reconcile-journal-client-ids-missing", exit: 1, hint: "keep them away"},
	{id: "trial-tunnel", stage: "F", where: "network", how: "the connection to the router's host breaks during the trial", do: both(shortTrial, during(dropped)), code: "trial-tunnel", exit: 1, hint: "network between", quick: true},
	{id: "trial-second-rate", stage: "F", where: "fleet file", how: "the second of three rates is more than engines carry", do: set(object{"rates": []any{4, 2000, 3000}, "requests": 40, "attainment": 0.8, "max_input_tokens": 500, "max_output_tokens": 16}, "deploy", "trial"), code: "attainment", exit: 1, hint: "rates", says: "the highest passing rate is 4/s"},
	{id: "ring-kv-wrong", stage: "F", where: "process", how: "KV that arrives during and after the trial is another prompt's", do: both(shortTrial, inject(1, `{"kind":"wrong-block","count":-1}`)), args: onlyG, code: "ring-failed", exit: 1, hint: "engine-e1.log"},
}
