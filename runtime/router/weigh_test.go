package router

import (
	"fmt"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// Who is struck for a decode leg that failed before its first token: the producer if it does
// not answer for itself, else the decoding engine, with the producer on record.
func TestWhoIsToBlameForATransfer(t *testing.T) {
	for _, c := range []struct {
		name   string
		happen func(b *testbed)
		tokens int64
		class  string
		p0     string // strikes or cause
		d0     string
		held   string // source of d0's hold
	}{
		{"the producer is killed", func(b *testbed) { b.engine("p0").Kill() }, 0, classStream, "ejected connection", "", ""},
		{"the producer is frozen", func(b *testbed) { b.inject("p0", simulated.Injection{Kind: "freeze"}) }, 0, classStream, "ejected connection", "", ""},
		{"it accepts and never answers", func(b *testbed) { b.inject("p0", simulated.Injection{Kind: "hang"}) }, 0, classInference, "ejected connection", "", ""},
		{"it was replaced", func(b *testbed) { b.restart("p0") }, 0, classStream, "ejected process_identity", "", ""},
		{"the producer is well", func(*testbed) {}, 0, classStream, "", "stream 3", "p0"},
		{"the producer is well, a status", func(*testbed) {}, 0, classInference, "", "inference_status 3", "p0"},
		{"killed after the first token", func(b *testbed) { b.engine("p0").Kill() }, 1, classStream, "", "stream 3", "p0"},
		{"another class", func(b *testbed) { b.engine("p0").Kill() }, 0, classOverload, "", "overload 3", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBed(t, 2, 2, quick(), still, func(c *Config) { c.Fleet.Engine.HealthTimeoutS = 0.4 })
			o := b.router.own
			c.happen(b)
			// Its own probe stays open: of a token, or of its health.
			kind := "pause"
			if c.class == classOverload {
				kind = "hang"
			}
			b.inject("d0", simulated.Injection{Kind: kind})
			for range 3 {
				l := &claim{p: o.node("p0"), d: o.node("d0")}
				l.tokens.Store(c.tokens)
				f := engineFault(phaseDecode, "d0", model.ReasonTimeout, c.class, "silent", true)
				f.source = "p0"
				b.router.weigh(f, l)
			}
			b.heard()
			o.do(func() {
				if got := guilt(o.node("p0")); got != c.p0 {
					t.Errorf("p0: %q, want %q", got, c.p0)
				}
				if got := guilt(o.node("d0")); got != c.d0 {
					t.Errorf("d0: %q, want %q", got, c.d0)
				}
				switch h := o.node("d0").hold; {
				case c.held == "" && h != nil, c.held != "" && (h == nil || h.kind != holdInference || !o.node("d0").sources[c.held]):
					t.Errorf("hold %+v, sources %v", h, o.node("d0").sources)
				}
			})
		})
	}
}

// guilt words what counts against an engine.
func guilt(n *node) (s string) {
	if n.ejected != "" {
		return "ejected " + n.ejected
	}
	for class, k := range n.streak {
		if k > 0 {
			s += fmt.Sprintf("%s %d", class, k)
		}
	}
	return s
}
