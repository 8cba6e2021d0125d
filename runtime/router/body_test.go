package router

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// halfSent opens connections that announce 4 MB, send 3 and stop.
func halfSent(t *testing.T, addr, header string, n int) (list []net.Conn) {
	t.Helper()
	part := strings.Repeat("x", 3000000)
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		// A router that refuses may close before all of it was written.
		_, _ = io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"+header+"Content-Length: 4000000\r\n\r\n{\"prompt\":\""+part)
		list = append(list, c)
	}
	return list
}

func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Half-sent bodies hold at most their share of memory, others are still served, and all of it
// returns when their clients have gone.
func TestHalfSentBodiesAreBounded(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Fleet.Serving.MaxRequestBytes, c.Fleet.Serving.BodyMemoryBytes = 4<<20, 32<<20
	})
	b.complete(body(false, 4))
	before := heapNow()
	open := halfSent(t, b.router.Addr(), "", 40)
	eventually(t, "bodies", func() bool { return b.router.bodies.bytesHeld() > 20<<20 })
	if held, heap := b.router.bodies.bytesHeld(), int64(heapNow())-int64(before); held > 32<<20 || heap > 48<<20 {
		t.Errorf("%d bytes held, the heap grew by %d", held, heap)
	}
	eventually(t, "a request beside them", func() bool { return b.complete(body(false, 4)).status == 200 })
	for _, c := range open {
		_ = c.Close()
	}
	eventually(t, "none held", func() bool { return b.router.bodies.bytesHeld() == 0 })
	eventually(t, "the heap", func() bool { return int64(heapNow())-int64(before) < 8<<20 })
	eventually(t, "seats", func() bool { return b.state().Admission["inflight"] == 0.0 })
}

// A newcomer that nobody makes room for is told when to come again.
func TestNoMemoryForABody(t *testing.T) {
	b := startBed(t, 0, 1, quick(), func(c *Config) { c.Fleet.Serving.MaxRequestBytes, c.Fleet.Serving.BodyMemoryBytes = 1<<20, 1<<20 })
	taken := &payload{of: b.router.bodies, moved: time.Now()}
	if err := taken.charge(1 << 20); err != nil {
		t.Fatal(err)
	}
	a := b.complete(body(false, 4))
	if a.status != 429 || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, `"type":"server_overloaded_error","param":null,"code":null`) {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	taken.drop()
	b.expect(b.complete(body(false, 4)), 200, "choices")
}

func TestAStalledBodyIsTold(t *testing.T) {
	b := startBed(t, 0, 1, quick(), func(c *Config) { c.HTTP.BodyPatience = 200 * time.Millisecond })
	for _, path := range []string{"/v1/completions", "/tokenize"} {
		status, _, text := b.raw("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
		if status != 408 || !strings.Contains(text, `"type":"request_timeout","param":null,"code":null`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// A client without a key is refused before its body is read.
func TestWithoutAKeyNoBodyIsHeld(t *testing.T) {
	file := tenantsFile(t, t.TempDir(), "")
	b := startBed(t, 0, 1, quick(), func(c *Config) { c.Access.Tenants, c.HTTP.BodyPatience = file, 300*time.Millisecond })
	for _, path := range []string{"/v1/completions", "/tokenize"} {
		for _, declared := range []int{100, 900_000} {
			status, _, text := b.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{", path, declared))
			if status != 401 || !strings.Contains(text, `"param":null`) || b.router.bodies.peak != 0 {
				t.Errorf("%s: %d %s, %d bytes were held", path, status, text, b.router.bodies.peak)
			}
		}
	}
}
