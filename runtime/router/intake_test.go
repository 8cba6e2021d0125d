package router

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// raw sends bytes as they are, keeps the connection open and reads one answer.
func (b *testbed) raw(text string) (status int, header http.Header, body string) {
	b.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	// Far below the request timeout of 20 s: an answer that waits for more input fails here.
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		b.t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(all)
}

func TestBrokenBodiesAreAnswered(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	const head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
	for _, c := range []struct {
		name, rest string
		status     int
		want       string
	}{
		{"bad chunk", "Transfer-Encoding: chunked\r\n\r\nZZZ\r\n", 400, `"type":"invalid_request_error"`},
		{"bad later chunk", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nZZZ\r\n", 400, `"type":"invalid_request_error"`},
		{"declared too long", "Content-Length: 99999999999\r\n\r\n", 413, `"type":"request_too_large"`},
		{"declared a little too long", fmt.Sprintf("Content-Length: %d\r\n\r\n", 1<<20+1), 413, `"type":"request_too_large"`},
		{"waits for a word to go on", "Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n", 413, `"type":"request_too_large"`},
	} {
		status, header, body := b.raw(head + c.rest)
		if status != c.status || !strings.Contains(body, c.want) || header.Get("Content-Type") != "application/json" || len(header.Get("X-Request-Id")) != 36 {
			t.Errorf("%s: %d %v %q", c.name, status, header, body)
		}
	}
	for _, row := range b.rows() {
		if row.Terminal != journal.Invalid || row.Status == nil {
			t.Errorf("row %+v", row)
		}
	}
}

// A small limit keeps the declared length below what the server would drain by itself.
func TestSmallLimitAnswersAtOnce(t *testing.T) {
	b := startBed(t, 0, 1, quick(), func(c *Config) { c.Fleet.Serving.MaxRequestBytes = 100 })
	status, _, body := b.raw("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 101\r\n\r\n")
	if status != 413 || !strings.Contains(body, "request_too_large") {
		t.Errorf("%d %s", status, body)
	}
}

// A member has one name, whether the router or an engine refuses its value.
func TestRefusedMemberHasOneName(t *testing.T) {
	b := startBed(t, 0, 1, quick())
	for _, v := range []string{"true", "-1", "1180591620717411303424"} {
		a := b.complete(map[string]any{"prompt": "x", "max_tokens": json.RawMessage(v)})
		if a.status != 400 || !strings.Contains(a.body, `"param":"max_tokens"`) {
			t.Errorf("%s: %d %s", v, a.status, a.body)
		}
	}
}

func TestPromptBeyondEveryContext(t *testing.T) {
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		for i := range c.Profiles.Rows {
			c.Profiles.Rows[i].TTFTB = 0.001 // 8192 tokens cost 8 s; the promise is 2 s
		}
	})
	for _, c := range []struct {
		name   string
		path   string
		body   map[string]any
		status int
		want   string
	}{
		{"ids", "/v1/completions", map[string]any{"prompt": make([]int, 8192)}, 400, `"type":"invalid_request_error","param":"prompt"`},
		{"text", "/v1/completions", map[string]any{"prompt": strings.Repeat("whale ", 9000)}, 400, "8192 tokens"},
		{"chat", "/v1/chat/completions", map[string]any{"messages": []any{map[string]any{"role": "user", "content": strings.Repeat("whale ", 9000)}}}, 400, `"param":"messages"`},
		{"late, not impossible", "/v1/completions", map[string]any{"prompt": make([]int, 8191)}, 429, "waiting does not help"},
		{"several that fit each", "/v1/completions", map[string]any{"prompt": [][]int{make([]int, 6000), make([]int, 6000)}}, 429, "waiting does not help"},
		{"one of several", "/v1/completions", map[string]any{"prompt": [][]int{make([]int, 8192), make([]int, 1)}}, 400, "8192 tokens"},
		{"one text of several", "/v1/completions", map[string]any{"prompt": []string{strings.Repeat("whale ", 9000), "b"}}, 400, `"type":"invalid_request_error","param":"prompt"`},
		{"texts that fit each", "/v1/completions", map[string]any{"prompt": []string{strings.Repeat("whale ", 4000), strings.Repeat("whale ", 4000)}}, 429, "waiting does not help"},
		{"cut by the engine", "/v1/completions", map[string]any{"prompt": make([]int, 8192), "truncate_prompt_tokens": 100}, 429, "waiting does not help"},
	} {
		a := post(t, limit(t), b.url+c.path, c.body)
		if a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%s: %d %s", c.name, a.status, a.body)
		}
	}
	// An engine that never told its limit may hold more: nobody is told that it cannot.
	b.router.own.do(func() { b.router.own.node("d0").known = false })
	if a := b.complete(map[string]any{"prompt": make([]int, 8192)}); a.status != 429 {
		t.Errorf("limit unknown: %d %s", a.status, a.body)
	}
}

// Several sequences of one prompt run whole on one engine: a handoff carries one.
func TestWideRequestsAreServedUnsplit(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	a := b.complete(map[string]any{"prompt": "x", "n": 2, "max_tokens": 5})
	if a.status != 200 || strings.Count(a.body, `"finish_reason"`) != 2 {
		t.Errorf("buffered: %d %s", a.status, a.body)
	}
	for _, k := range []string{"n", "best_of"} {
		if a := b.complete(map[string]any{"prompt": "x", k: 1_000_000_000}); a.status != 400 || !strings.Contains(a.body, `"param":"`+k+`"`) {
			t.Errorf("%s: %d %s", k, a.status, a.body)
		}
	}
	a = b.complete(map[string]any{"prompt": "x", "n": 2, "max_tokens": 5, "stream": true})
	if a.status != 200 || strings.Count(a.body, `"finish_reason":"length"`) != 2 || strings.Count(a.body, "[DONE]") != 1 {
		t.Errorf("streamed: %d %s", a.status, a.body)
	}
	for _, r := range b.rows() {
		if r.Terminal != journal.Invalid && (r.Crossed || r.DecodeAttempts != 1 || r.Terminal != journal.Completed) {
			t.Errorf("row %+v", r)
		}
	}
}

// What a client says of the KV transfer reaches no engine.
func TestTransferFieldsAreStrippedAndCounted(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	want := b.complete(map[string]any{"prompt": "whale song", "max_tokens": 6})
	got := b.complete(map[string]any{"prompt": "whale song", "max_tokens": 6, "kv_transfer_params": map[string]any{"do_remote_prefill": true, "remote_engine_id": "x"},
		"bootstrap_room": 7, "bootstrap_host": "evil"})
	if got.status != 200 || text(t, got.body) != text(t, want.body) {
		t.Errorf("%d %s", got.status, got.body)
	}
	b.router.own.do(func() {
		if n := b.router.own.n.stripped; n["kv_transfer_params"] != 1 || n["bootstrap"] != 2 {
			t.Errorf("counted %v", n)
		}
	})
}

func TestTokenizePassesThrough(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	a := post(t, limit(t), b.url+"/tokenize", map[string]any{"prompt": "whale song"})
	var n struct {
		Count  int
		Tokens []int
	}
	if json.Unmarshal([]byte(a.body), &n) != nil || a.status != 200 || n.Count == 0 || len(n.Tokens) != n.Count {
		t.Errorf("%d %s", a.status, a.body)
	}
	for body, want := range map[string]int{`{"model":"other","prompt":"x"}`: 404, `[1]`: 400, `{"prompt":{}}`: 400, `{"prompt":"` + strings.Repeat("x", 1<<20) + `"}`: 413} {
		if a := post(t, limit(t), b.url+"/tokenize", body); a.status != want || !strings.Contains(a.body, `"error"`) {
			t.Errorf("%.20s: %d %s", body, a.status, a.body)
		}
	}
}

// A body that does not come is given up long before the request's deadline.
func TestSlowBodyIsGivenUp(t *testing.T) {
	b := startBed(t, 0, 1, quick(), func(c *Config) { c.HTTP.BodyTimeout = 50 * time.Millisecond })
	status, header, body := b.raw("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
	if status != 408 || !strings.Contains(body, `"type":"request_timeout"`) {
		t.Errorf("%d %v %s", status, header, body)
	}
}

func TestMetricsAnswerHead(t *testing.T) {
	b := startBed(t, 0, 1, quick())
	for path, want := range map[string]int{"/metrics": 200, "/health": 405} {
		resp, err := http.Head(b.url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("HEAD %s: %d", path, resp.StatusCode)
		}
	}
}

func TestForeignHostNames(t *testing.T) {
	b := startBed(t, 0, 1, quick())
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:8000": 200, "localhost.": 200, "127.0.0.1:9": 200, "127.0.0.2": 200, "[::1]:80": 200, "[::1]": 200,
		"evil.example": 421, "evil.example:8000": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "192.0.2.7": 421, "0.0.0.0:8000": 421,
	} {
		for _, path := range []string{"/health", "/narwhal/state"} {
			got, header, body := b.raw("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
			if got != status || status == 421 && (header.Get("Content-Type") != "application/json" || !strings.Contains(body, `{"error":{"message":`)) {
				t.Errorf("%s %s: %d %s", host, path, got, body)
			}
		}
	}
	if got, _, body := b.raw("POST /narwhal/lifecycle/drain HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 13\r\n\r\n{\"wave\":true}"); got != 421 {
		t.Errorf("drain: %d %s", got, body)
	}
	if s := b.state(); s.Lifecycle.Wave.Active {
		t.Error("a foreign name held the fleet")
	}
}

func TestHostsOfAnOpenListener(t *testing.T) {
	for _, c := range []struct {
		listen string
		bound  string
		host   string
		ok     bool
	}{
		{"0.0.0.0:8000", "[::]:8000", "router.example:8000", true},
		{"192.0.2.1:8000", "192.0.2.1:8000", "anything", true},
		{"ip6-localhost:8000", "[::1]:8000", "IP6-localhost:8000", true},
		{"ip6-localhost:8000", "[::1]:8000", "other", false},
		{"127.0.0.1:8000", "127.0.0.1:8000", "", true},
	} {
		addr, err := net.ResolveTCPAddr("tcp", c.bound)
		if err != nil {
			t.Fatal(err)
		}
		if got := ownHost(c.host, c.listen, addr); got != c.ok {
			t.Errorf("%s on %s: %v", c.host, c.listen, got)
		}
	}
}

// Probes answer although the owner does not.
func TestProbesOfAStuckRouter(t *testing.T) {
	b := startBed(t, 0, 1, quick())
	entered, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.router.own.do(func() { close(entered); <-release })
	}()
	<-entered
	for _, path := range []string{"/health", "/ready", "/narwhal/state"} {
		status, _, body := b.raw("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if status != 503 || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	close(release)
	<-done
	for _, path := range []string{"/health", "/ready", "/narwhal/state"} {
		if status := b.get(path, nil); status != 200 {
			t.Errorf("%s afterwards: %d", path, status)
		}
	}
}

// Two routers on one journal would drive one fleet twice.
func TestSecondRouterOnAJournalIsRefused(t *testing.T) {
	b := startBed(t, 0, 1, quick())
	cfg := b.router.set.Config
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = r.Start(limit(t))
	if err == nil {
		_ = r.Stop(limit(t))
		t.Fatal("a second router started")
	}
	if !strings.Contains(err.Error(), "journal") {
		t.Errorf("start: %v", err)
	}
	if len(b.rows()) != 0 {
		t.Error("the journal holds rows")
	}
}
