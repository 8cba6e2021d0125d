package fabric

import (
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestHeat says in words what its colours say, for each state of an edge.
func TestHeat(t *testing.T) {
	f := testFleet(5)
	e := good(t, f)
	change(e, "h0", "h1", slow(3))
	change(e, "h1", "h2", slow(6.3))
	change(e, "h2", "h3", func(_ *Pair, d *Direction) { d.Arrived = 1980 })
	change(e, "h3", "h4", func(_ *Pair, d *Direction) { d.PathMTU = 1500 })
	change(e, "h0", "h4", func(p *Pair, _ *Direction) { *p = Pair{Unreachable: "no <b>route"} })
	delete(e, record.Key("D/pair/h1/h3"))
	h := HeatOf(view(t, f, e))
	if len(h.Rows) != 5 || len(h.Hosts) != 5 || len(h.Incast) != 5 || len(h.Outliers) < 5 || h.Usual < 8 || h.Floor != 4 {
		t.Fatalf("%d rows, %d incasts, %d outliers, usual %g", len(h.Rows), len(h.Incast), len(h.Outliers), h.Usual)
	}
	cell := func(a, b int) Cell { return h.Rows[a].Cells[b] }
	for at, want := range map[[2]int][2]string{
		{0, 1}: {"bad", "below floor"}, {1, 2}: {"low", "−31 %"}, {2, 3}: {"bad", "20 lost"}, {3, 4}: {"bad", "cut at 1500 B"}, {0, 4}: {"bad", "unreachable"},
		{4, 0}: {"bad", "unreachable"}, {1, 3}: {"none", ""}, {2, 2}: {"self", ""}, {1, 0}: {"good", ""},
	} {
		c := cell(at[0], at[1])
		if c.State != want[0] || !strings.Contains(c.Marks, want[1]) || c.Text == "" || c.Label == "" || !strings.Contains(c.Label, c.Marks) {
			t.Errorf("%v: %+v, want %v", at, c, want)
		}
	}
	if h := HeatOf(view(t, f, map[record.Key]any{budgetKey: Budget{}})); h.Rows != nil {
		t.Errorf("a picture of nothing: %+v", h)
	}
}
