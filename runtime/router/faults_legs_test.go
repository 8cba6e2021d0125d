package router

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// sibling is an engine that ends while the request's other leg waits or runs.
type sibling struct {
	name   string
	inject []shot
	moment func(b *testbed)
	victim string
	how    string
	sees   string
}

func gap(b *testbed)       { b.until("d0", held) }
func firstStep(b *testbed) { b.until("d0", running) }
func flows(b *testbed)     { b.flowing("d0") }

var siblings = []sibling{
	{"P is killed while D is silent", []shot{in("d0", "pause")}, gap, "p0", "kill", "200"},
	{"P stops in silence while D is silent", []shot{in("d0", "pause")}, gap, "p0", "terminate", "200"},
	{"D is killed in the gap", []shot{in("d0", "pause")}, gap, "d0", "kill", "200"},
	{"D's port closes and its streams stay open", []shot{slow("d0", 5000)}, firstStep, "d0", "terminate", "200"},
	{"D is killed mid-stream", []shot{slow("d0", 30)}, flows, "d0", "kill", midStream},
	{"D goes silent mid-stream", []shot{slow("d0", 30)}, flows, "d0", "terminate", midStream},
	{"D dies mid-stream", []shot{slow("d0", 30)}, flows, "d0", "core-death", midStream},
}

// When one leg's engine ends, the other leg ends and the client is answered long before any
// limit of silence, which is a minute here.
func TestFaultsEndTheSibling(t *testing.T) {
	t.Parallel()
	settles(t)
	together(t, siblings, func(c sibling) string { return c.name }, func(t *testing.T, c sibling) { c.run(t) })
}

func (c sibling) run(t *testing.T) {
	b := startFleet(t, 2, 2, nil, steered, watchful, func(c *Config) { c.Fleet.Controller.MonitorIntervalS = 0.1 })
	q := matrixRow{}.ask(true)
	q["max_tokens"] = 100
	want := b.unsplit("p1", q)
	for _, s := range c.inject {
		b.inject(s.at, s.Injection)
	}
	var at time.Time
	var beside sync.WaitGroup
	beside.Go(func() { c.moment(b); at = time.Now(); b.inject(c.victim, simulated.Injection{Kind: c.how}) })
	s := watch(long(t), b.client(), b.url, q, "", nil)
	beside.Wait()
	took := time.Since(at)
	if err := s.right(want, true); err != nil || s.short() != c.sees {
		t.Errorf("the client sees %s, want %s: %v", s.short(), c.sees, err)
	}
	if took > 40*time.Second {
		t.Errorf("answered after %v", took)
	}
	t.Logf("%s: answered whole %v after it, %d frames", c.name, took.Round(time.Millisecond), s.frames)
	b.inject("d0", simulated.Injection{Kind: "clear"})
	if err := b.settle(); err != nil {
		t.Error(err)
	}
}

// Nobody is left: the client is told at once.
func TestFaultsOfTheOnlyPair(t *testing.T) {
	for _, victim := range []string{"p0", "d0"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			settles(t)
			b := startFleet(t, 1, 1, nil, steered, watchful)
			b.inject("d0", simulated.Injection{Kind: "pause"})
			var at time.Time
			var beside sync.WaitGroup
			beside.Go(func() { b.until("d0", held); at = time.Now(); b.engine(victim).Kill() })
			s := watch(long(t), b.client(), b.url, matrixRow{}.ask(true), "", nil)
			beside.Wait()
			took := time.Since(at)
			if s.err != nil || s.status < 500 || len(s.failed) != 1 || took > 40*time.Second {
				t.Errorf("%v: %+v", took, s)
			}
			b.inject("d0", simulated.Injection{Kind: "clear"})
			if err := b.settle(); err != nil {
				t.Error(err)
			}
		})
	}
}

// One dead engine of two costs a request at most one retry, and no client an error.
func TestFaultsOneDeadOfTwo(t *testing.T) {
	for _, victim := range []string{"p0", "d1"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			settles(t)
			b := startFleet(t, 2, 2, nil, func(c *Config) { c.Fleet.Engine.Tokenize = false; c.Fleet.Serving.Admission = "open" })
			want := b.unsplit("p1", matrixRow{}.ask(false))
			crew := newCrowd(t)
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for k := range 8 {
						if i == 0 && k == 3 {
							b.engine(victim).Kill()
						}
						// Buffered answers: a cut after the first byte is not theirs to see.
						s := watch(long(t), crew.http, b.url, matrixRow{}.ask(false), fmt.Sprint(i, "-", k), nil)
						err := s.right(want, false)
						if err == nil && s.status != 200 {
							err = fmt.Errorf("sees %s", s.short())
						}
						crew.note(s, err)
					}
				})
			}
			all.Wait()
			for _, err := range crew.errs {
				t.Error(err)
			}
			if err := b.settle(); err != nil {
				t.Error(err)
			}
			retried := 0
			for _, r := range b.rows() {
				if r.Attempts > 2 {
					t.Errorf("%d attempts: %s", r.Attempts, failuresOf(r))
				}
				retried += r.Attempts - 1
			}
			t.Logf("64 requests, %d retries", retried)
		})
	}
}

// The head of an answer leaves together with its first frame.
func TestFaultsHeadComesWithTheFirstFrame(t *testing.T) {
	t.Parallel()
	settles(t)
	b := startFleet(t, 1, 1, nil, steered)
	b.inject("d0", simulated.Injection{Kind: "slow", Factor: 20})
	for path, body := range map[string]string{"/v1/completions": `{"prompt":"whale","max_tokens":6,"ignore_eos":true,"stream":true}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"whale"}],"max_tokens":6,"ignore_eos":true,"stream":true}`} {
		c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", b.router.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(15 * time.Second))
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
		first := make([]byte, 64<<10)
		n, err := c.Read(first)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, ok := bytes.Cut(first[:n], []byte("\r\n\r\n"))
		if !ok || !strings.HasPrefix(string(head), "HTTP/1.1 200") || !bytes.Contains(rest, []byte("data: {")) || !bytes.Contains(rest, []byte("\n\n")) {
			t.Errorf("%s: first read %q", path, first[:n])
		}
		for err == nil {
			_, err = c.Read(first)
		}
		c.Close()
	}
}

// Both legs carry the client's bytes where they shape prompt or answer.
func TestFaultsNoByteOfABodyChanges(t *testing.T) {
	t.Parallel()
	settles(t)
	var p, d between
	b := startFleet(t, 1, 1, nil, steered, proxied(t, &p, "p0"), proxied(t, &d, "d0"))
	members := []string{`"prompt":"wh\u0061le \ud83d\udc33 \u2028 é"`, `"temperature":0.7`, `"top_p": 1.0`, `"seed":90071992547409`, `"user":"u\/1"`, `"cache_salt":"s a l t"`,
		`"priority":-0`, `"x_unknown":{"b":1,"a":[1e2,0.10,{}]}`, `"x_ids":[9007199254740993]`, `"x_big":123456789012345678901234567890.5e-7`, `"metadata":{"k":"v"}`}
	for _, stream := range []string{"true", "false"} {
		body := "{ " + strings.Join(members, " ,\n ") + `,"max_tokens":4,"ignore_eos":true,"stream":` + stream + "}"
		if a := b.complete(body); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	one, two := p.sent(), d.sent()
	if len(one) != 2 || len(two) != 2 {
		t.Fatalf("%d first legs and %d second legs", len(one), len(two))
	}
	for i, leg := range append(one, two...) {
		for _, m := range members {
			if !strings.Contains(leg, m) {
				t.Errorf("leg %d has no %s: %s", i, m, leg)
			}
		}
	}
}
