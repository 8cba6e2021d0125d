package bench

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// An interval of 95 % holds the truth in about that share of series, also where values that
// follow each other hang together as requests in a queue do.
func TestIntervalsCover(t *testing.T) {
	const series, n = 400, 2000
	r := rand.New(rand.NewPCG(1, 1))
	correlated := func(phi float64) []float64 {
		v, x := make([]float64, n), 0.0
		for i := range v {
			x = phi*x + math.Sqrt(1-phi*phi)*r.NormFloat64()
			v[i] = x
		}
		return v
	}
	for _, phi := range []float64{0, 0.9} {
		held, apart := 0, 0
		for range series {
			a, b := correlated(phi), correlated(phi)
			if i, ok := meanInterval(a); ok && i.Low <= 0 && i.High >= 0 {
				held++
			}
			if i, ok := differenceInterval(a, b); ok && !i.Distinct() {
				apart++
			}
		}
		// Three standard errors of a share of 400 around 95 % are 3.3 points; correlated
		// series may fall short by two more.
		for _, n := range []int{held, apart} {
			if share := float64(n) / series; share < 0.95-0.033-0.02*phi || share > 0.95+0.033 {
				t.Errorf("correlation %g: %g of the intervals hold the truth", phi, share)
			}
		}
	}
}

func TestPairedQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	a, b, same := make([]float64, 1000), make([]float64, 1000), 0
	for i := range a {
		a[i] = r.ExpFloat64()
		b[i] = a[i] + 0.5
	}
	if i, ok := pairedQuantile(a, b, 0.95); !ok || math.Abs(i.Value-0.5) > 1e-9 || math.Abs(i.Low-0.5) > 1e-9 || math.Abs(i.High-0.5) > 1e-9 {
		t.Errorf("%+v", i)
	}
	for range 40 {
		for i := range a {
			a[i], b[i] = r.ExpFloat64(), r.ExpFloat64()
		}
		if i, ok := pairedQuantile(a, b, 0.95); ok && !i.Distinct() {
			same++
		}
	}
	if same < 33 { // 38 are expected; fewer than 33 come once in 500
		t.Errorf("%d of 40 hold zero", same)
	}
	if _, ok := pairedQuantile(a[:least-1], b[:least-1], 0.95); ok {
		t.Error("too few are enough")
	}
}

// folderOf is a run of one point in which the requests that good names keep the promise.
func folderOf(id string, n int, offers string, good func(int) bool) *Folder {
	f := &Folder{State: StateComplete, Manifest: Manifest{ID: id, SLO: SLO{1, 0.1}, Salt: "s"}}
	p := PointData{State: StateComplete, Info: PointInfo{Label: "p", Offers: offers}, Arrivals: make([]Arrival, n)}
	for i := range n {
		first, gap := 0.5, 0.01
		if !good(i) {
			first = 2
		}
		p.Rows = append(p.Rows, Row{Index: i, Class: "c", Sent: true, Completed: true, OutputTokens: 5, TTFT: &first, TPOT: &gap, Outcome: OutcomeCompleted})
	}
	f.Points = []PointData{p}
	return f
}

func TestCompareVerdicts(t *testing.T) {
	none := func(int) bool { return false }
	all := func(int) bool { return true }
	every := func(k int) func(int) bool { return func(i int) bool { return i%k != 0 } }
	for _, c := range []struct {
		name   string
		a, b   *Folder
		paired bool
		want   string
	}{
		{"the same", folderOf("a", 400, "x", every(10)), folderOf("b", 400, "x", every(10)), true, NotDistin},
		{"better", folderOf("a", 400, "x", every(3)), folderOf("b", 400, "x", every(20)), true, Better},
		{"worse", folderOf("a", 400, "x", all), folderOf("b", 400, "x", every(5)), true, Worse},
		{"one more", folderOf("a", 400, "x", all), folderOf("b", 400, "x", func(i int) bool { return i != 7 }), true, NotDistin},
		{"few", folderOf("a", 39, "x", all), folderOf("b", 39, "x", none), true, TooFew},
		{"apart", folderOf("a", 400, "x", none), folderOf("b", 500, "y", all), false, Better},
		{"apart, alike", folderOf("a", 400, "x", every(4)), folderOf("b", 500, "y", every(4)), false, NotDistin},
	} {
		d, err := Compare(c.a, c.b)
		if err != nil || d.All.Verdict != c.want || d.All.Paired != c.paired || len(d.ByClass) != 1 || d.Method == "" {
			t.Errorf("%s: %+v, %v", c.name, d.All, err)
		}
		if i := d.All.Attainment; i != nil && (i.Value < i.Low || i.Value > i.High) {
			t.Errorf("%s: %+v", c.name, i)
		}
	}
}

// Runs that tell no whole story are compared with a word of caution.
func TestCompareCautions(t *testing.T) {
	all := func(int) bool { return true }
	a, b := folderOf("a", 100, "x", all), folderOf("b", 100, "x", all)
	b.State, b.Manifest.SLO, b.Manifest.Salt = StatePartial, SLO{2, 0.2}, "z"
	b.Points[0].Rows = b.Points[0].Rows[:60]
	d, err := Compare(a, b)
	if err != nil || d.All.OfferedA != 60 || !d.All.Paired {
		t.Fatalf("%+v, %v", d.All, err)
	}
	text := strings.Join(d.Cautions, "\n")
	for _, want := range []string{"repeat both", "other promises", "b is partial", "--salt"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	// No pair differs: the interval is three over their number, not nothing.
	if i := d.All.Attainment; i.Low != -0.05 || i.High != 0.05 {
		t.Errorf("%+v", i)
	}
	// A damaged row cannot take a pair apart.
	b.Points[0].Rows[5].Class = "another"
	if d, err := Compare(a, b); err != nil || len(d.ByClass) != 1 || d.ByClass[0].OfferedB != 60 {
		t.Errorf("%+v, %v", d.ByClass, err)
	}
	if _, err := Compare(a, &Folder{}); err == nil {
		t.Error("a run without a point is compared")
	}
}

func TestStudent(t *testing.T) {
	for df, want := range map[float64]float64{1: 12.706, 19: 2.093, 19.9: 2.093, 30: 2.042, 31: 2.040, 60: 2.000, 120: 1.980, 1e9: 1.960} {
		if got := tPoint(df); math.Abs(got-want) > 0.003 {
			t.Errorf("%g degrees of freedom: %g, want %g", df, got, want)
		}
	}
}
