package router

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

func lifecycleCall(path, body string) replayRequest {
	return replayRequest{Method: http.MethodPost, Path: "/narwhal/lifecycle/" + path, Body: json.RawMessage(body)}
}

// A drain of a fleet without a contract holds the engine only if it can, and can be undone.
func TestRow21DrainCanBeUndone(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	for _, body := range []string{`{"engines":["none"]}`, `{"engines":["d0","d1"]}`, `{"engines":["d0"],"deadline_s":0}`} {
		if a := b.send(lifecycleCall("drain", body)); a.status != 409 {
			t.Errorf("%s: %d", body, a.status)
		}
	}
	if s := b.state(); len(s.Draining) != 0 {
		t.Errorf("a refused drain holds %v", s.Draining)
	}
	if a := b.send(lifecycleCall("drain", `{"engines":["d0"]}`)); a.status != 200 {
		t.Fatalf("drain: %d %s", a.status, a.body)
	}
	decodesOn(t, b, "d1")
	if a := b.send(lifecycleCall("readmit", `{"engines":["d0"]}`)); a.status != 200 {
		t.Fatalf("readmit: %d %s", a.status, a.body)
	}
	decodesOn(t, b, "d0")
}

func decodesOn(t *testing.T, b *replayBed, iid string) {
	t.Helper()
	if a := b.complete(`{"prompt":[1],"max_tokens":1}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	legs := b.received()
	if last := legs[len(legs)-1]; last.iid != iid {
		t.Errorf("decoded on %s, want %s", last.iid, iid)
	}
}

// A handoff that nobody will read is counted, and its tokens stay counted on their producer.
func TestRow15AbandonedHandoffsAreCounted(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	o := b.router.own
	var l *claim
	o.do(func() {
		l = &claim{p: o.node("p0"), d: o.node("d0"), input: 40}
		o.pin(l)
		o.release(l, o.now())
	})
	var held, strays int
	o.do(func() { held, strays = l.p.held, o.n.strayHandoffs })
	if held != 40 || strays != 1 {
		t.Errorf("held %d tokens, %d strays", held, strays)
	}
	o.do(func() { l.p.settleStrays(o.now() + 2*defaultLease); held = l.p.held })
	if held != 0 {
		t.Errorf("held %d tokens after the lease", held)
	}
}

// A handoff whose reader never had it is as much abandoned as one that was never sent.
func TestRow15RefusedReaderLeavesAStray(t *testing.T) {
	b := startReplay(t, []string{"p0 prefill!", "d0 decode", "d1 decode"}, false)
	b.kill("d0")
	if a := b.complete(`{"prompt":[1,2],"max_tokens":2}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var strays int
	b.router.own.do(func() { strays = b.router.own.n.strayHandoffs })
	what := ""
	if strays != 1 {
		what = "strays 1 → " + brief(strays)
	}
	if judge := judgeCase("refused_reader_stray", what); judge != "" {
		t.Error(judge)
	}
}

// A decision can be read again from its row: every candidate with its cost or why not.
func TestRow31RowsHoldEveryCandidate(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	b.complete(`{"prompt":[1,2],"max_tokens":1}`)
	b.complete(`{"prompt":%s,"max_tokens":1}`, ids(14000))
	for i, row := range b.rows() {
		type side struct {
			IID, Dropped string
			Cost         float64
		}
		var d struct {
			Placed            bool
			Prefills, Decodes []side
		}
		if json.Unmarshal(row.Decision, &d) != nil || len(d.Prefills) != 2 || len(d.Decodes) != 2 {
			t.Fatalf("row %d: %s", i, row.Decision)
		}
		for _, c := range append(d.Prefills, d.Decodes...) {
			if c.IID == "" || c.Cost <= 0 || (c.Dropped == "") != (row.Terminal == journal.Completed) {
				t.Errorf("row %d: %+v", i, c)
			}
		}
	}
}
