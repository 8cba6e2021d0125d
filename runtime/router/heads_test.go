package router

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A head that does not arrive in time is told 408, on a fresh connection and on one that was used,
// and a connection that waits for a next request is told nothing.
func TestASlowHeadIsTold(t *testing.T) {
	b := startBed(t, 0, 1, quick(), func(c *Config) {
		c.HTTP.HeaderTimeout, c.HTTP.IdleTimeout = 200*time.Millisecond, 300*time.Millisecond
	})
	const whole = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, c := range []struct{ name, sent, want string }{
		{"in a line", "GET /health HTTP/1.1\r\nHo", "HTTP/1.1 408"},
		{"in the first line", "GET /hea", "HTTP/1.1 408"},
		{"behind a line", "GET /health HTTP/1.1\r\nHost: localhost\r\n", "HTTP/1.1 408"},
		{"nothing", "", ""},
		{"idle", whole, "HTTP/1.1 200"},
	} {
		conn, err := net.Dial("tcp", b.router.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(conn, c.sent)
		all, _ := io.ReadAll(conn)
		conn.Close()
		if got := string(all); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || strings.Count(got, "HTTP/1.1") > 1 ||
			strings.Contains(c.want, "408") && !strings.HasSuffix(got, `"type":"request_timeout","param":null,"code":null}}`) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	conn, err := net.Dial("tcp", b.router.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(conn, whole)
	r := bufio.NewReader(conn)
	first, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, first.Body)
	_, _ = io.WriteString(conn, "GET /health HT")
	second, err := http.ReadResponse(r, nil)
	if err != nil || second.StatusCode != http.StatusRequestTimeout {
		t.Errorf("the second request: %v, %v", second, err)
	}
}
