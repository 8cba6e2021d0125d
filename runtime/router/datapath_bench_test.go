package router

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// middles are what is measured, in this order, in one run.
var middles = []string{"router", "relay", "splice"}

func longPrompt(size int) string { return strings.Repeat("whale ", max(1, size/6)) }

// drive runs b.N requests over so many connections and reports the CPU of the middle.
func drive(b *testing.B, middle string, connections, units int, unit, body string) {
	b.Helper()
	p, d := spawn(b, "stub", nil), spawn(b, "stub", nil)
	m := spawn(b, middle, []string{p.addr, d.addr})
	callers := make([]*caller, connections)
	var wg sync.WaitGroup
	for i := range callers {
		callers[i] = dialCaller(b, m.addr, body)
		wg.Go(func() { // warms up
			if _, err := callers[i].call(); err != nil {
				b.Error(err)
			}
		})
	}
	if wg.Wait(); b.Failed() {
		return
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	firsts := make([][]time.Duration, connections)
	before := m.cpu(b)
	b.ResetTimer()
	for i, k := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				first, err := k.call()
				if err != nil {
					b.Error(err)
					return
				}
				firsts[i] = append(firsts[i], first)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	spent := m.cpu(b) - before
	all := slices.Concat(firsts...)
	slices.Sort(all)
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N*units), "cpu-µs/"+unit)
	if units > 1 {
		b.ReportMetric(float64(b.N*units)/spent.Seconds(), unit+"s/cpu-s")
	}
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-first-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-first-µs")
	}
}

func BenchmarkDataPath(b *testing.B) {
	for _, c := range []struct {
		name        string
		connections int
		frames      int
		pace        int // µs
		unit        string
		size        int
		stream      bool
	}{
		{"buffered16", 16, 1, 0, "request", 64, false},
		{"buffered1", 1, 1, 0, "request", 64, false},
		{"stream32", 16, 32, 0, "stream", 64, true},
		{"stream256", 16, 256, 0, "stream", 64, true},
		{"paced", 50, 100, 5000, "frame", 64, true},
		{"body1MiB", 4, 1, 0, "request", 1 << 20, false},
	} {
		for _, m := range middles {
			b.Run(c.name+"/"+m, func(b *testing.B) {
				stream := ""
				if c.stream {
					stream = `"stream":true,`
				}
				body := fmt.Sprintf(`{"model":"tern-tiny","prompt":%q,%s"max_tokens":%d,"bench_frames":%d,"bench_pace_us":%d}`, longPrompt(c.size), stream, c.frames, c.frames, c.pace)
				units := 1
				if c.unit == "frame" {
					units = c.frames
				}
				drive(b, m, c.connections, units, c.unit, body)
			})
		}
	}
}

// What a stream holds while its engine is silent, and what the router holds when idle.
// Each round takes fresh processes, so that what is held does not grow with the rounds.
func BenchmarkSilentStreams(b *testing.B) {
	const streams = 1000
	for _, name := range middles {
		b.Run(name, func(b *testing.B) {
			var idle, held int64
			for b.Loop() {
				i, h := silent(b, name, streams)
				idle, held = idle+i, held+h
			}
			b.ReportMetric(float64(idle)/float64(b.N)/(1<<20), "idle-MiB")
			b.ReportMetric(float64(held)/float64(streams*b.N)/1024, "KiB/stream")
		})
	}
}

// end kills children that a round no longer needs, so that rounds do not add up.
func end(children ...*child) {
	for _, c := range children {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// silent opens the streams and returns what the process held before, and holds more with
// them, in bytes.
func silent(b *testing.B, name string, streams int) (idle, more int64) {
	p, d := spawn(b, "stub", nil), spawn(b, "stub", nil)
	m := spawn(b, name, []string{p.addr, d.addr})
	defer end(p, d, m)
	idle = m.rss(b)
	body := `{"model":"tern-tiny","prompt":"whale","stream":true,"max_tokens":9,"bench_frames":9,"bench_silent":1}`
	for range streams {
		k := dialCaller(b, m.addr, body)
		defer k.c.Close()
		if _, err := k.c.Write(k.wire); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(k.r, make([]byte, 200)); err != nil {
			b.Fatal(err)
		}
	}
	return idle, m.rss(b) - idle
}

// CPU from the start of the process until 64 engines have answered and it is ready.
func BenchmarkStart64(b *testing.B) {
	engines := strings.Split(spawn(b, "stubs", nil).addr, ",")
	var total time.Duration
	n := 0
	for b.Loop() {
		m := spawn(b, "router", engines)
		total += m.cpu(b)
		end(m)
		n++
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(n), "cpu-ms/start")
}

// The latency that this router adds to both legs driven by hand over warm connections, and
// the first answer after an engine of two has died.
func BenchmarkAddedLatency(b *testing.B) {
	body := `{"model":"tern-tiny","prompt":"whale","stream":true,"max_tokens":1,"bench_frames":1}`
	for _, connections := range []int{1, 16} {
		b.Run(fmt.Sprintf("c%d", connections), func(b *testing.B) {
			p, d := spawn(b, "stub", nil), spawn(b, "stub", nil)
			m := spawn(b, "router", []string{p.addr, d.addr})
			byHand := measure(b, connections, func() func() (time.Duration, error) {
				one := dialCaller(b, p.addr, strings.TrimSuffix(body, "}")+`,"kv_transfer_params":{"do_remote_decode":true}}`)
				two := dialCaller(b, d.addr, strings.TrimSuffix(body, "}")+`,"kv_transfer_params":{"do_remote_prefill":true}}`)
				return func() (time.Duration, error) {
					start := time.Now()
					if _, err := one.call(); err != nil {
						return 0, err
					}
					before := time.Since(start)
					first, err := two.call()
					return before + first, err
				}
			})
			routed := measure(b, connections, func() func() (time.Duration, error) { return dialCaller(b, m.addr, body).call })
			for _, q := range []struct {
				name string
				at   int
			}{{"p50", 50}, {"p99", 99}} {
				b.ReportMetric(float64((routed[len(routed)*q.at/100] - byHand[len(byHand)*q.at/100]).Microseconds()), "added-"+q.name+"-µs")
			}
		})
	}
}

// measure runs b.N calls over so many callers and returns the sorted times to the first byte.
func measure(b *testing.B, connections int, dial func() func() (time.Duration, error)) []time.Duration {
	b.Helper()
	calls := make([]func() (time.Duration, error), connections)
	for i := range calls {
		calls[i] = dial()
		if _, err := calls[i](); err != nil {
			b.Fatal(err)
		}
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, connections)
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				first, err := call()
				if err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], first)
			}
		})
	}
	wg.Wait()
	all := slices.Concat(took...)
	slices.Sort(all)
	return all
}

// One of two prefill engines dies; the next requests go through all the same.
func BenchmarkAfterDeath(b *testing.B) {
	body := `{"model":"tern-tiny","prompt":"whale","max_tokens":1,"bench_frames":1}`
	var usual, after []time.Duration
	for b.Loop() {
		p, q, d, e := spawn(b, "stub", nil), spawn(b, "stub", nil), spawn(b, "stub", nil), spawn(b, "stub", nil)
		m := spawn(b, "router", []string{p.addr, q.addr, d.addr, e.addr})
		k := dialCaller(b, m.addr, body)
		for range 50 {
			first, err := k.call()
			if err != nil {
				b.Fatal(err)
			}
			usual = append(usual, first)
		}
		_ = q.cmd.Process.Kill()
		for range 10 {
			first, err := k.call()
			if err != nil {
				b.Fatal(err)
			}
			after = append(after, first)
		}
		_ = k.c.Close()
		end(p, q, d, e, m)
	}
	slices.Sort(usual)
	b.ReportMetric(float64(usual[len(usual)/2].Microseconds()), "usual-µs")
	b.ReportMetric(float64((slices.Max(after) - usual[len(usual)/2]).Microseconds()), "worst-added-µs")
}
