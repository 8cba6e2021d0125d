package router

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

type hostile struct {
	name   string
	wire   string
	want   []int // allowed statuses of the first answer; 0 = closed without one
	most   int   // answers; 0 = 1
	json   bool  // a refusal has OpenAI's form
	closes bool  // the connection must not be used again
}

var refusedOrClosed = []int{0, 400, 431, 501, 505}

func hostileWires() []hostile {
	const host = "Host: 127.0.0.1\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(simpleBody))
	next := "GET /health HTTP/1.1\r\n" + host + "\r\n"
	return []hostile{
		{"length and chunks", wired(length+"Transfer-Encoding: chunked\r\n", chunked(simpleBody, "")+next), []int{0, 200, 400}, 2, false, true},
		{"chunks and length", wired("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", chunked(simpleBody, "")+next), []int{0, 200, 400}, 2, false, true},
		{"two lengths", wired("Content-Length: 5\r\n"+length, simpleBody), refusedOrClosed, 0, false, true},
		{"a list of lengths", wired("Content-Length: 5, 72\r\n", simpleBody), refusedOrClosed, 0, false, true},
		{"negative length", wired("Content-Length: -1\r\n", simpleBody), refusedOrClosed, 0, false, true},
		{"signed length", wired("Content-Length: +72\r\n", simpleBody), refusedOrClosed, 0, false, true},
		{"length of 30 digits", wired("Content-Length: "+strings.Repeat("9", 30)+"\r\n", simpleBody), refusedOrClosed, 0, false, true},
		{"space before the colon", wired(strings.Replace(length, ":", " :", 1), simpleBody), refusedOrClosed, 0, false, true},
		{"folded header", wired("X-A: b\r\n c\r\n"+length, simpleBody), []int{200, 400}, 0, false, false},
		{"folded length", wired("Content-Length: 7\r\n 2\r\n", simpleBody), refusedOrClosed, 0, false, true},
		{"bare line feeds", strings.ReplaceAll(sized(simpleBody), "\r\n", "\n"), []int{200, 400}, 0, false, false},
		{"bare carriage return in a value", wired("X-A: b\rTransfer-Encoding: chunked\r\n"+length, simpleBody), []int{0, 200, 400}, 0, false, false},
		{"NUL in a header", wired("X-A: \x00\r\n"+length, simpleBody), refusedOrClosed, 0, false, true},
		{"unknown encoding", wired("Transfer-Encoding: xchunked\r\n", simpleBody), refusedOrClosed, 0, false, true},
		{"two encodings", wired("Transfer-Encoding: gzip, chunked\r\n", chunked(simpleBody, "")), refusedOrClosed, 0, false, true},
		{"chunked twice", wired("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunked(simpleBody, "")), refusedOrClosed, 0, false, true},
		{"a chunk extension", wired("Transfer-Encoding: chunked\r\n", chunked(simpleBody, ";a=b")), []int{200, 400}, 0, true, false},
		{"an extension of 1 MB", wired("Transfer-Encoding: chunked\r\n", chunked(simpleBody, ";a="+strings.Repeat("b", 1<<20))), []int{400}, 0, true, true},
		{"chunks of one byte with extensions", wired("Transfer-Encoding: chunked\r\n", strings.Repeat("1;"+strings.Repeat("e", 200)+"\r\n \r\n", 3000)), []int{400, 413}, 0, true, true},
		{"chunk size beyond 64 bits", wired("Transfer-Encoding: chunked\r\n", strings.Repeat("F", 17)+"\r\nx"), []int{400}, 0, true, true},
		{"largest chunk size", wired("Transfer-Encoding: chunked\r\n", "7FFFFFFFFFFFFFFF\r\n{"), []int{408}, 0, true, true},
		{"negative chunk size", wired("Transfer-Encoding: chunked\r\n", "-1\r\nx"), []int{400}, 0, true, true},
		{"chunk without its line end", wired("Transfer-Encoding: chunked\r\n", "2\r\n{}xx0\r\n\r\n"), []int{400}, 0, true, true},
		{"a trailer of 1 MB", wired("Transfer-Encoding: chunked\r\n", strings.TrimSuffix(chunked(simpleBody, ""), "\r\n")+"X: "+strings.Repeat("t", 1<<20)+"\r\n\r\n"), []int{0, 200, 400}, 0, true, false},
		{"100,000 headers", wired(strings.Repeat("X-A: b\r\n", 100000)+length, simpleBody), refusedOrClosed, 0, false, true},
		{"a header of 2 MB", wired("X-A: "+strings.Repeat("b", 2<<20)+"\r\n"+length, simpleBody), refusedOrClosed, 0, false, true},
		{"a request line of 1 MB", "POST /" + strings.Repeat("v", 1<<20) + " HTTP/1.1\r\n" + host + "\r\n", refusedOrClosed, 0, false, true},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", []int{505}, 0, false, false},
		{"options of all", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{404}, 0, false, false},
		{"upgrade to HTTP/2", wired("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"+length, simpleBody), []int{200}, 0, false, false},
		{"HTTP/3.0", strings.Replace(sized(simpleBody), "HTTP/1.1", "HTTP/3.0", 1), refusedOrClosed, 0, false, true},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 64) + "\r\n\r\n", refusedOrClosed, 0, false, true},
		{"absolute form", strings.Replace(sized(simpleBody), "POST /", "POST http://127.0.0.1/", 1), []int{200}, 0, false, false},
		{"absolute form of another host", strings.Replace(sized(simpleBody), "POST /", "POST http://evil.example/", 1), []int{421}, 0, true, false},
		{"CONNECT", "CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + host + "\r\n", []int{400, 404, 405, 421}, 0, false, false},
		{"OPTIONS of everything", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", []int{200, 400, 404, 405}, 0, false, false},
		{"TRACE", "TRACE /v1/completions HTTP/1.1\r\n" + host + "\r\n", []int{405}, 0, false, false},
		{"path with dots", strings.Replace(sized(simpleBody), "/v1/", "/v1/../v1/", 1), []int{400, 404}, 0, false, false},
		{"no Host", strings.Replace(sized(simpleBody), host, "", 1), refusedOrClosed, 0, false, true},
		{"two Hosts", wired(host+length, simpleBody), refusedOrClosed, 0, false, true},
		{"another Host", strings.Replace(sized(simpleBody), "127.0.0.1", "evil.example", 1), []int{421}, 0, true, false},
		{"a Host with a path", strings.Replace(sized(simpleBody), "Host: 127.0.0.1", "Host: 127.0.0.1/@evil", 1), []int{0, 400, 421}, 0, false, false},
		{"HTTP/1.0", strings.Replace(sized(simpleBody), "HTTP/1.1", "HTTP/1.0", 1), []int{200}, 0, false, true},
		{"expectation of something", wired("Expect: miracles\r\n"+length, simpleBody), []int{200, 417}, 0, false, false},
		{"no body at all", wired("", ""), []int{400}, 0, true, false},
		{"100 MB declared", wired("Content-Length: 104857600\r\n", simpleBody), []int{413}, 0, true, true},
		{"100 MB sent in chunks", wired("Transfer-Encoding: chunked\r\n", strings.Repeat("100000\r\n"+strings.Repeat(" ", 1<<20)+"\r\n", 4)), []int{413}, 0, true, true},
	}
}

func TestHostileWires(t *testing.T) {
	t.Parallel()
	settles(t)
	b := startFleet(t, 1, 1, nil, steered, func(c *Config) {
		c.HTTP.BodyTimeout = time.Second
		c.HTTP.HeaderTimeout = time.Second
	})
	for _, h := range hostileWires() {
		start := time.Now()
		list, err := whisper(b.router.Addr(), 5*time.Second, max(1, h.most), h.wire)
		first := 0
		if len(list) > 0 {
			first = list[0].status
		}
		var errs []error
		if err != nil {
			errs = append(errs, fmt.Errorf("after %v: %w", time.Since(start), err))
		}
		if !slices.Contains(h.want, first) {
			errs = append(errs, fmt.Errorf("status %d, want %v: %.300s", first, h.want, fmt.Sprint(list)))
		}
		if h.json && first >= 400 && !list[0].openai() {
			errs = append(errs, fmt.Errorf("%d has no error of OpenAI's form: %q", first, list[0].body))
		}
		if h.closes && (len(list) > 1 || len(list) == 1 && !list[0].closes) {
			errs = append(errs, fmt.Errorf("the connection goes on: %d answers, %v", len(list), list[0].header))
		}
		judge(t, "hostile/"+h.name, errs...)
		b.serves(h.name)
	}
	if err := b.settle(); err != nil {
		t.Error(err)
	}
}

// Several requests in one write are answered in their order.
func TestHostilePipeline(t *testing.T) {
	t.Parallel()
	settles(t)
	b := startFleet(t, 1, 1, nil, steered)
	bad := sized(`{"prompt":5}`)
	list, err := whisper(b.router.Addr(), 15*time.Second, 4, sized(simpleBody)+bad+"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"+sized(simpleBody))
	var got []int
	for _, r := range list {
		got = append(got, r.status)
	}
	if err != nil || !slices.Equal(got, []int{200, 400, 200, 200}) || text(t, list[0].body) != text(t, list[3].body) || !bytes.Contains([]byte(list[2].body), []byte(`"status"`)) {
		t.Errorf("%v, %v", list, err)
	}
}
