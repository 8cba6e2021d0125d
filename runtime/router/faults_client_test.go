package router

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// sight is what a client saw of one answer.
type sight struct {
	status  int
	header  http.Header
	text    string // of all frames, or of the whole answer
	frames  int    // with text
	done    int    // [DONE]
	failed  []apiError
	err     error // of the connection
	request string
}

type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
}

// watch sends a completion and reads all of its answer, or until ctx ends. seen, if not nil,
// is called after each frame.
func watch(ctx context.Context, client *http.Client, url string, request any, rid string, seen func(frames int)) (s sight) {
	raw, err := json.Marshal(request)
	if err != nil {
		return sight{err: err}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", bytes.NewReader(raw))
	if err != nil {
		return sight{err: err}
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("X-Request-Id", rid)
	s.request = rid
	resp, err := client.Do(q)
	if err != nil {
		s.err = err
		return s
	}
	defer resp.Body.Close()
	s.status, s.header = resp.StatusCode, resp.Header
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		s.stream(resp.Body, seen)
		return s
	}
	all, err := io.ReadAll(resp.Body)
	if s.err = err; err == nil {
		s.event(all)
	}
	return s
}

func (s *sight) stream(r io.Reader, seen func(int)) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if err != io.EOF {
				s.err = err
			}
			if len(line) > 0 {
				s.err = errors.Join(s.err, fmt.Errorf("half a line at the end: %q", line))
			}
			return
		}
		v, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok {
			continue
		}
		if string(v) == "[DONE]" {
			s.done++
			continue
		}
		before := s.frames
		s.event(v)
		if seen != nil && s.frames > before {
			seen(s.frames)
		}
	}
}

func (s *sight) event(raw []byte) {
	var e struct {
		Error   *apiError
		Choices []struct{ Text string }
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		s.err = errors.Join(s.err, fmt.Errorf("%w in %.200q", err, raw))
		return
	}
	if e.Error != nil {
		s.failed = append(s.failed, *e.Error)
		return
	}
	for _, c := range e.Choices {
		s.text += c.Text
		s.frames++
	}
}

// short words a sight: the status, and for an error its type and code.
func (s sight) short() string {
	switch {
	case s.err != nil:
		return "broken connection"
	case len(s.failed) == 0 && s.status == 200:
		return "200"
	case len(s.failed) == 0:
		return fmt.Sprint(s.status, " without an error")
	}
	code := "-"
	if c := s.failed[0].Code; c != nil {
		code = *c
	}
	first := fmt.Sprint(s.status)
	if s.status == 200 {
		first = "event"
	}
	return first + " " + s.failed[0].Type + " " + code
}

// right compares with the right text: every answer is whole, or it is a beginning of the
// right text and says once how it ended.
func (s sight) right(want string, streamed bool) error {
	switch {
	case s.err != nil:
		return fmt.Errorf("connection: %w", s.err)
	case s.status != 200 && (len(s.failed) != 1 || s.failed[0].Type == "" || s.text != ""):
		return fmt.Errorf("status %d with %+v and the text %q", s.status, s.failed, s.text)
	case s.status != 200:
		return nil
	case !strings.HasPrefix(want, s.text):
		return fmt.Errorf("a wrong word: %q is no beginning of %q", s.text, want)
	case !streamed && s.text != want:
		return fmt.Errorf("a wrong word: %q, want %q", s.text, want)
	case streamed && len(s.failed) == 0 && (s.done != 1 || s.text != want):
		return fmt.Errorf("a stream without an error has %d [DONE] and the text %q, want %q", s.done, s.text, want)
	case len(s.failed) > 1 || len(s.failed) == 1 && s.done > 0:
		return fmt.Errorf("%d error events and %d [DONE]", len(s.failed), s.done)
	}
	return nil
}
