package router

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBudget(t *testing.T) {
	for name, c := range map[string]struct {
		budget   budget
		requests int
		want     int // retries of one cause at once
	}{
		"small traffic has a floor": {newBudget(10, 0.1), 0, 10},
		"up to the share":           {newBudget(10, 0.1), 50, 10},
		"then the share":            {newBudget(10, 0.1), 200, 40},
		"share 0":                   {newBudget(3, 0), 1000, 3},
		"budget 0":                  {newBudget(0, 1), 1000, 0},
	} {
		b := c.budget
		for range c.requests {
			b.sent(1)
		}
		got := 0
		for _, ok := b.take("stream", 1); ok; _, ok = b.take("stream", 1) {
			got++
		}
		if got != c.want {
			t.Errorf("%s: %d retries, want %d", name, got, c.want)
		}
	}
}

func TestBudgetForgetsAndGivesBack(t *testing.T) {
	b := newBudget(2, 0)
	g, _ := b.take("overload", 3)
	if _, ok := b.take("overload", 3); !ok || b.least(3) != 0 {
		t.Fatal("two are granted")
	}
	if _, ok := b.take("overload", 12.9); ok {
		t.Error("a third is granted within the span")
	}
	if _, ok := b.take("stream", 12.9); !ok {
		t.Error("another cause is refused")
	}
	b.giveBack(g)
	if b.least(12.9) != 1 || b.left("overload", 12.9) != 1 {
		t.Errorf("left %v", b.left("overload", 12.9))
	}
	if b.least(13) != 1 || b.left("overload", 13) != 2 {
		t.Errorf("left %v after the span", b.left("overload", 13))
	}
	b.giveBack(g) // of a part that is gone
	if b.left("overload", 13) != 2 || b.least(1e6) != 2 {
		t.Errorf("left %v", b.left("overload", 13))
	}
}

// A sustained share of failing requests below the budget is never refused, what one cause takes
// never exceeds its bound over the span, and no cause takes from another.
func TestBudgetLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBudget(10, 0.1)
		rate := rapid.IntRange(1, 300).Draw(t, "requests a second")
		every := rapid.IntRange(6, 20).Draw(t, "one fails of")
		storm := rapid.Bool().Draw(t, "storm beside")
		type span struct{ sent, storm []float64 }
		var seen span
		for i := range 20 * rate {
			now := float64(i) / float64(rate)
			b.sent(now)
			seen.sent = append(seen.sent, now)
			if i%every == every-1 {
				if _, ok := b.take("stream", now); !ok {
					t.Fatalf("refused at %v s with one of %d failing", now, every)
				}
			}
			if !storm {
				continue
			}
			if _, ok := b.take("overload", now); ok {
				seen.storm = append(seen.storm, now)
			}
			requests, taken := lately(seen.sent, now, budgetSpan), lately(seen.storm, now, budgetSpan-budgetSpan/budgetParts)
			if float64(taken) > max(10, 0.2*float64(requests)) {
				t.Fatalf("%d retries of %d requests at %v s", taken, requests, now)
			}
		}
	})
}

// lately counts moments of the last seconds. The budget looks back over nine to ten.
func lately(at []float64, now, seconds float64) (n int) {
	for i := len(at) - 1; i >= 0 && at[i] > now-seconds; i-- {
		n++
	}
	return n
}
