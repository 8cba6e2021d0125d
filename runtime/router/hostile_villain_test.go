package router

import (
	"bufio"
	"bytes"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// villain is an engine that answers probes well and legs as its script says.
type villain struct {
	*stub
	script func(v *villain, c net.Conn) // of a leg; nil = as an honest engine
	roused atomic.Bool                  // the script is played
	sent   atomic.Int64                 // bytes of scripts
}

// listen serves until the test ends.
func (v *villain) listen(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go v.talk(c)
		}
	}()
	return l.Addr().String()
}

func (v *villain) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		path, id, body, err := readCall(r)
		if err != nil {
			return
		}
		if strings.HasPrefix(path, "/v1/") && path != "/v1/models" && v.roused.Load() && !bytes.Contains(body, []byte(`"prompt":"probe `)) {
			v.script(v, c)
			return
		}
		if v.answer(c, path, id, body) != nil {
			return
		}
	}
}

// put sends a piece; false once the router has had enough.
func (v *villain) put(c net.Conn, s string) bool {
	n, err := c.Write([]byte(s))
	v.sent.Add(int64(n))
	return err == nil
}

// tooMuch is what no router with a limit of 1 MB takes, buffers on the way included.
const tooMuch = 24 << 20

// again sends a piece for as long as the router takes it, and then waits for its end.
func (v *villain) again(c net.Conn, s string) {
	s = strings.Repeat(s, 1+8<<10/len(s))
	for v.put(c, s) {
		if v.sent.Load() > tooMuch {
			_, _ = c.Read(make([]byte, 1))
			return
		}
	}
}

const (
	streamHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" // until the end of the connection
	jsonHead   = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
	oneFrame   = `data: {"id":"x","object":"text_completion","choices":[{"index":0,"text":" a","finish_reason":null}]}` + "\n\n"
	lastFrame  = `data: {"id":"x","object":"text_completion","choices":[{"index":0,"text":" b","finish_reason":"length"}]}` + "\n\n"
	doneFrame  = "data: [DONE]\n\n"
)

// endless begins and then repeats.
func endless(beginning, piece string) func(*villain, net.Conn) {
	return func(v *villain, c net.Conn) {
		if v.put(c, beginning) {
			v.again(c, piece)
		}
	}
}

// says answers once and closes.
func says(s string) func(*villain, net.Conn) { return func(v *villain, c net.Conn) { v.put(c, s) } }

// mute answers and then neither speaks nor closes.
func mute(s string) func(*villain, net.Conn) {
	return func(v *villain, c net.Conn) {
		v.put(c, s)
		_, _ = c.Read(make([]byte, 1))
	}
}

// pings begins and then sends a comment now and then.
func pings(beginning string) func(*villain, net.Conn) {
	return func(v *villain, c net.Conn) {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for v.put(c, beginning) {
			beginning = ": hm\n\n"
			<-tick.C
		}
	}
}
