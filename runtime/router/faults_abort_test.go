package router

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// leaving is a moment at which a client leaves.
type leaving struct {
	name   string
	inject []shot
	moment func(b *testbed)
	phase  string
	frames bool // some had come
}

var leavings = []leaving{
	{"in prefill", []shot{slow("p0", 5000)}, func(b *testbed) { b.until("p0", running) }, phasePrefill, false},
	{"in the silent gap before the first token", []shot{in("d0", "pause")}, func(b *testbed) { b.until("d0", held) }, phaseDecode, false},
	{"before the decode engine answers", []shot{in("d0", "hang")}, (*testbed).decodes, phaseDecode, false},
	{"in a slow first step", []shot{slow("d0", 5000)}, func(b *testbed) { b.until("d0", running) }, phaseDecode, false},
	{"mid-stream", []shot{slow("d0", 30)}, func(b *testbed) { b.flowing("d0") }, phaseDecode, true},
	{"in a silence mid-stream", []shot{after("d0", "stall", 2)}, func(b *testbed) { b.flowing("d0") }, phaseDecode, true},
}

// A client that leaves ends both legs, wherever it was, and the journal says where.
func TestAbortEndsBothLegs(t *testing.T) {
	t.Parallel()
	settles(t)
	for _, streamed := range []bool{true, false} {
		together(t, leavings, func(c leaving) string { return fmt.Sprintf("%s/stream %v", c.name, streamed) },
			func(t *testing.T, c leaving) { c.run(t, streamed) })
	}
}

func (c leaving) run(t *testing.T, streamed bool) {
	b := startFleet(t, 1, 1, nil, steered)
	for _, s := range c.inject {
		b.inject(s.at, s.Injection)
	}
	ctx, leave := context.WithCancel(long(t))
	defer leave()
	var left time.Time
	var beside sync.WaitGroup
	beside.Go(func() { c.moment(b); left = time.Now(); leave() })
	q := matrixRow{}.ask(streamed)
	q["max_tokens"] = 400
	s := watch(ctx, b.client(), b.url, q, "leaves", nil)
	beside.Wait()
	// A stream's last frames may be lost with the connection that its client ended.
	if s.err == nil || s.done > 0 || len(s.failed) > 0 || s.frames > 0 && !(c.frames && streamed) {
		t.Errorf("the client was answered: %+v", s)
	}
	b.rest(t, c.name, left)
	if rows := b.rows(); len(rows) != 1 || rows[0].Terminal != journal.Cancelled || rows[0].CancelledPhase != c.phase || len(rows[0].Failures) != 0 {
		t.Errorf("rows %+v", rows)
	}
}

// decodes waits until the second leg is on its way.
func (b *testbed) decodes() {
	eventually(b.t, "leg 2", func() bool { return b.state().Serving["decode_attempts"] == 1.0 })
}

// rest measures how long engines and router still hold something of a client that left.
func (b *testbed) rest(t *testing.T, what string, left time.Time) {
	t.Helper()
	decode := time.Duration(0)
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		busy := false
		for _, e := range b.engines {
			a := e.Account()
			busy = busy || a.Calls+a.Running+a.Waiting+a.Held > 0
		}
		if !busy || time.Since(left) > 15*time.Second {
			tick.Stop()
			decode = time.Since(left)
			break
		}
	}
	hang := b.engine("d0").Inject(simulated.Injection{Kind: "hang", On: new(bool)})
	if what == "before the decode engine answers" {
		b.inject("p0", simulated.Injection{Kind: "expire"}) // the handoff was never read
	}
	if err := b.idle(); err != nil || hang != nil {
		t.Error(err, hang)
	}
	t.Logf("%s: both legs had ended %v after the client left", what, decode.Round(100*time.Microsecond))
}

// early is a client that leaves before its request is whole, or before any leg.
type early struct {
	name, wire string
	inject     []shot
	rows       int
}

const earlyHead = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"

var earlies = []early{
	{"in the head", earlyHead + "Conte", nil, 0},
	{"before the body", earlyHead + "Content-Length: 90\r\n\r\n", nil, 1},
	{"in the body", earlyHead + "Content-Length: 90\r\n\r\n{\"prompt\":", nil, 1},
	{"in a chunk", earlyHead + "Transfer-Encoding: chunked\r\n\r\n5a\r\n{\"prompt\":", nil, 1},
	{"while it is counted", earlyHead + "Content-Length: 14\r\n\r\n{\"prompt\":\"x\"}", []shot{in("p0", "hang"), in("d0", "hang")}, 1},
}

// A client that leaves before its request is whole holds no engine.
func TestAbortBeforeAnyLeg(t *testing.T) {
	t.Parallel()
	settles(t)
	together(t, earlies, func(c early) string { return c.name }, func(t *testing.T, c early) { c.run(t) })
}

func (c early) run(t *testing.T) {
	b := startFleet(t, 1, 1, nil, steered, func(c *Config) { c.Fleet.Engine.Tokenize, c.Fleet.Engine.TokenizeTimeoutS = true, 15 })
	for _, s := range c.inject {
		b.inject(s.at, s.Injection)
	}
	conn, err := net.Dial("tcp", b.router.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, c.wire); err != nil {
		t.Fatal(err)
	}
	if c.rows > 0 {
		eventually(t, "offered", func() bool { return b.state().Offered == 1 })
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the row", func() bool { return b.state().Cancelled == c.rows && b.state().Admission["inflight"] == 0.0 })
	for _, s := range c.inject {
		b.inject(s.at, simulated.Injection{Kind: "clear"})
	}
	if err := b.idle(); err != nil {
		t.Error(err)
	}
	rows := b.rows()
	if len(rows) != c.rows {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		if outcome(r) != "cancelled admission" {
			t.Errorf("row %+v", r)
		}
	}
}
