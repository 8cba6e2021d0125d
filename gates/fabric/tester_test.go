package fabric

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
)

// serving starts a tester on loopback, TCP and UDP on one port; it ends with the test.
func serving(t testing.TB, tools map[string][]string) string {
	t.Helper()
	l, d := listening(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, d, tools) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the tester does not end")
		}
	})
	return l.Addr().String()
}

func listening(t testing.TB) (net.Listener, *datagrams) {
	t.Helper()
	for range 20 { // the TCP port may be taken for UDP
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if d, err := listenDatagrams(l.Addr().String()); err == nil {
			return l, d
		}
		_ = l.Close()
	}
	t.Fatal("no port is free for TCP and UDP")
	return nil, nil
}

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func request(address string) PairRequest {
	return PairRequest{A: "h1", B: "h2", Address: address, Streams: 2, For: fleet.Duration(300 * time.Millisecond)}
}

func TestMeasurePair(t *testing.T) {
	address := serving(t, nil)
	var prints []string
	for range 2 { // a tester takes one sample after another
		p, err := MeasurePair(limited(t), request(address))
		if err != nil {
			t.Fatal(err)
		}
		if p.A != "h1" || p.B != "h2" || p.Tool != toolName || p.Streams != 2 || p.RTT <= 0 || p.RTT > 1e6 || p.Unreachable != "" {
			t.Errorf("sample %+v", p)
		}
		for _, end := range []End{p.EndA, p.EndB} {
			if end.Route != "lo 127.0.0.1" || end.MTU <= 0 || end.Seen != "127.0.0.1" || end.Gateway != "" {
				t.Errorf("end %+v", end)
			}
		}
		for _, d := range []Direction{p.Forward, p.Back} {
			if len(d.Together) != togetherRepeats || len(d.Alone) != aloneRepeats || d.Gbps <= 0 || d.AloneGbps <= 0 || d.Bytes < 1<<20 {
				t.Errorf("direction %+v", d)
			}
			if d.PathMTU != min(p.EndA.MTU, mostMTU) || d.Datagrams < 2*trainLength/5 || d.Lost() >= leastLost {
				t.Errorf("datagrams: largest %d of %d, %d of %d arrived, %d overran", d.PathMTU, p.EndA.MTU, d.Arrived, d.Datagrams, d.Overrun)
			}
			if len(d.Curve) < 1 || d.Curve[0].Bytes != curveSizes[0] || d.Curve[0].Seconds <= 0 {
				t.Errorf("curve %v", d.Curve)
			}
		}
		prints = append(prints, p.Fingerprint)
	}
	if prints[0] == "" || prints[0] != prints[1] {
		t.Errorf("fingerprints %v", prints)
	}
}

// TestFactsAreWhatALiveLookSees: evidence holds while the look of a later run tells the same
// of the way, so both must be one text, and it names what the link negotiated.
func TestFactsAreWhatALiveLookSees(t *testing.T) {
	q := request(serving(t, nil))
	q.For = fleet.Duration(100 * time.Millisecond)
	p, err := MeasurePair(limited(t), q)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := gates.Look(gates.Looking{Root: t.TempDir(), Peers: map[string]string{"h2": "127.0.0.1", "h1": "127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	facts := Gate{}.Facts("D/pair/h1/h2", b)
	want := fmt.Sprintf("lo 127.0.0.1 mtu %d", p.EndA.MTU)
	for fact, look := range map[string]string{"host/h1/route/h2": "route/h2", "host/h2/route/h1": "route/h1"} {
		if facts[fact] != want || seen.Facts[look] != want {
			t.Errorf("%s is %q, a look sees %q, want %q", fact, facts[fact], seen.Facts[look], want)
		}
	}
}

// TestCurveTakesTheSizesAsked: from one block to the payload, as long as its time lasts, and
// one size at least.
func TestCurveTakesTheSizesAsked(t *testing.T) {
	address := serving(t, nil)
	q := request(address)
	q.Sizes = []int64{3000, 1 << 20, 5 << 20, maxMessage}
	p, err := MeasurePair(limited(t), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []Direction{p.Forward, p.Back} {
		if len(d.Curve) == 0 || len(d.Curve) == len(q.Sizes) { // a thousand MiB do not fit in a part of 300 ms
			t.Errorf("curve %v", d.Curve)
		}
		for i, c := range d.Curve {
			if c.Bytes != q.Sizes[i] || !(c.Seconds > 0) {
				t.Errorf("point %d is %+v, asked was %d", i, c, q.Sizes[i])
			}
		}
	}
}

// TestHistoryIsOfTheSameFingerprint keeps earlier samples only where they compare.
func TestHistoryIsOfTheSameFingerprint(t *testing.T) {
	address := serving(t, nil)
	q := request(address)
	q.For = fleet.Duration(100 * time.Millisecond)
	first, err := MeasurePair(limited(t), q)
	if err != nil {
		t.Fatal(err)
	}
	q.History = []Past{{Fingerprint: first.Fingerprint, Forward: 1}, {Fingerprint: "another", Forward: 2}}
	p, err := MeasurePair(limited(t), q)
	if err != nil || len(p.History) != 1 || p.History[0].Forward != 1 {
		t.Errorf("history %v, %v", p.History, err)
	}
	q.Streams = 1
	if p, err := MeasurePair(limited(t), q); err != nil || len(p.History) != 0 {
		t.Errorf("other parameters: history %v, %v", p.History, err)
	}
}

func TestMeasureIncast(t *testing.T) {
	from := map[string]string{"h2": serving(t, nil), "h3": serving(t, nil), "h4": serving(t, nil)}
	q := IncastRequest{Host: "h1", From: from, For: fleet.Duration(300 * time.Millisecond), Pulls: 1}
	i, err := MeasureIncast(limited(t), q)
	if err != nil {
		t.Fatal(err)
	}
	if len(i.Repeat) < incastRepeats || len(i.Repeat) > mostIncast || i.Gbps <= 0 || len(i.Shares) != 3 || len(i.Missing) != 0 || i.Interface != "lo" {
		t.Errorf("incast %+v", i)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and closes
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	q.From["h5"] = l.Addr().String()
	if i, err = MeasureIncast(limited(t), q); err != nil || i.Missing["h5"] == "" || len(i.Shares) != 3 {
		t.Errorf("with a sender that is not there: %+v, %v", i, err)
	}
}

func TestMeasureRefuses(t *testing.T) {
	for name, change := range map[string]func(*PairRequest){
		"no port":          func(q *PairRequest) { q.Address = "127.0.0.1" },
		"no stream":        func(q *PairRequest) { q.Streams = 0 },
		"too many streams": func(q *PairRequest) { q.Streams = maxStreams + 1 },
		"no length":        func(q *PairRequest) { q.For = 0 },
		"an endless one":   func(q *PairRequest) { q.For = fleet.Duration(time.Hour) },
		"no size":          func(q *PairRequest) { q.Sizes = []int64{0, 1} },
		"too large a size": func(q *PairRequest) { q.Sizes = []int64{1, maxMessage + 1} },
		"sizes that fall":  func(q *PairRequest) { q.Sizes = []int64{8, 4} },
		"too many sizes":   func(q *PairRequest) { q.Sizes = []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17} },
	} {
		q := request("127.0.0.1:1")
		change(&q)
		if _, err := MeasurePair(limited(t), q); err == nil || !strings.Contains(err.Error(), ": want ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := MeasureIncast(limited(t), IncastRequest{Host: "h1"}); err == nil {
		t.Error("an incast from nobody")
	}
	if _, err := MeasureTool(limited(t), toolRequest("rm", "", "rm")); err == nil {
		t.Error("a tool that is none")
	}
	if _, err := MeasureTool(limited(t), toolRequest(toolIperf, "", "rm")); err == nil {
		t.Error("a tool that is called otherwise")
	}
}

// TestUnreachableIsEvidence: what cannot be reached is told with the reason, not an error.
func TestUnreachableIsEvidence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 \x1b[31mwhat\r\n"))
			_ = c.Close()
		}
	}()
	defer l.Close()
	p, err := MeasurePair(limited(t), request(address))
	if err != nil || p.Unreachable == "" || strings.ContainsRune(p.Unreachable, '\x1b') || p.Fingerprint == "" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := MeasurePair(ctx, request(l.Addr().String())); err == nil || time.Since(begin) > 11*time.Second {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
}

// TestUnknownTokenIsNotCounted sends first lines with a token that nobody opened.
func TestUnknownTokenIsNotCounted(t *testing.T) {
	address := serving(t, nil)
	for _, op := range []string{"stream", "pull", "curve"} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeLine(c, control{Op: op, Token: newToken()}); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the tester keeps a %s that nobody opened: %v", op, err)
		}
		_ = c.Close()
	}
}

// TestStrangersBytesDoNotCount holds a transfer open and lets others knock.
func TestStrangersBytesDoNotCount(t *testing.T) {
	address := serving(t, nil)
	ctx := limited(t)
	m, _, err := open(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	tr, err := m.ready(ctx, 1, 0, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.drop()
	for _, first := range []control{{Op: "stream", Token: newToken(), Phase: tr.id}, {Op: "stream", Token: m.token, Phase: tr.id}, {Op: "stream", Token: m.token, Phase: tr.id + 1}} {
		if _, _, err := m.attach(ctx, first); err == nil {
			t.Errorf("%+v is let in", first)
		}
	}
	if _, err := m.ask(control{Op: "go", Phase: tr.id}); err != nil {
		t.Fatal(err)
	}
	here := tr.run()
	there, err := m.finish(tr.id)
	if err != nil || there.Bytes > here.Sent.Bytes || there.Streams != 1 {
		t.Errorf("%d bytes of %d, %v", there.Bytes, here.Sent.Bytes, err)
	}
}

// TestTesterRefuses sends lines that do not fit the state of their session.
func TestTesterRefuses(t *testing.T) {
	address := serving(t, nil)
	m, _, err := open(limited(t), address)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	for _, line := range []control{
		{Op: "sing"}, {Op: "go", Phase: 1}, {Op: "end", Phase: 1}, {Op: "phase", Phase: 1}, {Op: "phase", Phase: 1, Streams: 1000, For: time.Second},
		{Op: "phase", Phase: 1, Streams: 1, For: time.Hour}, {Op: "phase", Phase: 1, Streams: 1, For: time.Second, Skip: time.Second}, {Op: "phase", Phase: 1, Streams: -1, Pulls: 2, For: time.Second},
		{Op: "tool", Tool: "rm"}, {Op: "tool"},
	} {
		if _, err := m.ask(line); err == nil {
			t.Errorf("%+v is done", line)
		}
	}
	for _, line := range []control{{Op: "phase", Phase: 3, Streams: 1, For: time.Second}, {Op: "mtu", Count: 9000}} { // the session lives on
		if answer, err := m.ask(line); err != nil || answer.Count != 0 {
			t.Errorf("%+v: %+v, %v", line, answer, err)
		}
	}
	if _, err := m.ask(control{Op: "go", Phase: 3}); err == nil {
		t.Error("a transfer begins before its streams are there")
	}
	if _, _, err := open(limited(t), address); err != nil {
		t.Error(err)
	}
}

func TestTooManyConnections(t *testing.T) {
	address := serving(t, nil)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	refused := 0
	for range maxOpen + 8 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	for _, c := range held[maxOpen:] {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			refused++
		}
	}
	if refused != 8 {
		t.Errorf("%d of 8 connections too many are refused", refused)
	}
	for _, c := range held {
		_ = c.Close()
	}
	q := request(address)
	q.For = fleet.Duration(50 * time.Millisecond)
	for ctx := limited(t); ctx.Err() == nil; { // seats are given back
		if p, err := MeasurePair(ctx, q); err == nil && p.Unreachable == "" {
			return
		}
	}
	t.Error("the tester stays full")
}

// lying answers a session's lines with what a test says.
func lying(t *testing.T, answers map[string]string) string {
	t.Helper()
	l, d := listening(t)
	_ = d.conn.Close()
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				r := bufio.NewReaderSize(c, maxLine)
				for {
					line, err := readLine(r)
					if err != nil {
						return
					}
					answer, ok := answers[line.Op]
					if !ok {
						answer = fmt.Sprintf(`{"op":%q}`, line.Op) + "\n"
					}
					if _, err := io.WriteString(c, answer); err != nil || line.Op == "stream" || line.Op == "pull" || line.Op == "curve" {
						if line.Op != "curve" {
							_, _ = io.Copy(io.Discard, c)
						}
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// TestMeasureTrustsNobody feeds the asker answers that no tester gives.
func TestMeasureTrustsNobody(t *testing.T) {
	honest := map[string]string{
		"open": `{"op":"open","end":{"route":"eth1 192.0.2.9\u001b[31m","mtu":1500}}` + "\n",
		"end":  `{"op":"end","counted":{"bytes":0,"window_ns":1000}}` + "\n",
	}
	q := request("")
	q.For = fleet.Duration(50 * time.Millisecond)
	ask := func(op, answer string) (Pair, error) {
		answers := map[string]string{}
		for k, v := range honest {
			answers[k] = v
		}
		if op != "" {
			answers[op] = answer
		}
		q.Address = lying(t, answers)
		return MeasurePair(limited(t), q)
	}
	p, err := ask("", "")
	if err != nil || p.EndB.Route != "eth1 192.0.2.9[31m" || p.Forward.PathMTU != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	for name, c := range map[string]struct{ op, answer string }{
		"an end that makes no sense": {"end", `{"op":"end"}` + "\n"},
		"no time":                    {"end", `{"op":"end","counted":{"bytes":5,"window_ns":0}}` + "\n"},
		"less than none":             {"end", `{"op":"end","counted":{"bytes":-5,"window_ns":5}}` + "\n"},
		"another type":               {"end", `{"op":"end","counted":{"bytes":"many"}}` + "\n"},
		"more than was sent":         {"end", `{"op":"end","counted":{"bytes":100000000000000,"window_ns":1}}` + "\n"},
		"another operation":          {"phase", `{"op":"ping"}` + "\n"},
		"an error":                   {"counters", `{"op":"counters","error":"no \u001b[31msuch thing"}` + "\n"},
		"a giant datagram":           {"mtu", `{"op":"mtu","count":70000}` + "\n"},
		"no JSON":                    {"counters", "hello\n"},
		"an endless line":            {"counters", strings.Repeat("x", maxLine+10)},
	} {
		p, err := ask(c.op, c.answer)
		if err == nil {
			t.Errorf("%s: believed %+v", name, p)
		} else if strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%s: %q", name, err)
		}
	}
	for name, answer := range map[string]string{"no JSON": "hello\n", "an endless line": strings.Repeat("x", maxLine+10), "no end": `{"op":"open"}` + "\n"} {
		if p, err := ask("open", answer); err != nil || p.Unreachable == "" {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// addressed is a pipe with an address of a peer.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

func TestTesterEndsWhenNobodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		begin := time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			if err := serve(t.Context(), l, nil, nil); err != nil {
				t.Error(err)
			}
			ended <- time.Since(begin)
		}()
		time.Sleep(9 * time.Minute)
		ours, theirs := net.Pipe()
		l.conns <- addressed{theirs}
		time.Sleep(9 * time.Minute)
		select {
		case at := <-ended:
			t.Fatalf("it ended after %s, although somebody connected at 9 minutes", at)
		default:
		}
		if at := <-ended; at != 19*time.Minute {
			t.Errorf("it ended after %s, want 10 minutes after the last connection at 9", at)
		}
		if _, err := ours.Read(make([]byte, 1)); err == nil {
			t.Error("its connection lives on")
		}
	})
}

// TestTesterStaysWhileItIsAsked: a session that asks keeps it, though nobody connects anew.
func TestTesterStaysWhileItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		begin := time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			if err := serve(t.Context(), l, nil, nil); err != nil {
				t.Error(err)
			}
			ended <- time.Since(begin)
		}()
		ours, theirs := net.Pipe()
		l.conns <- addressed{theirs}
		r := bufio.NewReader(ours)
		if _, err := ask(ours, r, control{Op: "open", Token: newToken()}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			time.Sleep(9 * time.Minute)
			if _, err := ask(ours, r, control{Op: "ping"}); err != nil {
				t.Fatal(err)
			}
		}
		if at := <-ended; at != 28*time.Minute {
			t.Errorf("it ended after %s, want 10 minutes after the last question at 18", at)
		}
	})
}

func TestAcceptErrorEndsTheTester(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		ended := make(chan error, 1)
		begin := time.Now()
		go func() { ended <- serve(t.Context(), l, nil, nil) }()
		_, theirs := net.Pipe()
		l.conns <- addressed{theirs}
		synctest.Wait()
		_ = l.Close()
		if err := <-ended; err == nil || time.Since(begin) > time.Second {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
	})
}

// FuzzHandle feeds a tester any bytes: it ends, and what it answers is lines of JSON.
func FuzzHandle(f *testing.F) {
	token := strings.Repeat("a", 32)
	for _, s := range []string{
		"", "\n", "{}\n", `{"op":"open","token":"` + token + `"}` + "\n" + `{"op":"ping"}` + "\n" + `{"op":"end"}` + "\n",
		`{"op":"open","token":"` + token + `"}` + "\n" + `{"op":"phase","phase":1,"streams":1,"for_ns":1000}` + "\n" + `{"op":"go","phase":1}` + "\n",
		`{"op":"stream","token":"` + token + `"}` + "\nxxxxx", `{"op":"open"}` + "\n{\n", `{"op":1}` + "\n", strings.Repeat("x", 5000), `{"op":"open","count":1e999}` + "\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		tester := &tester{sys: t.TempDir(), asked: func() {}, sessions: map[string]*session{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer theirs.Close()
			tester.handle(t.Context(), addressed{theirs})
		}()
		var got bytes.Buffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&got, ours)
		}()
		_, _ = ours.Write(b)
		_ = ours.Close()
		<-done
		<-read
		for line := range bytes.SplitSeq(bytes.TrimSuffix(got.Bytes(), []byte("\n")), []byte("\n")) {
			if len(line) > 0 && !json.Valid(line) {
				t.Errorf("answered %q", line)
			}
		}
		if len(tester.sessions) != 0 {
			t.Errorf("%d sessions are left", len(tester.sessions))
		}
	})
}

// FuzzDatagram feeds a socket any datagram: nothing is sent to anybody for one without a
// token, and no count grows.
func FuzzDatagram(f *testing.F) {
	token := [tokenBytes]byte{1}
	f.Add(packDatagram(kindTrain, token, 1, nil))
	f.Add(packDatagram(kindEcho, token, 1, []byte{0, 0, 0, 9}))
	f.Add([]byte(datagramMark))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &datagrams{by: map[[tokenBytes]byte]*probe{}}
		p, err := d.session(strings.Repeat("ff", tokenBytes))
		if err != nil {
			t.Fatal(err)
		}
		if kind, token, _, ok := parseDatagram(b); ok && token == p.token && (kind == kindSize) {
			return // would be answered
		}
		d.take(b, net.UDPAddrFromAddrPort((&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}).AddrPort()).AddrPort())
		_, known, _, ok := parseDatagram(b)
		if got, _ := p.arrived(); got > 0 && (!ok || known != p.token) {
			t.Errorf("%d datagrams of a stranger count", got)
		}
	})
}

func TestCountersThatTell(t *testing.T) {
	before := map[string]int64{"rx_crc_errors": 1, "tx_dropped": 5, "driver/rx_prio3_pause": 7}
	after := map[string]int64{"rx_crc_errors": 3, "tx_dropped": 5, "driver/rx_prio3_pause": 9, "new_errors": 4}
	got := rises(before, after)
	if len(got) != 2 || got["rx_crc_errors"] != 2 || got["driver/rx_prio3_pause"] != 2 {
		t.Errorf("rises %v", got)
	}
	if !damaged("mlx5_0:1/symbol_error") || !damaged("rx_crc_errors") || damaged("tx_dropped") || damaged("driver/rx_prio3_pause") || damaged("rx_missed_errors") {
		t.Error("what is damage and what is not")
	}
	live := counters("/sys", "lo")
	if _, ok := live["rx_errors"]; !ok || slices.ContainsFunc([]string{"rx_bytes", "rx_packets"}, func(n string) bool { _, ok := live[n]; return ok }) {
		t.Errorf("counters of lo: %v", live)
	}
	if len(counters("/sys", "../net/lo")) != 0 || len(counters("/sys", "")) != 0 {
		t.Error("counters of a path")
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
