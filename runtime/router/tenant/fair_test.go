package tenant

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// crowd is a simulation: clients that each want one request after the other, come back
// when they are told to, and hold a seat for a random time.
type crowd struct {
	l       *Limiter
	random  *rand.Rand
	queue   events
	area    map[string]float64 // seat-seconds after the warm-up
	asked   map[string]int
	refused map[string]int
	holding map[string]int
	last    float64
}

type event struct {
	at   float64
	n    int // order of equal times
	t    *Tenant
	seat *Seat   // not nil: ends
	idle float64 // seconds that the client thinks between two requests
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const warmUp, simulated = 20.0, 80.0

func (c *crowd) run(until float64) {
	for n := 0; c.queue.Len() > 0; n++ {
		x := heap.Pop(&c.queue).(event)
		if x.at > until {
			return
		}
		if x.at > warmUp {
			for name, k := range c.holding {
				c.area[name] += float64(k) * (x.at - max(c.last, warmUp))
			}
		}
		c.last = x.at
		next := event{at: x.at, n: n, t: x.t, idle: x.idle}
		if x.seat != nil {
			c.l.Done(x.at, x.seat, 1)
			c.holding[x.t.Name]--
			next.at += x.idle * c.random.ExpFloat64()
		} else if s, wait, why := c.l.Admit(x.at, x.t, 1); why == Admitted {
			c.holding[x.t.Name]++
			c.asked[x.t.Name]++
			next.seat, next.at = s, x.at+0.2+0.8*c.random.ExpFloat64()
		} else {
			c.asked[x.t.Name]++
			c.refused[x.t.Name]++
			next.at += wait * (1 + 0.1*c.random.Float64())
		}
		heap.Push(&c.queue, next)
	}
}

// simulate returns the mean number of seats of each tenant.
func simulate(total int, tab *Table, clients []int, idle []float64, seed uint64) (map[string]float64, *crowd) {
	c := &crowd{l: New(total, tab), random: rand.New(rand.NewPCG(seed, 1)), area: map[string]float64{}, asked: map[string]int{},
		refused: map[string]int{}, holding: map[string]int{}}
	for i, t := range tab.Tenants() {
		for range clients[i] {
			c.queue = append(c.queue, event{at: c.random.Float64(), t: t, idle: idle[i]})
		}
	}
	heap.Init(&c.queue)
	c.run(simulated)
	mean := map[string]float64{}
	for name, a := range c.area {
		mean[name] = a / (simulated - warmUp)
	}
	return mean, c
}

func weighted(t testing.TB, weights ...int) *Table {
	var rows []string
	for i, w := range weights {
		rows = append(rows, fmt.Sprintf(`t%d "weight":%d`, i, w))
	}
	return table(t, rows...)
}

// Tenants that all want more than there is hold seats by their weights.
func TestSharesConvergeToTheWeights(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(1, 8), 2, 4).Draw(r, "weights")
		total := rapid.IntRange(8, 24).Draw(r, "total")
		sum := 0
		for _, w := range weights {
			sum += w
		}
		clients, idle := make([]int, len(weights)), make([]float64, len(weights))
		for i := range clients {
			clients[i] = 2 * total
		}
		mean, _ := simulate(total, weighted(t, weights...), clients, idle, rapid.Uint64().Draw(r, "seed"))
		for i, w := range weights {
			ideal := math.Max(1, float64(total*w)/float64(sum))
			if got := mean[fmt.Sprintf("t%d", i)]; math.Abs(got-ideal) > 1.2+0.05*ideal {
				r.Fatalf("weights %v of %d: t%d holds %.2f, ideal %.2f (%v)", weights, total, i, got, ideal, mean)
			}
		}
	})
}

// A crowd of one tenant neither keeps out a small one nor gets less than what that leaves.
func TestSmallTenantIsNotStarved(t *testing.T) {
	mean, c := simulate(20, weighted(t, 1, 1), []int{200, 3}, []float64{0, 0}, 7)
	if mean["t1"] < 2.7 || mean["t0"]+mean["t1"] < 19 {
		t.Errorf("seats %v", mean)
	}
	if share := float64(c.refused["t1"]) / float64(c.asked["t1"]); share > 0.05 {
		t.Errorf("%.2f of the small tenant's requests were refused", share)
	}
	// One that asks now and then is refused now and then, once or twice.
	mean, c = simulate(20, weighted(t, 1, 1), []int{200, 1}, []float64{0, 20}, 7)
	if mean["t0"]+mean["t1"] < 18.5 || c.refused["t1"] > 3*(c.asked["t1"]-c.refused["t1"]) {
		t.Errorf("seats %v; asked %v, refused %v", mean, c.asked, c.refused)
	}
}

// What a tenant leaves of its share goes to the others by their weights.
func TestLeftoverIsSharedByWeight(t *testing.T) {
	mean, _ := simulate(30, weighted(t, 5, 2, 1), []int{3, 90, 90}, []float64{0, 0, 0}, 3)
	if mean["t0"] < 2.7 || math.Abs(mean["t1"]-18) > 1.5 || math.Abs(mean["t2"]-9) > 1.5 {
		t.Errorf("seats %v, want 3, 18 and 9", mean)
	}
}

func TestWithoutContentionNobodyIsRefused(t *testing.T) {
	_, c := simulate(40, weighted(t, 1, 9), []int{30, 10}, []float64{0, 0}, 5)
	if c.refused["t0"]+c.refused["t1"] != 0 {
		t.Errorf("refused %v", c.refused)
	}
}

// No seat stays free while every tenant keeps asking.
func TestAskingFillsTheRouter(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		weights := rapid.SliceOfN(rapid.SampledFrom([]float64{0.1, 0.3, 0.7, 1, 3}), 2, 5).Draw(r, "weights")
		var rows []string
		for i, w := range weights {
			rows = append(rows, fmt.Sprintf(`t%d "weight":%g`, i, w))
		}
		tab, total := table(t, rows...), rapid.IntRange(1, 20).Draw(r, "total")
		l, held := New(total, tab), []*Seat{}
		for range 20 {
			for i := 0; i < len(held); {
				if rapid.Bool().Draw(r, "ends") {
					l.Done(0, held[i], 1)
					held = append(held[:i], held[i+1:]...)
				} else {
					i++
				}
			}
			for range total + 1 {
				for _, x := range rapid.Permutation(tab.Tenants()).Draw(r, "order") {
					if s, _, _ := l.Admit(0, x, 1); s != nil {
						held = append(held, s)
					}
				}
			}
			if len(held) != total {
				r.Fatalf("%d of %d seats taken: %+v", len(held), total, l.Stats(0))
			}
		}
	})
}
