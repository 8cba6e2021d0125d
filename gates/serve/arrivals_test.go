package serve

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// TestArrivals: as many as asked for, in order from 0, at the asked mean rate, with lengths
// within their bounds and at least the two output tokens that an SLO needs.
func TestArrivals(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trial := fleet.Trial{
			Trace: rapid.SampledFrom([]string{"azure", "azure-conv", "azure-code"}).Draw(rt, "trace"), Requests: rapid.IntRange(1, 100).Draw(rt, "requests"),
			InputTokens: rapid.SampledFrom([]int{0, 0, 100}).Draw(rt, "input"), OutputTokens: rapid.SampledFrom([]int{0, 0, 1, 16}).Draw(rt, "output"),
			MaxInput: rapid.SampledFrom([]int{0, 64, 512}).Draw(rt, "max input"), MaxOutput: rapid.SampledFrom([]int{0, 2, 64}).Draw(rt, "max output"),
		}
		rate := rapid.Float64Range(0.01, 500).Draw(rt, "rate")
		got, err := Arrivals(trial, rate)
		if err != nil {
			rt.Fatal(err)
		}
		if len(got) != trial.Requests {
			rt.Fatalf("%d arrivals, want %d", len(got), trial.Requests)
		}
		if got[0].At != 0 {
			rt.Fatalf("the first is due at %s", got[0].At)
		}
		for i, a := range got {
			if i > 0 && a.At < got[i-1].At {
				rt.Fatalf("arrival %d is due before the one before it", i)
			}
			switch {
			case trial.InputTokens > 0 && a.Input != trial.InputTokens, trial.InputTokens == 0 && trial.MaxInput > 0 && a.Input > trial.MaxInput, a.Output < 2:
				rt.Fatalf("arrival %+v of %+v", a, trial)
			case trial.OutputTokens > 2 && a.Output != trial.OutputTokens, trial.OutputTokens == 0 && trial.MaxOutput > 2 && a.Output > trial.MaxOutput:
				rt.Fatalf("arrival %+v of %+v", a, trial)
			}
		}
		if n := len(got); n > 1 {
			want := float64(n) / rate
			if last := got[n-1].At.Seconds(); math.Abs(last-want) > want*1e-6+1e-6 && last != float64(n-1)/rate {
				rt.Fatalf("%d at %g/s end after %g s, want %g s", n, rate, last, want)
			}
		}
	})
}

func TestArrivalsRefuses(t *testing.T) {
	good := fleet.Trial{Trace: "azure", Requests: 3}
	for name, c := range map[string]struct {
		change func(*fleet.Trial)
		rate   float64
	}{
		"another trace":   {func(x *fleet.Trial) { x.Trace = "../secret" }, 1},
		"no trace":        {func(x *fleet.Trial) { x.Trace = "" }, 1},
		"no request":      {func(x *fleet.Trial) { x.Requests = 0 }, 1},
		"less than none":  {func(x *fleet.Trial) { x.Requests = -1 }, 1},
		"no rate":         {func(*fleet.Trial) {}, 0},
		"a negative rate": {func(*fleet.Trial) {}, -1},
		"no number":       {func(*fleet.Trial) {}, math.NaN()},
		"at once":         {func(*fleet.Trial) {}, math.Inf(1)},
	} {
		x := good
		c.change(&x)
		if got, err := Arrivals(x, c.rate); err == nil {
			t.Errorf("%s: %d arrivals", name, len(got))
		}
	}
	many, err := Arrivals(fleet.Trial{Trace: "azure", Requests: 10_000_000}, 1)
	if err != nil || len(many) < 100 || len(many) > 100_000 {
		t.Errorf("more than the trace has: %d, %v", len(many), err)
	}
}

func TestTrialLimit(t *testing.T) {
	got := trialLimit(fleet.Trial{Requests: 100, Rates: []float64{1, 0.5, 0}})
	if want := 600*time.Second + 6*drainLimit + 5*time.Minute; got.D() != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDocument is what the router reads: no word of deploy, absolute paths, nothing else changed.
func TestDocument(t *testing.T) {
	f := testFleet()
	f.Profiles.Path, f.Recovery.StatePath = "profiles.json", "state.json"
	b, err := document(f, surface{name: "router", host: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]json.RawMessage
	var back fleet.Fleet
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if _, there := keys["deploy"]; there || back.Deploy != nil {
		t.Error("the router's document holds deploy")
	}
	if back.Profiles.Path != "/opt/n/router/profiles.json" || back.Recovery.StatePath != "/opt/n/router/state.json" || back.Model != f.Model || len(back.Engines) != len(f.Engines) {
		t.Errorf("document %s", b)
	}
	if f.Deploy == nil || f.Profiles.Path != "profiles.json" {
		t.Error("the caller's fleet was changed")
	}
}
