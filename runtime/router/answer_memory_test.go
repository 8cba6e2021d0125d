package router

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"pgregory.net/rapid"
)

// The portions together never pass the bound, and leave nothing behind.
func TestAnswersKeepTheirBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newAnswers(100 << 10)
		var parts []*portion
		for range 4 {
			parts = append(parts, m.portion())
		}
		for _, step := range rapid.SliceOf(rapid.Custom(func(t *rapid.T) [2]int {
			return [2]int{rapid.IntRange(0, 3).Draw(t, "who"), rapid.IntRange(-1, 120<<10).Draw(t, "size")}
		})).Draw(t, "steps") {
			p := parts[step[0]]
			if step[1] < 0 {
				p.drop()
				parts[step[0]] = m.portion()
				continue
			}
			before, size := p.size.Load(), int64(step[1])
			if p.hold(size) != nil && (p.size.Load() != before || size <= before) {
				t.Fatalf("%d of %d: refused, and holds %d", size, before, p.size.Load())
			}
			sum := int64(0)
			for _, p := range parts {
				sum += p.size.Load()
			}
			if held, _ := m.told(); held != sum || held > m.limit {
				t.Fatalf("held %d, the parts have %d", held, sum)
			}
		}
		for _, p := range parts {
			p.drop()
			p.drop()
		}
		if held, _ := m.told(); held != 0 {
			t.Fatalf("%d bytes are left", held)
		}
	})
}

// Without memory an answer that is read whole ends, and a stream, which needs none, goes on.
func TestAnswersWithoutMemory(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Fleet.Serving.MaxResponseBytes, c.Fleet.Serving.BodyMemoryBytes = 1<<20, 1<<20
		c.Fleet.Engine.Tokenize = false
	})
	others := b.router.answers.portion()
	if err := others.hold(1 << 20); err != nil {
		t.Fatal(err)
	}
	b.expect(b.complete(body(false, 400)), 502, "The answers in the router take all the memory that they may have together")
	if _, ended := b.router.answers.told(); ended != 1 {
		t.Errorf("%d answers are counted", ended)
	}
	b.expect(b.complete(body(true, 400)), 200, "[DONE]")
	others.drop()
	b.expect(b.complete(body(false, 400)), 200, `"finish_reason"`)
	eventually(t, "none held", func() bool { held, _ := b.router.answers.told(); return held == 0 })
}

// unceasing sends for as long as the router reads.
func unceasing(v *villain, c net.Conn, head string) {
	for more := v.put(c, head); more; more = v.put(c, strings.Repeat("a", 8<<10)) {
	}
}

// Endless answers of many requests share one bound.
func TestEndlessAnswersShareMemory(t *testing.T) {
	for name, script := range map[string]func(v *villain, c net.Conn){
		"json":  func(v *villain, c net.Conn) { unceasing(v, c, jsonHead+`{"a":"`) },
		"event": func(v *villain, c net.Conn) { unceasing(v, c, streamHead+"data: ") },
	} {
		t.Run(name, func(t *testing.T) {
			v, honest := &villain{stub: newStub("v"), script: script}, &villain{stub: newStub("h")}
			p, d := v, honest
			if name == "event" {
				p, d = honest, v
			}
			cfg := childConfig([]fleet.Engine{{IID: "p0", URL: "http://" + p.listen(t), Pin: true, Role: fleet.RolePrefill},
				{IID: "d0", URL: "http://" + d.listen(t), Pin: true, Role: fleet.RoleDecode}}, "")
			steered(&cfg)
			cfg.Fleet.Serving.MaxRequestBytes, cfg.Fleet.Serving.MaxResponseBytes, cfg.Fleet.Serving.BodyMemoryBytes = 1<<20, 2<<20, 3<<20
			cfg.Fleet.Serving.Admission = "open"
			r, err := New(cfg)
			if err == nil {
				err = r.Start(limit(t))
			}
			if err != nil {
				t.Fatal(err)
			}
			b := &testbed{t: t, router: r, url: "http://" + r.Addr()}
			t.Cleanup(b.stop)
			v.roused.Store(true)
			var all sync.WaitGroup
			for i := range 12 {
				all.Go(func() {
					if a := b.complete(body(i%2 == 0, 2)); a.status/100 == 2 && !strings.Contains(a.body, `"error"`) {
						t.Errorf("%d %.200s", a.status, a.body)
					}
				})
			}
			all.Wait()
			held, ended := r.answers.told()
			if held != 0 || ended == 0 || r.answers.peak > 3<<20 {
				t.Errorf("%d held, %d ended, at most %d", held, ended, r.answers.peak)
			}
		})
	}
}
