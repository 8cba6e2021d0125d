package router

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// reply is one answer on a connection.
type reply struct {
	status int
	header http.Header
	body   string
	closes bool
}

// openai reports whether a refusal has the form that clients of OpenAI read.
func (r reply) openai() bool {
	var w struct {
		Error *struct {
			Message string
			Type    string
		}
	}
	return json.Unmarshal([]byte(r.body), &w) == nil && w.Error != nil && w.Error.Message != "" && w.Error.Type != ""
}

// whisper sends pieces over one connection, each in a write of its own, and reads all answers
// until the router closes, most have come, or the limit is over.
func whisper(addr string, within time.Duration, most int, pieces ...string) (list []reply, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, p := range pieces {
			if _, err := io.WriteString(c, p); err != nil {
				return
			}
		}
	}()
	defer func() { c.Close(); <-sent }()
	r := bufio.NewReader(c)
	for len(list) < most {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				return list, err
			}
			return list, nil // closed
		}
		if resp.StatusCode == http.StatusContinue {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			return list, fmt.Errorf("body of %d: %w", resp.StatusCode, err)
		}
		list = append(list, reply{resp.StatusCode, resp.Header, string(b), resp.Close})
		if resp.Close {
			return list, nil
		}
	}
	return list, nil
}

const simpleBody = `{"prompt":"whale song","max_tokens":3,"ignore_eos":true,"temperature":0}`

func wired(head, body string) string {
	return "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + head + "\r\n" + body
}

func sized(body string) string {
	return wired(fmt.Sprintf("Content-Length: %d\r\n", len(body)), body)
}

// chunked writes a body in one chunk with an extension.
func chunked(body, extension string) string {
	return fmt.Sprintf("%x%s\r\n%s\r\n0\r\n\r\n", len(body), extension, body)
}

// serves asks something ordinary over a new connection.
func (b *testbed) serves(what string) {
	b.t.Helper()
	list, err := whisper(b.router.Addr(), 15*time.Second, 1, sized(simpleBody))
	if err != nil || len(list) != 1 || list[0].status != 200 {
		b.t.Errorf("after %s: %v, %v", what, list, err)
	}
}
