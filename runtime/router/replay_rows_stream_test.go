package router

import (
	"net"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// A stream that a stop cuts off ends with an event that says so, and is not the client's doing.
func TestRow18StopEndsStreamsWithAnEvent(t *testing.T) {
	b := startReplay(t, rolesF1, false, func(c *Config) { c.Fleet.Serving.GracefulTimeoutS = 0 })
	got := b.begin(completion(`{"prompt":"x","max_tokens":8,"stream":true,"fault":{"kind":"gate_decode"}}`))
	b.seen("the stream", at("d0", "-a1-decode"))
	eventually(t, "first token out", func() bool { return started(b) })
	rows := b.rows()
	what := "events \"Hel\" · (cut off) → " + strings.Join(labels(replayEvents((<-got).body)), " · ")
	if judge := judgeCase("stream_at_stop", what); judge != "" {
		t.Error(judge)
	}
	if len(rows) != 1 || rows[0].Terminal != journal.Expired || rows[0].Reason == nil || *rows[0].Reason != model.ReasonShutdown {
		t.Errorf("row %+v", rows)
	}
}

// started reports whether some decode engine's token reached the router.
func started(b *replayBed) (yes bool) {
	b.router.own.do(func() {
		for _, n := range b.router.own.nodes {
			for l := range n.decoding {
				yes = yes || l.tokens.Load() > 0
			}
		}
	})
	return yes
}

// Events go to the client as the engine wrote them: the snowman is not escaped, an event's
// name stays with its data, early comments are kept.
func TestRow24StreamsAreRelayedByteForByte(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	a := b.complete(`{"prompt":"abc","max_tokens":8,"stream":true}`)
	id := a.header.Get("X-Request-Id")
	want := `data: {"id":"cmpl-` + id + `-a1-decode","object":"text_completion","created":1764430000,"model":"demo/model-1b","choices":[{"index":0,"text":" ☃","logprobs":null,"finish_reason":null,"stop_reason":null}]}`
	if !strings.Contains(a.body, want+"\n\n") {
		t.Errorf("no event %s in\n%s", want, a.body)
	}
	a = b.complete(`{"prompt":"abc","max_tokens":4,"stream":true,"fault":{"kind":"decode_ping"}}`)
	if !strings.HasPrefix(a.body, ": early\n\ndata: {") || !strings.Contains(a.body, "\n\n: ping\n\nevent: note\ndata: not json\n\n") {
		t.Errorf("%s", a.body)
	}
}

// Members that a newer engine sends are passed on in a buffered answer.
func TestRow25UnknownMembersAreKept(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	a := b.complete(`{"prompt":"abc","max_tokens":2,"fault":{"kind":"decode_news"}}`)
	if a.status != 200 || text(t, a.body) != "Hello" || !strings.Contains(a.body, `"novel":7`) || !strings.Contains(a.body, `"novel_choice":{"a":1}`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The legs of an engine with an https address are encrypted.
func TestRow23LegsOfAnHTTPSAddressSpeakTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan byte, 1)
	go func() {
		defer close(first)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 1)
		if _, err := c.Read(b); err == nil {
			first <- b[0]
		}
	}()
	defer l.Close()
	set := derive(Config{Fleet: replayFleet(t)})
	n, err := newNode(fleet.Engine{IID: "x", URL: "https://" + l.Addr().String(), Role: fleet.RoleDecode}, startReplayRow(t), &set)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := n.data.Do(limit(t), "/v1/completions", []byte("{}"), "id"); err == nil {
		resp.Body.Close()
		t.Error("the leg was answered")
	}
	const handshake = 22
	if got := <-first; got != handshake {
		t.Errorf("the leg began with byte %d", got)
	}
}

// Rows of the journal tell the wall clock.
func TestRow27RowsTellTheWallClock(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	b.complete(`{"prompt":[1],"max_tokens":1}`)
	b.complete(`{"prompt":5}`)
	start := b.router.own.unix(0)
	for _, row := range b.rows() {
		if row.AtUnix < start || row.AtUnix-start-row.Arrived > 1e-3 {
			t.Errorf("at %v, arrived %v after %v", row.AtUnix, row.Arrived, start)
		}
	}
}
