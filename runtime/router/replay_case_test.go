package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// replayCase is one recorded exchange.
type replayCase struct {
	Case     string        `json:"case"`
	Request  replayRequest `json:"request"`
	Response struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"`
		SSE     string            `json:"sse"`
	} `json:"response"`
}

type replayRequest struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	Raw     *string           `json:"raw"`
	Note    string            `json:"note"`
}

// replayCases reads a file of exchanges.
func replayCases(t *testing.T, name string) (list []replayCase) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(replayFile(t, name)))
	for d.More() {
		var c replayCase
		if err := d.Decode(&c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		t.Fatalf("%s holds no case", name)
	}
	return list
}

// caseNamed returns one recorded exchange.
func caseNamed(t *testing.T, file, name string) replayCase {
	t.Helper()
	for _, c := range replayCases(t, file) {
		if c.Case == name {
			return c
		}
	}
	t.Fatalf("%s has no case %s", file, name)
	return replayCase{}
}

// recorded is the answer as it was recorded.
func (c replayCase) recorded(t *testing.T) answer {
	t.Helper()
	a := answer{status: c.Response.Status, header: http.Header{}, body: string(c.Response.Body)}
	for k, v := range c.Response.Headers {
		a.header.Set(k, v)
	}
	if c.Response.SSE != "" {
		a.body = string(replayFile(t, c.Response.SSE))
	}
	if a.body == `""` {
		a.body = ""
	}
	return a
}

var shortened = regexp.MustCompile(`"<(\d+) items>"`)

// payload is the request's body as it was sent; long lists were shortened in the recording.
func (r replayRequest) payload() string {
	if r.Raw != nil {
		return *r.Raw
	}
	return shortened.ReplaceAllStringFunc(string(r.Body), func(s string) string {
		n, _ := strconv.Atoi(shortened.FindStringSubmatch(s)[1])
		return "[" + strings.Repeat("1,", n-1) + "1]"
	})
}

// send plays a recorded request and reads the whole answer; one that breaks off ends in
// "(cut off)", one that never comes because the connection broke has status 0.
func (b *replayBed) send(r replayRequest) answer {
	b.t.Helper()
	a, err := b.trySend(limit(b.t), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *replayBed) trySend(ctx context.Context, r replayRequest) (answer, error) {
	var body io.Reader = strings.NewReader(r.payload())
	if strings.Contains(r.Note, "never completes") {
		in, out := io.Pipe()
		defer out.Close()
		body = in
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, b.url+r.Path, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range r.Headers {
		req.Header.Set(k, v)
	}
	resp, err := b.client.Do(req)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return answer{header: http.Header{}}, nil
	}
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		all, err = append(all, "(cut off)"...), nil
	}
	return answer{resp.StatusCode, resp.Header, string(all)}, err
}

// complete posts a completion whose body is made from a format.
func (b *replayBed) complete(format string, args ...any) answer {
	b.t.Helper()
	return b.send(completion(format, args...))
}

func completion(format string, args ...any) replayRequest {
	return replayRequest{Method: http.MethodPost, Path: "/v1/completions", Body: json.RawMessage(fmt.Sprintf(format, args...))}
}

// begin sends a request beside the test; the result gives its answer. The request ends with
// the test at the latest.
func (b *replayBed) begin(r replayRequest) <-chan answer {
	ctx, cancel := context.WithCancel(limit(b.t))
	got, done := make(chan answer, 1), make(chan struct{})
	go func() {
		defer close(done)
		if a, err := b.trySend(ctx, r); err == nil {
			got <- a
		}
	}()
	b.t.Cleanup(func() { cancel(); <-done })
	return got
}

// at fits legs of a path suffix that reached an engine.
func at(iid, suffix string) func(scriptLeg) bool {
	return func(l scriptLeg) bool {
		return l.iid == iid && strings.HasSuffix(l.header.Get("X-Request-Id"), suffix)
	}
}
