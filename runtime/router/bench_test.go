package router

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

type sink struct{ h http.Header }

func (s sink) Header() http.Header         { return s.h }
func (s sink) Write(b []byte) (int, error) { return len(b), nil }
func (s sink) WriteHeader(int)             {}
func (s sink) Flush()                      {}

// offline is a router that serves nobody: its owner runs, its engines are never asked.
func offline(tb testing.TB, prefill, decode int) *Router {
	tb.Helper()
	cfg := Config{Fleet: fleetDoc(), Listen: "127.0.0.1:0"}
	digest := "sha256:" + fmt.Sprintf("%064d", 0)
	var rows []profile.Row
	for i := range prefill + decode {
		e := fleet.Engine{IID: fmt.Sprintf("e%d", i), URL: fmt.Sprintf("http://127.0.0.1:%d", 9+i), Role: fleet.RolePrefill}
		if i >= prefill {
			e.Role = fleet.RoleDecode
		}
		cfg.Fleet.Engines = append(cfg.Fleet.Engines, e)
		rows = append(rows, profile.NewRow(e.IID, digest, curveOf(quick()), profile.Report{}))
	}
	cfg.Profiles = profile.NewStore(nil, rows...)
	r, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	go r.own.loop(r.stopOwner)
	tb.Cleanup(func() { close(r.stopOwner); <-r.own.done })
	return r
}

// benchFrame is one token event of vLLM.
var benchFrame = []byte(`data: {"id":"cmpl-8b3b7a1c-2a0f-4b86-9a3b-2f1f0d6f0f7e","object":"text_completion","created":1764430000,"model":"tern-tiny","choices":[{"index":0,"text":" whale","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}` + "\n\n")

// relayToNobody is the relay of a stream whose client takes everything at once.
func relayToNobody(tb testing.TB) *relay {
	r := offline(tb, 1, 1)
	w := sink{http.Header{}}
	q := &request{r: r, w: w, http: &http.Request{}, untie: func() {}, out: &outlet{ResponseController: http.NewResponseController(w)}, ctx: context.Background(), call: &call{prompts: 1, choices: 1, wide: 1, stream: true}, row: journal.Row{RID: "x"}}
	return &relay{q: q, l: &claim{p: r.own.nodes[0], d: r.own.nodes[1]}, hand: true}
}

// One read of one token event, relayed: what a stream costs the router itself, without
// its two sockets.
func BenchmarkRelayFrame(b *testing.B) {
	rel := relayToNobody(b)
	b.ReportAllocs()
	for b.Loop() {
		if f := rel.read(benchFrame); f != nil {
			b.Fatal(f)
		}
	}
}

// One placement over eight engines with 200 residents, reservation and release included.
func BenchmarkPlace(b *testing.B) {
	r := offline(b, 3, 5)
	for i := range 200 {
		l := &claim{p: r.own.nodes[0], d: r.own.nodes[3+i%5], input: 500, expected: 100}
		l.d.decoding[l] = struct{}{}
	}
	q := &request{r: r, call: &call{choices: 1}, row: journal.Row{RID: "x", Arrived: r.own.now()}, input: 800, expect: 100}
	r.own.do(func() { r.own.validated = true; r.own.publish() })
	b.ReportAllocs()
	for b.Loop() {
		q.row.Arrived = r.own.now()
		l, f := q.place(1, false)
		if f != nil {
			b.Fatal(f)
		}
		r.own.do(func() { r.own.release(l, r.own.now()) })
	}
}
