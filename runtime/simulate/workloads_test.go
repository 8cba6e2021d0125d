package simulate

import (
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"os"
	"strconv"
	"testing"
)

// workload reads one of testdata/workloads.
func workload(t testing.TB, name string) Config {
	t.Helper()
	b, err := os.ReadFile("testdata/workloads/index.json")
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Model     Model
		Workloads map[string]struct {
			File, Score string
			SLO         struct {
				TTFT float64 `json:"ttft_s"`
				TPOT float64 `json:"tpot_s"`
			}
		}
	}
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	w := index.Workloads[name]
	c := Defaults(w.SLO.TTFT, w.SLO.TPOT)
	c.Workload, c.Model, c.Score, c.Seed = name, index.Model, w.Score, 1
	f, err := os.Open("testdata/workloads/" + w.File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows[1:] {
		at, err := strconv.ParseFloat(r[0], 64)
		in, err2 := strconv.Atoi(r[1])
		out, err3 := strconv.Atoi(r[2])
		if err != nil || err2 != nil || err3 != nil {
			t.Fatal(r)
		}
		c.Arrivals = append(c.Arrivals, Arrival{at, in, out, r[3]})
	}
	return c
}

// played is one arm's world at its end.
func played(t testing.TB, c Config, policyName string) *world {
	t.Helper()
	c.index()
	p, err := parsePolicy(policyName, c.Model.Engines)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(&c, p)
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) class(name string) *tally {
	for i, c := range w.c.classes {
		if c == name {
			return &w.tallies[i]
		}
	}
	return &tally{}
}

// One configuration serves every workload: as many as are named qualify, also on engines that
// are slower than their profile says.
func TestDefaultPolicyReachesItsMarks(t *testing.T) {
	for _, c := range []struct {
		name  string
		slow  float64
		least int
		class string // one that must not be sacrificed
		share float64
	}{
		{"even-below", 1, 3564, "", 0}, {"even-at", 1, 5338, "", 0}, {"even-above", 1, 5400, "", 0}, {"even-above", 1.02, 5200, "", 0},
		{"burst", 1, 10500, "", 0}, {"burst", 1.02, 10400, "", 0},
		{"chatdoc-100", 1, 23028, "doc", 0.80}, {"chatdoc-100", 1.02, 22900, "doc", 0.78},
		{"azure-x4", 1, 11193, "code", 0.77}, {"azure-x4", 1.02, 11100, "code", 0.76},
	} {
		cfg := workload(t, c.name)
		cfg.Slow = c.slow
		w := played(t, cfg, "default")
		a := w.score()
		t.Logf("%s %.2f: %d qualify, of %s %d, %d moves", c.name, c.slow, a.Qualified, c.class, w.class(c.class).qualified, a.Moves)
		if a.Qualified < c.least {
			t.Errorf("%s, engines %.2f times slower: %d qualify, want at least %d", c.name, c.slow, a.Qualified, c.least)
		}
		if k := w.class(c.class); c.class != "" && float64(k.qualified) < c.share*float64(k.offered) {
			t.Errorf("%s, engines %.2f times slower: of %s %d of %d qualify, want %.0f %%", c.name, c.slow, c.class, k.qualified, k.offered, 100*c.share)
		}
	}
	cfg := workload(t, "chatdoc-100")
	chat := played(t, cfg, "default").class("chat")
	if p := chat.ttft.percentiles(); *p.P50 >= 500 {
		t.Errorf("half of the chats wait %.0f ms and more for their first token", *p.P50)
	}
}

// A profile that is wrong by some per cent costs about as much as the engines are slower: no
// cliff. Each step of 1 % in speed changes what qualifies by less than 2.5 % of the offers.
func TestNoCliffOverEngineSpeed(t *testing.T) {
	for _, name := range []string{"even-above", "burst", "chatdoc-100", "azure-x4"} {
		cfg := workload(t, name)
		before := 0.0
		for slow := 0.90; slow < 1.105; slow += 0.01 {
			cfg.Slow = slow
			a := played(t, cfg, "default").score()
			if before > 0 && (before-a.Attainment > 0.025 || a.Attainment-before > 0.015) {
				t.Errorf("%s: %.2f %% at %.2f times the time, %.2f %% a step before", name, 100*a.Attainment, slow, 100*before)
			}
			before = a.Attainment
		}
	}
}
