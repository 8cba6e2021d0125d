package profile

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func near(a, b float64) bool {
	return math.Abs(a-b) <= 1e-6*math.Max(1e-9, math.Max(math.Abs(a), math.Abs(b)))
}

func sampled(c Curve) Samples {
	var s Samples
	for _, n := range []int{64, 256, 1024, 4096, 8192} {
		s.Prefill = append(s.Prefill, PrefillSample{n, c.Prefill(n)})
	}
	for _, r := range []int{1, 4, 16} {
		for _, x := range []int{128, 1024, 4096} {
			s.Decode = append(s.Decode, DecodeSample{r, r * x, c.Interval(r, r*x)})
		}
	}
	return s
}

func TestFitFindsTheCurveThatMadeTheSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Curve{
			A: rapid.SampledFrom([]float64{0, 1e-9, 6e-9, 1e-8}).Draw(t, "a"), B: rapid.Float64Range(1e-6, 1e-3).Draw(t, "b"), C: rapid.Float64Range(1e-4, 0.1).Draw(t, "c"),
			Slope: rapid.SampledFrom([]float64{0, 1e-7, 3e-7}).Draw(t, "s"), RequestSlope: rapid.SampledFrom([]float64{0, 1e-4, 1e-3}).Draw(t, "q"), Intercept: rapid.Float64Range(1e-3, 0.05).Draw(t, "o")}
		got, rep, err := Fit(sampled(want))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{64, 700, 8192} {
			if !near(got.Prefill(n), want.Prefill(n)) {
				t.Fatalf("prefill(%d) = %g, want %g", n, got.Prefill(n), want.Prefill(n))
			}
		}
		if !near(got.Interval(8, 9000), want.Interval(8, 9000)) {
			t.Fatalf("interval = %g, want %g", got.Interval(8, 9000), want.Interval(8, 9000))
		}
		if rep.Prefill.MAPE > 1e-6 || rep.DecodeCV > 1e-6 {
			t.Fatalf("residuals of exact samples: %+v", rep)
		}
	})
}

func TestFitNeverReturnsNegativeCoefficients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sampled(Curve{B: 1e-4, C: 0.01, RequestSlope: 1e-4, Slope: 1e-7, Intercept: 0.01})
		for i := range s.Prefill {
			s.Prefill[i].Seconds *= rapid.Float64Range(0.9, 1.1).Draw(t, "noise")
		}
		for i := range s.Decode {
			s.Decode[i].Gap *= rapid.Float64Range(0.7, 1.3).Draw(t, "noise")
		}
		c, rep, err := Fit(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []float64{c.A, c.B, c.C, c.Slope, c.RequestSlope, c.Intercept} {
			if v < 0 || math.IsNaN(v) {
				t.Fatalf("coefficient %g in %+v", v, c)
			}
		}
		if rep.Prefill.P50 > rep.Prefill.P95 || rep.Prefill.MAPE > rep.Prefill.Max {
			t.Fatalf("residuals out of order: %+v", rep.Prefill)
		}
	})
}

func TestFitRefuses(t *testing.T) {
	good := sampled(Curve{B: 1e-4, C: 0.01, RequestSlope: 1e-4, Slope: 1e-7, Intercept: 0.01})
	for name, c := range map[string]struct {
		change func(*Samples)
		want   error
	}{
		"two lengths":    {func(s *Samples) { s.Prefill = s.Prefill[:2] }, ErrSamples},
		"three cells":    {func(s *Samples) { s.Decode = s.Decode[:3] }, ErrSamples},
		"one batch size": {func(s *Samples) { s.Decode = append(s.Decode[:3:3], DecodeSample{1, 9000, 0.1}) }, ErrSamples},
		"a wild prefill": {func(s *Samples) { s.Prefill[1].Seconds *= 40 }, ErrShape},
		"zero time":      {func(s *Samples) { s.Prefill[0].Seconds = 0 }, nil},
		"NaN gap":        {func(s *Samples) { s.Decode[0].Gap = math.NaN() }, nil},
	} {
		s := Samples{append([]PrefillSample{}, good.Prefill...), append([]DecodeSample{}, good.Decode...)}
		c.change(&s)
		_, _, err := Fit(s)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRoughKeepsNoise fits what Fit refuses for the errors of its prefills, and the same otherwise.
func TestRoughKeepsNoise(t *testing.T) {
	s := sampled(Curve{B: 1e-4, C: 0.01, RequestSlope: 1e-4, Slope: 1e-7, Intercept: 0.01})
	want, rep, err := Fit(s)
	got, rough, rerr := Rough(s)
	if err != nil || rerr != nil || got != want || rough != rep || !rough.PrefillFits() {
		t.Errorf("of good samples: %+v, %v and %+v, %v", want, err, got, rerr)
	}
	s.Prefill[1].Seconds *= 40
	if got, rep, err := Rough(s); err != nil || got.MaxRequests != want.MaxRequests || rep.PrefillFits() {
		t.Errorf("of a wild prefill: %+v, %+v, %v", got, rep, err)
	}
	s.Prefill = s.Prefill[:2]
	if _, _, err := Rough(s); !errors.Is(err, ErrSamples) {
		t.Errorf("of two lengths: %v", err)
	}
}

func TestCurve(t *testing.T) {
	c := Curve{A: 1e-8, B: 5e-5, C: 0.01, PrefillMin: 16, BlockTokens: 2048, Split: 0.004, Slope: 1e-7, RequestSlope: 1e-4, Intercept: 0.005, MaxRequests: 64, MaxKVTokens: 300000}
	for n, want := range map[int]float64{22: 0.01110484, 4: 0.01080256, 4096: 1e-8*4096*4096 + 5e-5*4096 + 0.01, 4097: 1e-8*4097*4097 + 5e-5*4097 + 0.014} {
		if got := c.Prefill(n); !near(got, want) {
			t.Errorf("prefill(%d) = %.8f, want %.8f", n, got, want)
		}
	}
	if g, j := c.Batch(1000, 0.0152); g != 51 || !near(j, 0.0152) {
		t.Errorf("batch = %d at %g", g, j)
	}
	if g, _ := c.Batch(1000, 0.004); g != 0 {
		t.Errorf("batch within a target below the intercept = %d", g)
	}
	if got := c.RequestLimit(100000); got != 3 {
		t.Errorf("request limit = %d", got)
	}
}

func TestStoreReadsTheReferencesFile(t *testing.T) {
	b, err := os.ReadFile("testdata/reference-profiles.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ReadStore(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r, ok := s.Row("p0")
	if !ok || !r.Bound("sha256:d6158eaba01271147ddb6b42d43af7ebaaceae20fce4e82f4aa3609e0a038f11") || r.Bound("") || r.Curve().MaxRequests != 64 {
		t.Fatalf("row %+v", r)
	}
	out, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadStore(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	again2, err := again.Encode()
	if err != nil || !bytes.Equal(out, again2) {
		t.Fatalf("encoding is not stable: %v\n%s", err, cmp.Diff(string(out), string(again2)))
	}
}

func TestRowKeepsItsCurve(t *testing.T) {
	c := Curve{A: 1, B: 2, C: 3, BlockTokens: 4, Split: 5, PrefillMin: 6, PrefillMax: 7, Slope: 8, RequestSlope: 9, Intercept: 10, MinRequests: 1, MaxRequests: 2, MinKVTokens: 3, MaxKVTokens: 4, KVCapacity: 5}
	if got := NewRow("e", "", c, Report{}).Curve(); got != c {
		t.Error(cmp.Diff(c, got))
	}
}

func TestStoreRefuses(t *testing.T) {
	row := `"iid":"e","generation_digest":null,"ttft_a":0,"ttft_b":0.1,"ttft_c":0,"tpot_slope":1,"tpot_intercept":0,"decode_min_requests":1,"decode_max_requests":2,"decode_min_kv_tokens":1,"decode_max_kv_tokens":9,"decode_fit_mape":0,"decode_cv_mape":0`
	doc := func(rows string) string {
		return `{"schema":"narwhal.profiles","schema_version":1,"meta":{},"profiles":[` + rows + `]}`
	}
	if _, err := ReadStore(strings.NewReader(doc("{" + row + "}"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"version":         strings.Replace(doc(""), "version\":1", "version\":2", 1),
		"unknown top key": strings.Replace(doc(""), `"meta"`, `"extra":1,"meta"`, 1),
		"unknown field":   doc("{" + row + `,"color":1}`),
		"twice":           doc("{" + row + "},{" + row + "}"),
		"negative":        doc(strings.Replace("{"+row+"}", `"ttft_a":0`, `"ttft_a":-1`, 1)),
		"bad digest":      doc(strings.Replace("{"+row+"}", `null`, `"sha256:xyz"`, 1)),
		"half a split":    doc("{" + row + `,"ttft_split":0.1}`),
		"capacity":        doc("{" + row + `,"kv_capacity_tokens":3}`),
		"trailing":        doc("") + "{}",
		"torn":            doc("")[:30],
	} {
		if _, err := ReadStore(strings.NewReader(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzReadStore(f *testing.F) {
	b, err := os.ReadFile("testdata/reference-profiles.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema":"narwhal.profiles","schema_version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadStore(bytes.NewReader(b))
		if err != nil {
			return
		}
		if _, err := s.Encode(); err != nil {
			t.Fatalf("a store that reads does not write: %v", err)
		}
	})
}

// A cached head never makes a prefill dearer, and what is left costs at least what it costs alone.
func TestWarmLiesBetweenTailAndWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Curve{A: rapid.Float64Range(0, 1e-8).Draw(t, "a"), B: rapid.Float64Range(0, 1e-4).Draw(t, "b"), C: rapid.Float64Range(0, 0.01).Draw(t, "c"),
			PrefillMin: rapid.IntRange(0, 200).Draw(t, "least")}
		n := rapid.IntRange(1, 20000).Draw(t, "n")
		cached := rapid.IntRange(0, n-1).Draw(t, "cached")
		less := rapid.IntRange(0, cached).Draw(t, "less")
		got, whole, tail := c.Warm(n, cached), c.Prefill(n), c.Prefill(n-cached)
		if got < tail || got < c.Prefill(0) || got > whole*(1+1e-12) {
			t.Fatalf("%v, tail %v, whole %v", got, tail, whole)
		}
		if c.PrefillMin == 0 && got > c.Warm(n, less)*(1+1e-12) {
			t.Fatalf("%d cached: %v, %d cached: %v", cached, got, less, c.Warm(n, less))
		}
		if c.Warm(n, 0) != whole {
			t.Fatal("nothing is cached")
		}
		if want := whole - c.Prefill(cached) + c.Prefill(0); c.PrefillMin == 0 && math.Abs(got-want) > 1e-9 {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
