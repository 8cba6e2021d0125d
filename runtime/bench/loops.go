package bench

import (
	"context"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
)

// openLoop sends every request at its moment, whatever became of those before.
func (r *run) openLoop(ctx, lasting context.Context) []Row {
	rows := make([]Row, len(r.plan.Arrivals))
	seats := make(chan struct{}, r.plan.MaxInFlight)
	var open sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for i, a := range r.plan.Arrivals {
		row := &rows[i]
		due := time.Duration(float64(a.At) / r.plan.Speed)
		*row = r.row(i, due)
		if ctx.Err() == nil {
			timer.Reset(time.Until(r.start.Add(due)))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			row.Error, row.Outcome, row.undue = "not sent: the run was ended", OutcomeBrokenOff, true
			continue
		}
		select {
		case seats <- struct{}{}:
			open.Go(func() {
				defer func() { <-seats }()
				r.offer(lasting, row, r.start.Add(due))
				r.told(*row)
			})
		default:
			row.Error, row.Outcome = "not sent: the load generator's own limit", OutcomeScheduleMiss
			r.told(*row)
		}
	}
	open.Wait()
	return rows
}

// closedLoop keeps Concurrency requests open. Only what was begun has a row.
func (r *run) closedLoop(ctx, lasting context.Context) []Row {
	rows := make([]Row, len(r.plan.Arrivals))
	next := 0
	var mu sync.Mutex
	take := func() (i int, due time.Time, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		due = time.Now()
		if next == len(rows) || ctx.Err() != nil || r.plan.Until > 0 && due.Sub(r.start) >= r.plan.Until {
			return 0, due, false
		}
		next++
		return next - 1, due, true
	}
	var clients sync.WaitGroup
	for range r.plan.Concurrency {
		clients.Go(func() {
			for {
				i, due, ok := take()
				if !ok {
					return
				}
				rows[i] = r.row(i, due.Sub(r.start))
				r.offer(lasting, &rows[i], due)
				r.told(rows[i])
				if !rows[i].Completed {
					pause.For(ctx, refusedPause)
				}
			}
		})
	}
	clients.Wait()
	return rows[:next]
}

// refusedPause is how long a client of a closed loop waits after a request that did not
// complete: what is turned away at once must not become a flood.
const refusedPause = 100 * time.Millisecond
