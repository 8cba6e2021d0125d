package simulate

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// busy is a load of chats and documents that eight engines bear with little to spare.
func busy() Config {
	var a []Arrival
	for i := range 6000 {
		at := float64(i) / 40
		if i%16 == 0 {
			a = append(a, Arrival{at, 6000 + i*37%6000, 30 + i%60, "doc"})
		} else {
			a = append(a, Arrival{at, 100 + i*17%900, 50 + i*7%300, "chat"})
		}
	}
	c := config(reference(), 4, 0.06, a...)
	c.thorough = false
	return c
}

// What the router does not know costs it little each: attainment under each trouble stands
// beside what it is without, and more of the same trouble is not a cliff.
func TestTroubleDegradesGracefully(t *testing.T) {
	play := func(change func(*Config)) float64 {
		c := busy()
		change(&c)
		return must(t, c).Arms[0].Attainment
	}
	well := play(func(*Config) {})
	for _, x := range []struct {
		name string
		cost float64 // at most, of attainment
		of   func(*Config)
	}{
		{"capped", 0.05, func(c *Config) { c.Trouble.Lengths = Capped }},
		{"uncapped", 0.05, func(c *Config) { c.Trouble.Lengths = Uncapped }},
		{"reports of 0.1 s", 0.05, func(c *Config) { c.Trouble.Report = 0.1 }},
		{"reports of 1 s", 0.05, func(c *Config) { c.Trouble.Report = 1 }},
		{"late and lost reports", 0.05, func(c *Config) { c.Trouble = Trouble{Report: 0.5, Late: 0.5, Lost: 0.3} }},
		{"skewed reports", 0.05, func(c *Config) { c.Trouble = Trouble{Report: 0.5, Skew: 0.5} }},
		{"a death", 0.10, func(c *Config) { c.Unlike, c.Trouble.Attempts = []Unlike{{Engine: 7, Dies: 60, Back: 90}}, 3 }},
	} {
		got := play(x.of)
		t.Logf("%s: %.4f of %.4f", x.name, got, well)
		if got < well-x.cost {
			t.Errorf("%s: %.4f, without it %.4f", x.name, got, well)
		}
	}
}

// A clock that is off is no trouble: reports are read against what it shows.
func TestSkewIsReadOff(t *testing.T) {
	play := func(skew float64) float64 {
		c := busy()
		c.Trouble = Trouble{Report: 0.5, Skew: skew}
		return must(t, c).Arms[0].Attainment
	}
	if with, without := play(20), play(0); math.Abs(with-without) > 0.002 {
		t.Errorf("attainment %.4f with clocks up to 20 s off, %.4f without", with, without)
	}
}

// Trouble leaves the same seed the same bytes, another seed other ones, and no trouble the
// result that there was.
func TestTroubleIsDrawnBySeed(t *testing.T) {
	play := func(seed uint64, x Trouble) string {
		c := busy()
		c.Arrivals, c.Seed, c.Trouble = c.Arrivals[:1500], seed, x
		b, err := json.Marshal(must(t, c))
		return fmt.Sprint(string(b), err)
	}
	x := Trouble{Lengths: Capped, Report: 0.3, Late: 0.2, Lost: 0.2, Skew: 0.1}
	once, again := play(1, x), play(1, x)
	if once != again || once == play(2, x) || once == play(1, Trouble{}) {
		t.Error("the seed does not decide")
	}
}

// An engine that was away serves again, and who had no token yet is served all the same; who
// had one is lost.
func TestDeathAndReturn(t *testing.T) {
	m := Model{Engines: 3, PrefillAtStart: 1, Prefill: Prefill{B: 0.001}, Decode: Decode{C: 0.01}, MaxRunning: 8, KVTokens: 10000}
	play := func(attempts int, back float64) Arm {
		var a []Arrival
		for i := range 160 {
			a = append(a, Arrival{float64(i) / 20, 10, 60, "x"})
		}
		c := config(m, 1, 0.02, a...)
		c.Control.MinPrefill, c.Interval = 1, 0.1
		c.Unlike = []Unlike{{Engine: 1, Dies: 2, Back: back}, {Engine: 2, Dies: 2, Back: back}}
		c.Trouble.Attempts = attempts
		c.Control.Advisory = true
		return must(t, c).Arms[0]
	}
	once, thrice, gone := play(0, 3), play(3, 3), play(3, 0)
	if once.Failed == 0 || thrice.Failed > once.Failed || thrice.Qualified < once.Qualified {
		t.Errorf("once %+v, thrice %+v", once, thrice)
	}
	if gone.Qualified >= thrice.Qualified {
		t.Errorf("away for good %+v, away for a second %+v", gone, thrice)
	}
}

func TestRefusedTrouble(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`lengths are "x"`:      func(c *Config) { c.Trouble.Lengths = "x" },
		"there are none":       func(c *Config) { c.Trouble.Lost = 0.1 },
		"want a share below 1": func(c *Config) { c.Trouble = Trouble{Report: 1, Lost: 1} },
		"late is -1":           func(c *Config) { c.Trouble = Trouble{Report: 1, Late: -1} },
		"at least a milli":     func(c *Config) { c.Trouble.Report = 1e-6 },
		"attempts is -1":       func(c *Config) { c.Trouble.Attempts = -1 },
		"after it died":        func(c *Config) { c.Unlike = []Unlike{{Engine: 1, Dies: 3, Back: 2}} },
	} {
		c := busy()
		change(&c)
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Whatever goes wrong together, no invariant breaks and each request has one end.
func TestRandomTrouble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Model{Engines: rapid.IntRange(2, 4).Draw(t, "engines"), PrefillAtStart: 1, Prefill: Prefill{1e-7, 1e-3, 0.001}, Decode: Decode{0.01, 0.002, 1e-6},
			MaxRunning: rapid.IntRange(1, 6).Draw(t, "running"), KVTokens: rapid.IntRange(400, 2000).Draw(t, "kv"), Transfer: Transfer{0.004, 1e-6}}
		at, arrivals := 0.0, []Arrival{}
		for range rapid.IntRange(1, 80).Draw(t, "n") {
			at += float64(rapid.IntRange(0, 60).Draw(t, "gap")) / 1000
			arrivals = append(arrivals, Arrival{at, rapid.IntRange(0, 300).Draw(t, "in"), rapid.IntRange(0, 30).Draw(t, "out"), "x"})
		}
		c := config(m, float64(rapid.IntRange(1, 20).Draw(t, "ttft"))/10, float64(rapid.IntRange(10, 40).Draw(t, "tpot"))/1000, arrivals...)
		c.Seed, c.Policies = rapid.Uint64().Draw(t, "seed"), PolicyNames()
		c.Interval, c.Control.Step, c.Control.EvidenceSpan, c.Control.Cooldown = 0.1, 0.1, 0.2, 0.1
		c.Trouble = Trouble{Lengths: rapid.SampledFrom([]string{Exactly, Capped, Uncapped}).Draw(t, "lengths"), Attempts: rapid.IntRange(0, 3).Draw(t, "attempts")}
		if rapid.Bool().Draw(t, "reports") {
			c.Trouble.Report, c.Trouble.Late = float64(rapid.IntRange(1, 40).Draw(t, "report"))/100, float64(rapid.IntRange(0, 40).Draw(t, "late"))/100
			c.Trouble.Lost, c.Trouble.Skew = float64(rapid.IntRange(0, 9).Draw(t, "lost"))/10, float64(rapid.IntRange(0, 20).Draw(t, "skew"))/10
		}
		for i := range m.Engines {
			if dies := rapid.IntRange(0, 20).Draw(t, "dies"); dies > 0 {
				u := Unlike{Engine: i, Dies: float64(dies) / 10}
				if rapid.Bool().Draw(t, "returns") {
					u.Back = u.Dies + float64(rapid.IntRange(1, 10).Draw(t, "away"))/10
				}
				c.Unlike = append(c.Unlike, u)
			}
		}
		if rapid.Bool().Draw(t, "topologies") {
			c.Topologies, c.Relaunch = []string{Aggregated, Static, ColdSwap, HotSwap}, 0.5
		}
		for _, a := range must2(t, c).Arms {
			if a.Qualified+a.Refused+a.Failed > len(arrivals) {
				t.Fatalf("%+v of %d", a, len(arrivals))
			}
		}
	})
}
