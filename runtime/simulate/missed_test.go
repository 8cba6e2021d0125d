package simulate

import (
	"encoding/json"
	"testing"
)

// The controller hears of every request that was refused or late, and of no other.
func TestTheControllerHearsOfMisses(t *testing.T) {
	for name, load := range map[string][]Arrival{
		"little": even(0, 20, 5, 350, 50, "chat"),
		"chats":  even(0, 20, 150, 350, 200, "chat"),
		"docs":   even(0, 20, 12, 12000, 40, "doc"),
	} {
		c := config(reference(), 4, 0.06, load...)
		c.Slow = 1.15 // some of what is admitted is late
		c.Inflight = 0
		c.index()
		w := newWorld(&c, policy{name: "default"})
		if err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(w.mind.(*standing).ctl)
		if err != nil {
			t.Fatal(err)
		}
		type bucket struct{ Missed [2]float64 }
		var s struct {
			Open   bucket
			Closed []bucket
		}
		if err := json.Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		heard := s.Open.Missed
		for _, k := range s.Closed {
			heard[0], heard[1] = heard[0]+k.Missed[0], heard[1]+k.Missed[1]
		}
		a := w.score()
		if got, want := int(heard[0]+heard[1]), len(load)-a.Qualified; got != want || (want == 0) != (name == "little") {
			t.Errorf("%s: heard of %v, %d of %d were not within the promise", name, heard, want, len(load))
		}
		if name == "docs" && heard[0] <= heard[1] || name == "chats" && heard[1] == 0 {
			t.Errorf("%s: %v lacked prefill and decoding", name, heard)
		}
	}
}
