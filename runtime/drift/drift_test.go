package drift

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func params() Params {
	return Params{Window: 30, MinSamples: 3, Band: 2, Relative: 1.5, Probation: 3, Evict: 5, Recovery: 3, PerMinute: 1}
}

// course is a fleet under the step: residual says what a pass sees of an engine, and probe how
// a probe of it ends.
type course struct {
	s        State
	at       float64
	residual func(engine int, at float64) Sample
	probe    func(engine int, at float64) Probe
	ejected  func(engine int)
	said     []string // engine and kind, in order
}

func name(i int) string { return fmt.Sprintf("e%d", i) }

// play makes a pass each second until `to`.
func (c *course) play(engines int, to float64) {
	for ; c.at < to; c.at++ {
		p := Pass{At: c.at}
		for i := range engines {
			x := c.residual(i, c.at)
			x.Engine, x.Covered = name(i), engines > 1
			p.Engines = append(p.Engines, x)
		}
		var vs []Verdict
		c.s, vs = Step(c.s, p)
		c.note(vs)
		for _, v := range vs {
			if v.Kind == Suspect && c.probe != nil {
				i := int(v.Engine[1] - '0')
				e := c.probe(i, c.at)
				e.At, e.Engine, e.Covered = c.at, v.Engine, engines > 1
				c.s, vs = Step(c.s, e)
				c.note(vs)
			}
		}
	}
}

func (c *course) note(vs []Verdict) {
	for _, v := range vs {
		c.said = append(c.said, v.Engine+" "+string(v.Kind))
		if v.Kind == Eject && c.ejected != nil {
			c.ejected(int(v.Engine[1] - '0'))
		}
	}
}

func TestCourses(t *testing.T) {
	even := func(float64) float64 { return 1 }
	after := func(from, factor float64) func(float64) float64 {
		return func(at float64) float64 {
			if at > from {
				return factor
			}
			return 1
		}
	}
	failed := func(int, float64) Probe { return Probe{Failed: true} }
	well := func(int, float64) Probe { return Probe{Residual: 1} }
	for _, c := range []struct {
		name   string
		curves []func(float64) float64
		change func(*Params)
		probe  func(int, float64) Probe
		until  float64
		want   []string
	}{
		{name: "even", curves: []func(float64) float64{even, even, even}, until: 600},
		{name: "one slow, its probe fails", curves: []func(float64) float64{even, even, after(60, 3)}, probe: failed, until: 220, want: []string{"e2 probation", "e2 suspect", "e2 eject"}},
		{name: "one slow, its probe is slow", curves: []func(float64) float64{even, even, after(60, 3)}, probe: func(int, float64) Probe { return Probe{Residual: 2.9} }, until: 220,
			want: []string{"e2 probation", "e2 suspect", "e2 eject"}},
		{name: "its probe is well", curves: []func(float64) float64{even, even, after(60, 3)}, probe: well, until: 280,
			want: []string{"e2 probation", "e2 suspect", "e2 passed", "e2 suspect", "e2 passed"}},
		{name: "no probe ended", curves: []func(float64) float64{even, even, after(60, 3)}, until: 250, want: []string{"e2 probation", "e2 suspect", "e2 suspect"}},
		{name: "alone", curves: []func(float64) float64{after(60, 3)}, probe: failed, until: 600, want: []string{"e0 probation"}},
		{name: "of two", curves: []func(float64) float64{even, after(60, 3)}, probe: failed, until: 220, want: []string{"e1 probation", "e1 suspect", "e1 eject"}},
		{name: "slow from the start", curves: []func(float64) float64{even, even, after(-1, 3)}, probe: failed, until: 160, want: []string{"e2 probation", "e2 suspect", "e2 eject"}},
		{name: "all slow", curves: []func(float64) float64{after(60, 5), after(60, 5), after(60, 5)}, probe: failed, until: 600},
		{name: "all slow, one slower still", curves: []func(float64) float64{after(60, 3), after(60, 3), after(60, 6)}, probe: failed, until: 220,
			want: []string{"e2 probation", "e2 suspect", "e2 eject"}},
		{name: "all slow and no excuse", curves: []func(float64) float64{after(60, 5), after(60, 5)}, change: func(p *Params) { p.Relative = 0 }, until: 160,
			want: []string{"e0 probation", "e1 probation"}},
		{name: "one a minute", curves: []func(float64) float64{even, even, even, after(60, 3), after(60, 3)}, probe: failed, until: 250,
			want: []string{"e3 probation", "e4 probation", "e3 suspect", "e4 suspect", "e3 eject", "e4 kept", "e4 suspect", "e4 kept"}},
		{name: "well again", curves: []func(float64) float64{even, even, func(at float64) float64 {
			if at > 60 && at <= 160 {
				return 3
			}
			return 1
		}}, until: 400, want: []string{"e2 probation", "e2 recovered"}},
		{name: "idle on probation, probes are well", curves: []func(float64) float64{even, even, func(at float64) float64 {
			if at > 160 {
				return 0
			}
			return after(60, 3)(at)
		}}, probe: func(int, float64) Probe { return Probe{} }, until: 400, want: []string{"e2 probation", "e2 suspect", "e2 passed", "e2 suspect", "e2 passed", "e2 suspect", "e2 recovered"}},
		{name: "idle on probation, probes are slow", curves: []func(float64) float64{even, even, func(at float64) float64 {
			if at > 152 {
				return 0
			}
			return after(60, 3)(at)
		}}, probe: func(int, float64) Probe { return Probe{Residual: 3} }, until: 400, want: []string{"e2 probation", "e2 suspect", "e2 kept", "e2 suspect", "e2 eject"}},
		{name: "off", curves: []func(float64) float64{even, after(60, 9)}, change: func(p *Params) { p.Window = 0 }, until: 600},
	} {
		p := params()
		if c.change != nil {
			c.change(&p)
		}
		out := map[int]bool{}
		x := course{s: New(p), residual: func(i int, at float64) Sample { return Sample{Residual: c.curves[i](at), Out: out[i]} }}
		if c.probe != nil {
			x.probe, x.ejected = c.probe, func(i int) { out[i] = true }
		}
		x.play(len(c.curves), c.until)
		if !slices.Equal(x.said, c.want) {
			t.Errorf("%s: %q, want %q", c.name, x.said, c.want)
		}
	}
}

func TestPrefillsRestartTheWindow(t *testing.T) {
	x := course{s: New(params()), residual: func(_ int, at float64) Sample {
		return Sample{Residual: 9, Prefills: int(at)%20 == 0}
	}}
	x.play(2, 400)
	e := x.s.Of("e0")
	if e.Scored != 0 || e.Pauses != 20 || len(x.said) != 0 {
		t.Errorf("%+v, %q", e, x.said)
	}
}

func TestFewSamplesAreNoScore(t *testing.T) {
	x := course{s: New(params()), residual: func(_ int, at float64) (s Sample) {
		if int(at)%20 == 0 {
			s.Residual = 9
		}
		return s
	}}
	x.play(1, 301)
	if e := x.s.Of("e0"); e.Scored != 0 || e.Undersampled != 10 || len(x.said) != 0 {
		t.Errorf("%+v, %q", e, x.said)
	}
}

// An ejection forgets the windows and keeps the counts.
func TestEjectionForgets(t *testing.T) {
	out := false
	x := course{s: New(params()), residual: func(i int, _ float64) Sample { return Sample{Residual: float64(1 + 3*i), Out: out} }}
	x.play(2, 130)
	if e := x.s.Of("e1"); !e.Probation || e.Scored != 4 {
		t.Fatalf("%+v", e)
	}
	out = true
	x.play(2, 131)
	if e := x.s.Of("e1"); e.Probation || e.Scored != 4 || e.Score != 0 {
		t.Errorf("%+v", e)
	}
}

// What slows all engines alike ejects none, whatever it is and whenever each began, as long as
// a probe sees the same.
func TestACommonSlowdownEjectsNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		engines := rapid.IntRange(2, 6).Draw(t, "engines")
		speed := rapid.SliceOfN(rapid.Float64Range(0.5, 20), 10, 10).Draw(t, "slowdown")
		begins := rapid.SliceOfN(rapid.IntRange(0, 60), engines, engines).Draw(t, "begins")
		together := rapid.Bool().Draw(t, "together")
		at := func(at float64) float64 { return speed[int(at/90)%len(speed)] }
		x := course{s: New(params())}
		x.residual = func(i int, now float64) Sample {
			return Sample{Residual: at(now), Out: !together && now < float64(begins[i])}
		}
		x.probe = func(_ int, now float64) Probe { return Probe{Residual: at(now)} }
		x.play(engines, 900)
		for _, w := range x.said {
			if together || w[3:] == string(Eject) {
				t.Fatalf("%q", x.said)
			}
		}
	})
}

// An engine slower than its band beside even peers is put on probation in the windows that the
// parameters say, is ejected once its probe fails and not before, and recovers if it gets well.
func TestOneSlowEngineIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := params()
		p.Probation = rapid.IntRange(1, 4).Draw(t, "probation")
		p.Evict = p.Probation + rapid.IntRange(1, 4).Draw(t, "more")
		p.Recovery = rapid.IntRange(1, 4).Draw(t, "recovery")
		p.Band = rapid.Float64Range(1.2, 3).Draw(t, "band")
		engines := rapid.IntRange(2, 6).Draw(t, "engines")
		slow := rapid.IntRange(0, engines-1).Draw(t, "slow")
		factor := p.Band * rapid.Float64Range(1.05, 5).Draw(t, "factor")
		const began = 91 // after three windows
		until := began + 30*float64(p.Evict)
		well := rapid.Bool().Draw(t, "gets well")
		if well {
			until = began + 30*float64(p.Probation)
		}
		noise := rapid.SliceOfN(rapid.Float64Range(0.95, 1.02), 7, 7).Draw(t, "noise")
		ejected := false
		x := course{s: New(p)}
		x.residual = func(i int, at float64) Sample {
			r := noise[(int(at)+i)%len(noise)]
			if i == slow && at >= began && at < until {
				r *= factor
			}
			return Sample{Residual: r, Out: i == slow && ejected}
		}
		x.probe = func(int, float64) Probe { return Probe{Failed: true} }
		x.ejected = func(i int) { ejected = i == slow }
		x.play(engines, began+30*float64(p.Probation)+1)
		id := name(slow)
		if !x.s.Of(id).Probation || !slices.Equal(x.said, []string{id + " probation"}) {
			t.Fatalf("after %d windows: %q", p.Probation, x.said)
		}
		want := []string{id + " probation", id + " suspect", id + " eject"}
		if well {
			want = []string{id + " probation", id + " recovered"}
		}
		x.play(engines, began+30*float64(max(p.Evict, p.Probation+p.Recovery))+1)
		if !slices.Equal(x.said, want) {
			t.Fatalf("%q, want %q", x.said, want)
		}
	})
}

// Whatever is seen: an older state is never changed, only covered engines are ejected, each
// after a failed probe, and never more than the limit in a minute.
func TestWhateverIsSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := params()
		p.Window, p.Probation, p.Evict, p.MinSamples = 3, 1, 2, 1
		p.PerMinute = rapid.IntRange(1, 3).Draw(t, "most")
		s := New(p)
		var ejections []float64
		at := 0.0
		for range rapid.IntRange(1, 150).Draw(t, "passes") {
			at++
			e := Pass{At: at}
			for i := range 4 {
				x := Sample{Engine: name(i), Residual: rapid.SampledFrom([]float64{0, 1, 1, 2, 9}).Draw(t, "residual"),
					Prefills: rapid.IntRange(0, 20).Draw(t, "prefills") == 0, Covered: rapid.Bool().Draw(t, "covered")}
				e.Engines = append(e.Engines, x)
			}
			before := fmt.Sprintf("%+v", s)
			next, vs := Step(s, e)
			if got := fmt.Sprintf("%+v", s); got != before {
				t.Fatalf("the state before has changed: %s, %s", before, got)
			}
			s = next
			for _, v := range vs {
				if v.Kind == Eject {
					t.Fatalf("%+v without a probe", v)
				}
				if v.Kind != Suspect {
					continue
				}
				probe := Probe{At: at, Engine: v.Engine, Failed: rapid.Bool().Draw(t, "failed"), Covered: rapid.Bool().Draw(t, "still covered")}
				var said []Verdict
				s, said = Step(s, probe)
				if said[0].Kind == Eject {
					if !probe.Failed || !probe.Covered {
						t.Fatalf("%+v ejects", probe)
					}
					ejections = append(ejections, at)
				}
			}
			if n := len(ejections); n > p.PerMinute && ejections[n-1]-ejections[n-1-p.PerMinute] < 60 {
				t.Fatalf("ejections at %v", ejections)
			}
		}
	})
}

// A slow probe counts only beside something to compare it with.
func TestSlowProbes(t *testing.T) {
	for _, c := range []struct {
		residual, peer, relative float64
		want                     bool
	}{
		{3, 1, 1.5, true}, {3, 0, 1.5, false}, {3, 0, 0, true}, {3, 2.5, 1.5, false}, {1.9, 1, 1.5, false}, {0, 1, 1.5, false},
	} {
		p := params()
		p.Relative = c.relative
		if got := New(p).Slow(Probe{Engine: "e0", Residual: c.residual, Peer: c.peer}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
