package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

func TestMixed(t *testing.T) {
	for name, caching := range map[string]bool{"with a prefix cache": true, "without": false} {
		s := boot(t, func(c *simulated.Config) { c.PrefixCaching = caching })
		m, err := measure(limited(t), ProfileRequest{IID: "p0", URL: s.URL(), Dialect: "vllm", Model: "tiny", Seed: 1, Points: points})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Beside) < leastRounds || (len(m.Warm) >= leastRounds) != caching {
			t.Fatalf("%s: beside %+v, warm %+v", name, m.Beside, m.Warm)
		}
		for _, b := range m.Beside {
			if b.Requests != 4 || b.Tokens != 2048 || b.Seconds < 0.1 || b.Longest < 0.05 || b.Gap <= 0 || b.Gap > b.Longest {
				t.Errorf("%s: %+v", name, b)
			}
		}
		for _, w := range m.Warm {
			if w.Prefix != 1024 || w.Suffix != 64 || w.Hits != 1024 || w.Seconds <= 0 {
				t.Errorf("%s: %+v", name, w)
			}
		}
	}
}

// found judges measurements of d0 and returns codes, notes marked.
func found(t *testing.T, f fleet.Fleet, m Profiled) (codes []string) {
	t.Helper()
	for _, x := range judgeProfile(f, "d0", m) {
		codes = append(codes, x.Code+map[bool]string{true: " (note)"}[x.Note])
		if x.Hint == "" || x.Evidence == "" || !strings.Contains(x.Message, x.Got) {
			t.Errorf("finding %+v says too little", x)
		}
	}
	return codes
}

func TestJudgeMixed(t *testing.T) {
	for name, c := range map[string]struct {
		m    Profiled
		want []string
	}{
		"nothing":            {Profiled{}, nil},
		"bearable":           {Profiled{Beside: []Beside{{Requests: 4, KVTokens: 512, Tokens: 1024, Seconds: 0.3, Gap: 0.02, Longest: 0.1}}}, nil},
		"the prefill waits":  {Profiled{Beside: []Beside{{Requests: 4, KVTokens: 512, Tokens: 1024, Seconds: 1.3, Gap: 0.02}}}, []string{"interference (note)"}},
		"tokens are held up": {Profiled{Beside: []Beside{{Requests: 4, KVTokens: 512, Tokens: 1024, Seconds: 0.3, Gap: 0.06}}}, []string{"interference (note)"}},
		"a warm prefix":      {Profiled{Warm: []Warm{{Prefix: 512, Suffix: 64, Seconds: 0.02, Hits: 512}}}, nil},
		"no hits":            {Profiled{Warm: []Warm{{Prefix: 512, Suffix: 64, Seconds: 0.02}}}, []string{"prefix-cache-idle (note)"}},
		"hits that help not": {Profiled{Warm: []Warm{{Prefix: 512, Suffix: 64, Seconds: 0.2, Hits: 512}}}, []string{"prefix-cache-idle (note)"}},
	} {
		c.m.Samples = samples(0)
		if got := found(t, testFleet(), c.m); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSlowEngine finds one of three equal engines that is slower than the others.
func TestSlowEngine(t *testing.T) {
	f := testFleet()
	e := map[record.Key]any{}
	f.Engines = nil
	for i, iid := range []string{"a", "b", "c"} {
		f.Engines = append(f.Engines, fleet.Engine{IID: iid})
		f.Deploy.Engines[iid] = fleet.Place{Host: "h1", Launch: "l"}
		e[LookKey(iid)] = Looked{IID: iid, Models: []string{"tiny"}, PaceTokens: 2048, Pace: []float64{9, 0.2 + 0.2*float64(i/2)}}
	}
	codes := func() (out []string) {
		for _, x := range judgeLooks(view(t, f, e)) {
			out = append(out, x.Engine+" "+x.Code)
		}
		return out
	}
	if got := codes(); !slices.Equal(got, []string{"c slow-engine"}) {
		t.Errorf("found %v", got)
	}
	slow := samples(0)
	for i := range slow.Decode {
		slow.Decode[i].Gap *= 1.7
	}
	for _, c := range []struct {
		launch string
		want   []string
	}{{"l", []string{"c slow-decode"}}, {"slower", nil}} {
		f.Deploy.Engines["c"] = fleet.Place{Host: "h1", Launch: c.launch}
		var got []string
		for _, x := range judgePeers(view(t, f, e), map[string]Profiled{"a": {Samples: samples(0)}, "b": {Samples: samples(0)}, "c": {Samples: slow}}) {
			got = append(got, x.Engine+" "+x.Code)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("launch %s: found %v, want %v", c.launch, got, c.want)
		}
	}
	// Another launch is another pace.
	f.Deploy.Engines["c"] = fleet.Place{Host: "h1", Launch: "slower"}
	if got := codes(); len(got) > 0 {
		t.Errorf("found %v", got)
	}
}

func TestFirstTokens(t *testing.T) {
	f := testFleet()
	for _, c := range []struct {
		seen []float64
		want string
	}{
		{nil, ""},
		{[]float64{0.1, 0.5, 1.5}, ""},
		{[]float64{0.1, 2.1}, "note"},
		{[]float64{0.1, 1.9}, "note"}, // 1.2 · 1.9 + 0.5
		{[]float64{2.6, 0.1}, "fault"},
	} {
		got := ""
		for _, x := range judgeFirstTokens(f, c.seen) {
			if got = "fault"; x.Note {
				got = "note"
			}
			if x.Code != "first-token-deadline" || !strings.Contains(x.Hint, "first_token_timeout_s") {
				t.Errorf("%+v", x)
			}
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.seen, got, c.want)
		}
	}
}

// TestPaceDrifts notes an engine that slows down while it is measured.
func TestPaceDrifts(t *testing.T) {
	m := Profiled{Samples: samples(0)}
	m.Samples.Decode = nil
	for round := range 6 {
		for _, d := range samples(0).Decode {
			d.Gap *= 1 + 0.3*float64(round/3)
			m.Samples.Decode = append(m.Samples.Decode, d)
		}
	}
	if got := found(t, testFleet(), m); !slices.Equal(got, []string{"pace-drifted (note)"}) {
		t.Errorf("found %v", got)
	}
}

// TestTooNoisyToTell refuses to pass what nothing is known of.
func TestTooNoisyToTell(t *testing.T) {
	m := Profiled{Samples: samples(0)}
	m.Samples.Decode = nil
	for i, d := range samples(0).Decode {
		for k := range 4 {
			s := d
			s.Gap *= float64([]int{1, 1, 9, 9}[(k+i)%4])
			m.Samples.Decode = append(m.Samples.Decode, s)
		}
	}
	m.Samples.Decode[0].Gap *= 9
	if got := found(t, testFleet(), m); !slices.Contains(got, "profile-noisy") {
		t.Errorf("found %v", got)
	}
}

// TestSharedDevices keeps engines of one device out of each other's steps.
func TestSharedDevices(t *testing.T) {
	f := testFleet()
	f.Engines[0].SharedDevice, f.Engines[1].SharedDevice = &fleet.SharedDevice{Group: "gpu0"}, &fleet.SharedDevice{Group: "gpu0"}
	f.Deploy.Profile.LeaseDrill = true
	for _, e := range f.Engines {
		steps := engineSteps(f, e)
		if len(steps) != 4 {
			t.Errorf("%d steps", len(steps))
		}
		for _, s := range steps {
			if !slices.Equal(s.Exclusive, []string{"engine:" + e.IID, "device:gpu0"}) {
				t.Errorf("%s holds %v", s.ID, s.Exclusive)
			}
		}
	}
	if s := pairStep(f, "p0", "d0"); !slices.Equal(s.Exclusive, []string{"engine:p0", "device:gpu0", "engine:d0"}) {
		t.Errorf("the pair holds %v", s.Exclusive)
	}
	if keys := (Gate{}).Expect(f); !slices.Contains(keys, LeaseKey("p0")) {
		t.Errorf("expects %v", keys)
	}
}
