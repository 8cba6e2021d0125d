//go:build soak

package router

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// soakOf reads a setting of the environment.
func soakOf[T any](t *testing.T, name string, usual T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	v, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// stock is what this process holds: the router, its clients and the test.
type stock struct {
	at         time.Duration
	heap       float64 // MiB in use after a collection
	goroutines int
	files      int
}

func takeStock(since time.Time) stock {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	return stock{time.Since(since), float64(m.HeapAlloc) / (1 << 20), runtime.NumGoroutine(), len(files)}
}

// slope is the least-squares rise of the heap, MiB a minute.
func slope(hs []stock) float64 {
	var n, x, y, xx, xy float64
	for _, h := range hs {
		m := h.at.Minutes()
		n, x, y, xx, xy = n+1, x+m, y+h.heap, xx+m*m, xy+m*h.heap
	}
	if d := n*xx - x*x; n >= 2 && d > 0 {
		return (n*xy - x*y) / d
	}
	return 0
}

// soak keeps clients busy for a time while beside runs, and returns what was held meanwhile.
func soak(t *testing.T, streams int, length time.Duration, beside func(ctx context.Context, d *diary)) (*diary, []stock) {
	d := &diary{soakBed: startSoak(t, streams), asked: make([]int, streams), others: map[string]sight{}}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var clients, others sync.WaitGroup
	for c := range streams {
		clients.Go(func() { d.stream(ctx, c) })
	}
	if beside != nil {
		others.Go(func() { beside(ctx, d) })
	}
	start := time.Now()
	var hs []stock
	every(ctx, max(time.Second, length/60), func(int) {
		h := takeStock(start)
		hs = append(hs, h)
		t.Logf("%6.0f s: heap %.1f MiB, %d goroutines, %d files, %d done, %d failed", h.at.Seconds(), h.heap, h.goroutines, h.files, d.done.Load(), d.failed.Load())
	})
	others.Wait()
	clients.Wait()
	return d, hs
}

// mostSlope is how much the heap may rise over the second half of a soak, MiB a minute. What is
// kept for each request would rise by far more: at 400 requests a second, 100 bytes of each are
// 2.3 MiB a minute.
const mostSlope = 1.0

// TestSoakStreams keeps streams open on a well fleet: nothing fails and nothing is kept.
func TestSoakStreams(t *testing.T) {
	length := soakOf(t, "NARWHAL_SOAK_FOR", 10*time.Minute, time.ParseDuration)
	streams := soakOf(t, "NARWHAL_SOAK_STREAMS", 500, strconv.Atoi)
	before := takeStock(time.Now())
	t.Run("streams", func(t *testing.T) {
		d, hs := soak(t, streams, length, nil)
		d.close(t)
		if n := d.failed.Load(); n > 0 {
			t.Errorf("%d answers failed on a well fleet", n)
		}
		if d.done.Load() < int64(streams) {
			t.Errorf("%d answers are fewer than there are streams", d.done.Load())
		}
		half := hs[len(hs)/2:]
		rise := slope(half)
		t.Logf("the heap rises by %.2f MiB a minute over the second half, %d looks", rise, len(half))
		if len(half) >= 5 && length >= 2*time.Minute && rise > mostSlope {
			t.Errorf("the heap rises by %.2f MiB a minute, want at most %.1f", rise, mostSlope)
		}
	})
	// A journal, a run and pools have ended with the subtest.
	eventually(t, "goroutines and files as before", func() bool {
		after := takeStock(time.Now())
		return after.goroutines <= before.goroutines+4 && after.files <= before.files+4
	})
}

// TestSoakKills kills an engine's process every 5 s while streams are open: every answer is right
// or says how it ended, every request has its row, and no engine is left with KV of nobody.
func TestSoakKills(t *testing.T) {
	length := soakOf(t, "NARWHAL_SOAK_KILLS_FOR", 2*time.Minute, time.ParseDuration)
	streams := soakOf(t, "NARWHAL_SOAK_KILLS_STREAMS", 200, strconv.Atoi)
	kills := 0
	d, _ := soak(t, streams, length, func(ctx context.Context, d *diary) {
		every(ctx, 5*time.Second, func(n int) {
			d.restart([]int{0, 3, 1, 4, 2, 5}[n%6])
			kills++
		})
	})
	d.close(t)
	t.Logf("%d kills", kills)
	if kills < int(length/(10*time.Second)) {
		t.Errorf("%d kills in %s", kills, length)
	}
	if done, failed := d.done.Load(), d.failed.Load(); done < 10*failed {
		t.Errorf("%d answers are right, %d ended early", done, failed)
	}
}
