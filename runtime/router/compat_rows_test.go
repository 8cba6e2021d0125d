package router

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

func TestADecisionWithoutACandidateHasNoPrice(t *testing.T) {
	q := &request{}
	q.priced(1, sched.Decision{Refused: model.ReasonNoEngine})
	if q.row.Price != nil {
		t.Errorf("%+v", q.row.Price)
	}
	q.priced(1, sched.Decision{Refused: model.ReasonQueue, Price: 3})
	q.priced(2, sched.Decision{Refused: model.ReasonNoEngine})
	if p := q.row.Price; p == nil || p.Attempt != 1 || p.Price != 3 {
		t.Errorf("the latest price is %+v", p)
	}
}

// nullness tells for each member of the rows of a terminal whether it is ever null, and
// ever not.
type nullness map[string][2]bool

func (n nullness) take(t *testing.T, raw []byte) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	var terminal string
	if json.Unmarshal(m["terminal"], &terminal) != nil || terminal == "" {
		return ""
	}
	for k, v := range m {
		seen := n[terminal+" "+k]
		if string(v) == "null" {
			seen[0] = true
		} else {
			seen[1] = true
		}
		n[terminal+" "+k] = seen
	}
	return terminal
}

// TestRowsAreNullWhereTheReferencesAre lets requests end in each way and compares what is
// null in their rows with the recorded rows of that terminal.
func TestRowsAreNullWhereTheReferencesAre(t *testing.T) {
	ref, ours := nullness{}, nullness{}
	for _, name := range []string{"journal", "journal-breaker", "journal-lifecycle"} {
		b, err := os.ReadFile("testdata/reference-" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			ref.take(t, line)
		}
	}
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Fleet.Serving.RequestTimeoutS, c.Fleet.Engine.FirstTokenTimeoutS, c.Fleet.Serving.MaxAttempts = 0.3, 30, 1
		c.Fleet.Recovery.LivenessEvery, c.Fleet.Engine.Tokenize = 0, false
	})
	off := false
	b.complete(body(false, 4))
	b.complete(`{"prompt":5}`)
	b.inject("p0", simulated.Injection{Kind: "freeze"})
	b.complete(body(false, 4)) // expires
	ctx, leave := context.WithCancel(limit(t))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/completions", bytes.NewReader(asJSON(t, body(true, 4))))
		if err == nil {
			req.Header.Set("X-Request-Id", "mine")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}
	}()
	eventually(t, "a prefill", func() bool { return b.state().Resident["p0"]["prefill"] == 1 })
	leave()
	<-gone
	eventually(t, "the cancellation", func() bool { return b.state().Cancelled == 1 })
	b.inject("p0", simulated.Injection{Kind: "freeze", On: &off})
	b.inject("d0", simulated.Injection{Kind: "error", Count: 1})
	b.complete(body(false, 4)) // fails
	b.router.own.do(func() {
		b.router.own.node("p0").prefillFree = b.router.own.now() + 100
		b.router.own.node("d0").prefillFree = b.router.own.now() + 100
	})
	b.complete(body(false, 4)) // is refused
	post(t, limit(t), b.url+"/narwhal/lifecycle/drain", `{"wave":true}`)
	b.complete(body(false, 4)) // is rejected
	b.stop()
	raw, err := os.ReadFile(b.journal)
	if err != nil {
		t.Fatal(err)
	}
	ended := map[string]bool{}
	for line := range bytes.Lines(raw) {
		ended[ours.take(t, line)] = true
	}
	if len(ended) != 8 { // seven terminals, and lines of other kinds
		t.Errorf("requests ended as %v", ended)
	}
	for k, seen := range ours {
		want, ok := ref[k]
		if ok && (seen[0] && !want[0] || seen[1] && !want[1]) {
			t.Errorf("%s: null %v, set %v; in the reference %v, %v", k, seen[0], seen[1], want[0], want[1])
		}
	}
	for k := range ref {
		if _, ok := ours[k]; !ok {
			t.Errorf("no row has %s", k)
		}
	}
}
