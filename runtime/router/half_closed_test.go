package router

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// To the server a client that only stopped sending has left: it is told nothing rather than a
// 200 of the server's own.
func TestHalfClosedClientGetsNoAnswer(t *testing.T) {
	b := startReplay(t, rolesF1, false)
	for _, stream := range []bool{true, false} {
		body := fmt.Sprintf(`{"prompt":"x","max_tokens":8,"stream":%v,"fault":{"kind":"gate_decode"}}`, stream)
		if stream {
			body = `{"prompt":"x","max_tokens":8,"stream":true,"fault":{"kind":"gate_prefill"}}`
		}
		c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		_ = c.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(c)
		c.Close()
		if len(got) > 0 {
			t.Errorf("stream %v: a client that left was told %q", stream, got)
		}
	}
	for _, r := range b.rows() {
		if r.Terminal != journal.Cancelled {
			t.Errorf("a row ends %s", r.Terminal)
		}
	}
}

func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	b := startReplay(t, []string{"p0 prefill", "p1 prefill", "d0 decode", "d1 decode"}, false)
	for _, c := range []struct {
		headers map[string]string
		status  int
	}{
		{map[string]string{"Origin": "http://evil.example"}, 403},
		{map[string]string{"Origin": "null"}, 403},
		{map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{map[string]string{"Origin": b.url, "Sec-Fetch-Site": "same-origin"}, 409},
		{map[string]string{}, 409},
	} {
		q, err := http.NewRequest(http.MethodPost, b.url+"/narwhal/lifecycle/drain", strings.NewReader(`{"engines":["nobody"]}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "text/plain")
		for k, v := range c.headers {
			q.Header.Set(k, v)
		}
		if a := send(t, q); a.status != c.status {
			t.Errorf("%v: %d %s, want %d", c.headers, a.status, a.body, c.status)
		}
	}
}
