package gates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSchedule runs random plans: each step runs once unless what it needs failed, never
// before its needs, never beside an exclusive peer, never on more hosts than allowed.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fanOut := rapid.IntRange(1, 4).Draw(rt, "fan-out")
		var steps []Step
		fail := map[string]bool{}
		for i := range rapid.IntRange(1, 14).Draw(rt, "steps") {
			s := Step{ID: fmt.Sprint("s", i), Host: fmt.Sprint("h", rapid.IntRange(0, 4).Draw(rt, "host")), Last: rapid.IntRange(0, 5).Draw(rt, "last") == 0}
			for j := range i {
				if rapid.IntRange(0, 4).Draw(rt, "need") == 0 && (s.Last || !steps[j].Last) {
					s.Needs = append(s.Needs, steps[j].ID)
				}
			}
			for x := range 3 {
				if rapid.IntRange(0, 3).Draw(rt, "exclusive") == 0 {
					s.Exclusive = append(s.Exclusive, fmt.Sprint("x", x))
				}
			}
			fail[s.ID] = rapid.IntRange(0, 4).Draw(rt, "fails") == 0
			steps = append(steps, s)
		}
		s := &schedule{plan: Plan{Steps: steps}, state: map[string]string{}, busy: map[string]bool{}, hosts: map[string]int{}}
		for i := range steps {
			s.pending = append(s.pending, i)
		}
		ran, running := map[string]bool{}, []Step{}
		for len(s.pending) > 0 || s.running > 0 {
			before := len(s.pending)
			for _, step := range s.ready(context.Background(), false, fanOut) {
				if ran[step.ID] {
					rt.Fatalf("%s runs twice", step.ID)
				}
				ran[step.ID] = true
				for _, need := range step.Needs {
					if s.state[need] == "" || s.state[need] == "failed" && !step.Last {
						rt.Fatalf("%s runs although %s is %q", step.ID, need, s.state[need])
					}
				}
				running = append(running, step)
			}
			hosts, busy := map[string]bool{}, map[string]bool{}
			for _, step := range running {
				hosts[step.Host] = true
				for _, x := range step.Exclusive {
					if busy[x] {
						rt.Fatalf("two running steps hold %s", x)
					}
					busy[x] = true
				}
			}
			if len(hosts) > fanOut {
				rt.Fatalf("%d hosts at once", len(hosts))
			}
			if len(running) == 0 {
				if len(s.pending) == before {
					rt.Fatalf("stuck with %d pending", len(s.pending))
				}
				continue
			}
			i := rapid.IntRange(0, len(running)-1).Draw(rt, "ends")
			step := running[i]
			running = slices.Delete(running, i, i+1)
			var err error
			if fail[step.ID] {
				err = errors.New("failed")
			}
			s.done(finished{step, err})
		}
		for _, step := range steps {
			want := true
			for _, need := range step.Needs {
				want = want && (step.Last || ran[need] && !fail[need])
			}
			if ran[step.ID] != want {
				rt.Fatalf("%s ran: %v, want %v", step.ID, ran[step.ID], want)
			}
		}
	})
}
