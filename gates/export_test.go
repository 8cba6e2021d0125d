package gates

import (
	"context"
	"time"
)

// Makespan runs a plan's schedule with steps that take as long as a test says, and returns
// how long the whole takes and how many steps ran.
func Makespan(p Plan, fanOut int, takes func(Step) time.Duration) (whole time.Duration, ran int) {
	s := &schedule{plan: p, state: map[string]string{}, busy: map[string]bool{}, hosts: map[string]int{}}
	for i := range p.Steps {
		s.pending = append(s.pending, i)
	}
	ends := map[string]time.Duration{}
	running := map[string]Step{}
	for len(s.pending) > 0 || s.running > 0 {
		for _, step := range s.ready(context.Background(), false, fanOut) {
			running[step.ID], ends[step.ID] = step, whole+takes(step)
			ran++
		}
		var first string
		for id := range running {
			if first == "" || ends[id] < ends[first] || ends[id] == ends[first] && id < first {
				first = id
			}
		}
		if first == "" {
			break
		}
		whole = ends[first]
		s.done(finished{running[first], nil})
		delete(running, first)
	}
	return whole, ran
}
