package router

import (
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// patient never ejects or holds an engine for what its legs do.
func patient(c *Config) { c.Fleet.Recovery.EjectAfter = 1 << 20 }

// 15 % of prefill legs fail for good: the reference's credits are used up before the end.
func TestRow06AShareOfFailingLegsIsServed(t *testing.T) {
	b := startReplay(t, rolesF1, false, patient)
	const requests = 300
	failing := 0
	for i := range requests {
		body := `{"prompt":[1,2],"max_tokens":1}`
		if i%20%7 == 0 {
			body = `{"prompt":[1,2],"max_tokens":1,"fault":{"kind":"prefill_status","status":500,"iid":"p0"}}`
			failing++
		}
		if a := b.complete("%s", body); a.status != 200 {
			t.Fatalf("request %d: %d %s", i, a.status, a.body)
		}
	}
	retries := b.state().Serving["retry_attempts"].(float64)
	if reference := 10 + 0.1*float64(requests-failing); retries < 0.15*requests || retries <= reference {
		t.Errorf("%v retries of %d failing; the reference has %v", retries, failing, reference)
	}
}

// All legs fail: only the share is sent again. What fails for another reason still has its own.
func TestRow06AStormIsBoundedAndStarvesNobody(t *testing.T) {
	b := startReplay(t, rolesF1, false, patient)
	const requests = 150
	for range requests {
		if a := b.complete(`{"prompt":[1,2],"max_tokens":1,"fault":{"kind":"prefill_status","status":500}}`); a.status != 502 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	s := b.state().Serving
	if retries := s["retry_attempts"].(float64); retries < 10 || retries > 0.2*requests || s["retry_denied"] != requests-retries || s["retry_credits"] != 0.2*requests-retries {
		t.Errorf("%v retries of %d requests, %v refused, %v left", retries, requests, s["retry_denied"], s["retry_credits"])
	}
	for range 10 {
		if a := b.complete(`{"prompt":[1,2],"max_tokens":1,"fault":{"kind":"prefill_no_handoff","iid":"p0"}}`); a.status != 200 {
			t.Errorf("another cause: %d %s", a.status, a.body)
		}
	}
	if m := b.send(getOf("/metrics")).body; !strings.Contains(m, `narwhal_router_retry_denials_total{cause="inference_status"} 12`) || strings.Contains(m, `_denials_total{cause="kv_handoff"}`) {
		t.Error("the refusals are not told by their cause")
	}
}

// Only the first retry after a death is free.
func TestRow06TheSecondDeathIsPaidFor(t *testing.T) {
	for budget, want := range map[int]int{0: 2, 1: 3} {
		b := startReplay(t, []string{"p0 prefill", "p1 prefill", "p2 prefill", "d0 decode"}, false, func(c *Config) {
			c.Fleet.Serving.RetryBudget, c.Fleet.Serving.MaxAttempts, c.Fleet.Recovery.EjectAfter = budget, 3, 1<<20
		})
		b.kill("p0")
		b.kill("p1")
		a := b.complete(`{"prompt":[1,2],"max_tokens":1}`)
		row := b.rows()[0]
		if row.Attempts != want || (a.status == 200) != (want == 3) || want == 2 && row.Failures[1].RetryReason != noSharedBudget {
			t.Errorf("budget %d: %d attempts, %d, %+v", budget, row.Attempts, a.status, row.Failures)
		}
	}
}

// A leg that fails on an engine that was ejected meanwhile, whatever for, is repeated for free.
func TestRow06EjectionCostsNoCredit(t *testing.T) {
	r := offline(t, 2, 2)
	o := r.own
	o.budget = newBudget(0, 0)
	q := &request{r: r, row: journal.Row{Arrived: o.now()}}
	f := &failure{phase: phaseDecode, class: classStream, transient: true}
	q.claim = &claim{p: o.nodes[0], d: o.nodes[2]}
	if _, why := o.retry(q, f, 1); why != noSharedBudget {
		t.Errorf("all are well: %s", why)
	}
	for _, n := range []*node{q.claim.p, q.claim.d} {
		n.ejected = causeInference
		if wait, why := o.retry(q, f, 1); why != retryAllowed || wait != 0 {
			t.Errorf("%s ejected: %s after %v", n.id, why, wait)
		}
		if _, why := o.retry(q, f, 2); why != noSharedBudget {
			t.Errorf("the second time: %s", why)
		}
		n.ejected = ""
	}
}
