package router

import (
	"math"
	rtm "runtime/metrics"
	"slices"
	"sync"
	"syscall"
	"time"
)

// runQueue watches how long runnable goroutines wait for a processor. It is the router's
// lag: no single loop could be late.
type runQueue struct {
	mu      sync.Mutex
	at      time.Time
	counts  []uint64 // at the start of the current span
	lag     float64
	highest float64
}

// lagSpan is the shortest time that a lag is taken over.
const lagSpan = time.Second

const (
	schedLatency = "/sched/latencies:seconds"
	heapObjects  = "/memory/classes/heap/objects:bytes"
	allMemory    = "/memory/classes/total:bytes"
	goroutines   = "/sched/goroutines:goroutines"
)

func (q *runQueue) look() seen {
	read := []rtm.Sample{{Name: schedLatency}, {Name: heapObjects}, {Name: allMemory}, {Name: goroutines}}
	rtm.Read(read)
	v := seen{heap: number(read[1]), memory: number(read[2]), goroutines: int(number(read[3])), busy: processorSeconds()}
	q.mu.Lock()
	defer q.mu.Unlock()
	if read[0].Value.Kind() == rtm.KindFloat64Histogram {
		q.roll(read[0].Value.Float64Histogram(), time.Now())
	}
	v.lag, v.lagHigh = q.lag, q.highest
	return v
}

func number(s rtm.Sample) uint64 {
	if s.Value.Kind() != rtm.KindUint64 {
		return 0
	}
	return s.Value.Uint64()
}

// roll takes the 99th percentile of what was counted since the span began.
func (q *runQueue) roll(h *rtm.Float64Histogram, now time.Time) {
	if len(q.counts) == len(h.Counts) {
		if now.Sub(q.at) < lagSpan {
			return
		}
		since := make([]uint64, len(h.Counts))
		for i, n := range h.Counts {
			since[i] = n - q.counts[i]
		}
		q.lag = percentile(since, h.Buckets, 0.99)
		q.highest = max(q.highest, q.lag)
	}
	q.counts, q.at = append(q.counts[:0], h.Counts...), now
}

// percentile is the lower edge of the bucket that a share of the counts lies below.
func percentile(counts []uint64, buckets []float64, share float64) float64 {
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return 0
	}
	rest := uint64(math.Ceil(share * float64(total)))
	for i, n := range counts {
		if n >= rest {
			return max(0, buckets[i])
		}
		rest -= n
	}
	return 0
}

// processorSeconds is what this process has used, user and system.
func processorSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec) + float64(u.Stime.Sec) + (float64(u.Utime.Usec)+float64(u.Stime.Usec))/1e6
}

// sizings are the newest times that prompts took to be sized.
type sizings struct {
	mu   sync.Mutex
	at   [256]time.Time
	took [256]float64
	next int
}

const (
	sizingSpan  = 2 * time.Second
	sizingLeast = 8
)

// since notes a sizing that began then; for a defer.
func (s *sizings) since(began time.Time) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.next % len(s.at)
	s.at[i], s.took[i] = now, now.Sub(began).Seconds()
	s.next++
}

// median is that of the last 2 s, 0 if there were fewer than 8.
func (s *sizings) median() float64 {
	from := time.Now().Add(-sizingSpan)
	s.mu.Lock()
	defer s.mu.Unlock()
	var in []float64
	for i := range s.at {
		if s.at[i].After(from) {
			in = append(in, s.took[i])
		}
	}
	if len(in) < sizingLeast {
		return 0
	}
	slices.Sort(in)
	return in[len(in)/2]
}
