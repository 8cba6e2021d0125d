package bench

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func chat(t testing.TB) Mix {
	m, err := ParseMix("chat")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// moments are mean and coefficient of variation of the gaps.
func moments(a []Arrival) (m, cv float64) {
	var gaps []float64
	for i := 1; i < len(a); i++ {
		gaps = append(gaps, (a[i].At - a[i-1].At).Seconds())
	}
	m = mean(gaps)
	return m, math.Sqrt(variance(gaps)*float64(len(gaps))) / m
}

// Rates and shapes: the standard error of the mean gap is cv/√n, of the cv about twice that
// for the burstiest of these.
func TestProcesses(t *testing.T) {
	for _, c := range []struct {
		name string
		cv   float64
	}{{"even", 0}, {"poisson", 1}, {"gamma", 0.3}, {"gamma", 1}, {"gamma", 2}, {"gamma", 4}} {
		p, err := ParseProcess(c.name, c.cv)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(3) {
			const n = 40_000
			got, err := Load{Process: p, Phases: []Phase{{From: 25, To: 25, Mix: chat(t)}}, Requests: n, Seed: seed}.Generate()
			if err != nil || len(got) != n {
				t.Fatal(len(got), err)
			}
			m, cv := moments(got)
			if off := math.Abs(m*25 - 1); off > 5*c.cv/math.Sqrt(n)+1e-4 {
				t.Errorf("%s %g: mean gap %g s", c.name, c.cv, m)
			}
			if math.Abs(cv-c.cv) > 0.06*c.cv+1e-3 {
				t.Errorf("%s %g: cv %g", c.name, c.cv, cv)
			}
		}
	}
}

// A gamma process of cv 1 is a Poisson process: its gaps' distribution is exponential.
func TestGammaIsExponentialAtOne(t *testing.T) {
	p, err := ParseProcess("gamma", 1)
	if err != nil {
		t.Fatal(err)
	}
	r := stream(3, 3)
	v := make([]float64, 50_000)
	for i := range v {
		v[i] = p.gap(r)
	}
	slices.Sort(v)
	worst := 0.0 // Kolmogorov's distance; 1.95/√n is its 0.1 % point
	for i, x := range v {
		worst = math.Max(worst, math.Abs(1-math.Exp(-x)-float64(i)/float64(len(v))))
	}
	if limit := 1.95 / math.Sqrt(float64(len(v))); worst > limit {
		t.Errorf("distance %g, at most %g", worst, limit)
	}
}

// A ramp offers the integral of its rate, half of it by the moment that the integral says.
func TestRamp(t *testing.T) {
	for _, c := range []struct {
		from, to float64
		half     float64 // of the time, by which half of the requests are due
	}{{0, 100, math.Sqrt(0.5)}, {100, 0, 1 - math.Sqrt(0.5)}, {50, 50, 0.5}} {
		got, err := Load{Process: Process{Name: "even"}, Phases: []Phase{{c.from, c.to, 200 * time.Second, chat(t)}}}.Generate()
		want := (c.from + c.to) / 2 * 200
		if err != nil || math.Abs(float64(len(got))-want) > 1 {
			t.Fatalf("%g..%g: %d, want %g, %v", c.from, c.to, len(got), want, err)
		}
		if at := got[len(got)/2].At.Seconds() / 200; math.Abs(at-c.half) > 0.001 {
			t.Errorf("%g..%g: half by %g, want %g", c.from, c.to, at, c.half)
		}
	}
}

func TestPhasesFollowEachOther(t *testing.T) {
	short, err := ParseMix("short-chat")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load{Process: Process{"poisson", 1}, Phases: []Phase{{10, 10, time.Minute, chat(t)}, {0, 0, time.Minute, chat(t)}, {40, 40, time.Minute, short}}, Seed: 4}.Generate()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, a := range got {
		count[a.Class]++
		if in := a.At < time.Minute; in != (a.Class == "chat") || a.At > time.Minute && a.At < 2*time.Minute {
			t.Fatalf("%+v", a)
		}
	}
	if math.Abs(float64(count["chat"])-600) > 5*math.Sqrt(600) || math.Abs(float64(count["short-chat"])-2400) > 5*math.Sqrt(2400) {
		t.Error(count)
	}
}

// Equal loads give equal arrivals; arrivals are in order and within bounds; one seed's
// times do not depend on the mix.
func TestGenerateLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for _, c := range Classes() {
			names = append(names, c.Name)
		}
		mix := func(label string) Mix {
			var m Mix
			for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, len(names), rapid.ID).Draw(t, label) {
				for _, c := range Classes() {
					if c.Name == n {
						m = append(m, Share{c, rapid.Float64Range(0.1, 10).Draw(t, "weight")})
					}
				}
			}
			return m
		}
		l := Load{Process: rapid.SampledFrom([]Process{{"even", 0}, {"poisson", 1}, {"gamma", 0.2}, {"gamma", 5}}).Draw(t, "process"), Seed: rapid.Uint64().Draw(t, "seed")}
		total := time.Duration(0)
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			p := Phase{rapid.Float64Range(0, 50).Draw(t, "from"), rapid.Float64Range(0, 50).Draw(t, "to"), time.Duration(rapid.IntRange(1, 20_000).Draw(t, "for")) * time.Millisecond, mix("mix")}
			l.Phases, total = append(l.Phases, p), total+p.For
		}
		one, err := l.Generate()
		two, err2 := l.Generate()
		if (err == nil) != (err2 == nil) || !slices.Equal(one, two) {
			t.Fatal("the same load is not the same")
		}
		byName := map[string]Class{}
		for _, c := range Classes() {
			byName[c.Name] = c
		}
		last := time.Duration(0)
		for _, a := range one {
			c := byName[a.Class]
			own := a.Input - a.Prefix
			if a.At < last || a.At > total || own < c.Input.Min || own > c.Input.Max || a.Output < c.Output.Min || a.Output > c.Output.Max || (a.Family > 0) != (c.Families > 0) || a.Family > c.Families {
				t.Fatalf("%+v after %v", a, last)
			}
			last = a.At
		}
		for i := range l.Phases {
			l.Phases[i].Mix = mix("other mix")
		}
		other, _ := l.Generate()
		if !slices.EqualFunc(one, other, func(a, b Arrival) bool { return a.At == b.At }) {
			t.Fatal("another mix moves the times")
		}
	})
}

func TestMixWeights(t *testing.T) {
	m, err := ParseMix("chat=3,document=1")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, a := range Draw(m, 20_000, 5) {
		if a.Class == "chat" {
			n++
		}
	}
	if math.Abs(float64(n)-15_000) > 5*math.Sqrt(20_000*0.75*0.25) {
		t.Errorf("%d of 20,000 are chat", n)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"", "poems", "chat=0", "chat=-1", "chat=x", "chat=Inf", "chat,chat", "chat,"} {
		if m, err := ParseMix(s); err == nil {
			t.Errorf("mix %q: %+v", s, m)
		}
	}
	for _, s := range []string{"", "5", "5@", "@1m", "x@1m", "5..@1m", "-1@1m", "NaN@1m", "1e9@1m", "5@0s", "5@-1s", "5@9999h", "5@1m:poems"} {
		if p, err := ParsePhase(s, nil); err == nil {
			t.Errorf("phase %q: %+v", s, p)
		}
	}
	for _, cv := range []float64{0, -1, 21, math.NaN()} {
		if p, err := ParseProcess("gamma", cv); err == nil {
			t.Errorf("cv %g: %+v", cv, p)
		}
	}
}

func TestReplay(t *testing.T) {
	tr := Trace{Arrivals: []Arrival{{At: time.Second, Input: 10, Output: 5}, {At: 2 * time.Second, Input: 900, Output: 50}, {At: 5 * time.Second, Input: 20, Output: 0}}}
	got, err := tr.Replay(Replay{Rate: 4, MaxInput: 100, Output: 7})
	if err != nil || got[0].At != 0 || got[1].At != 125*time.Millisecond || got[2].At != 500*time.Millisecond || got[1].Input != 100 || got[2].Output != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = tr.Replay(Replay{Speed: 2, For: 2 * time.Second}); err != nil || len(got) != 2 || got[1].At != time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err = tr.Replay(Replay{For: time.Millisecond}); err == nil {
		t.Error("nothing is due")
	}
}

// What is written of arrivals reads back as the same requests.
func TestArrivalsReadBack(t *testing.T) {
	m, err := ParseMix("history,chat")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Load{Process: Process{"poisson", 1}, Phases: []Phase{{20, 20, 10 * time.Second, m}}}.Generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(bytesReader(FormatArrivals(want)), "")
	if err != nil || !slices.EqualFunc(got.Arrivals, want, func(a, b Arrival) bool {
		return (a.At-b.At).Abs() < time.Microsecond && a.Input == b.Input && a.Output == b.Output && a.Class == b.Class && a.Family == b.Family && a.Prefix == b.Prefix
	}) {
		t.Errorf("%v: %d, want %d", err, len(got.Arrivals), len(want))
	}
}
