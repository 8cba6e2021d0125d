package bench

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
	"time"
)

// maxEvent bounds one line of an answer, maxError an error body.
const (
	maxEvent = 4 << 20
	maxError = 64 << 10
)

// offer sends one request, due at a moment, and fills its row.
func (r *run) offer(running context.Context, row *Row, due time.Time) {
	ctx, cancel := context.WithDeadline(running, due.Add(r.plan.Timeout))
	defer cancel()
	defer func() { row.Outcome = row.outcome(running, ctx, r.plan.Timeout) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(r.body(row.Index, r.plan.Arrivals[row.Index])))
	if err != nil {
		row.Error = err.Error()
		return
	}
	if !r.plan.Key.Empty() {
		req.Header.Set("Authorization", "Bearer "+r.plan.Key.Reveal())
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", row.ClientRID)
	sent := time.Now()
	row.Lag, row.Sent = sent.Sub(due).Seconds(), true
	defer func() { row.Duration = time.Since(due).Seconds() }()
	resp, err := r.client.Do(req)
	if err != nil {
		row.Error = short(err.Error())
		return
	}
	defer resp.Body.Close()
	row.Status, row.RID = resp.StatusCode, resp.Header.Get("X-Request-Id")
	if resp.StatusCode != http.StatusOK {
		row.RetryAfter = resp.Header.Get("Retry-After")
		row.refused(resp.Body)
		return
	}
	row.read(resp.Body, due)
}

// outcome names how an offer ended, and says which limit it met.
func (row *Row) outcome(running, ctx context.Context, limit time.Duration) string {
	switch {
	case row.Completed:
		return OutcomeCompleted
	case running.Err() != nil:
		row.Error = "broken off: the run was ended"
		return OutcomeBrokenOff
	case ctx.Err() != nil:
		row.Error = fmt.Sprintf("timeout: no end within %s of its moment", limit)
		return OutcomeTimeout
	case Refused(*row):
		return OutcomeRefused
	case row.Status == 0:
		return OutcomeTransport
	case row.Status != http.StatusOK:
		return OutcomeHTTP
	}
	return OutcomeStream
}

func (r *run) body(index int, a Arrival) []byte {
	m := map[string]any{"max_tokens": max(1, a.Output), "ignore_eos": true, "temperature": 0, "stream": true,
		"stream_options": map[string]bool{"include_usage": true}}
	if r.plan.Model != "" {
		m["model"] = r.plan.Model
	}
	text := r.prompt(index, a)
	if r.plan.Chat {
		m["messages"] = []map[string]string{{"role": "user", "content": text}}
	} else {
		m["prompt"] = text
	}
	b, err := json.Marshal(m)
	if err != nil {
		return []byte("{}") // plain values always marshal
	}
	return b
}

func (row *Row) refused(body io.Reader) {
	b, err := io.ReadAll(io.LimitReader(body, maxError))
	if err != nil {
		row.Error = short(err.Error())
		return
	}
	row.fault(b)
	if row.Error == "" {
		row.Error = fmt.Sprintf("status %d", row.Status)
	}
}

// fault reads an error object.
func (row *Row) fault(b []byte) bool {
	var e struct {
		Error *struct {
			Message string `json:"message"`
			Type    string `json:"type"`
			Code    any    `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &e) != nil || e.Error == nil {
		return false
	}
	row.Error, row.ErrorType = short(e.Error.Message), short(e.Error.Type)
	if e.Error.Code != nil {
		row.ErrorCode = short(fmt.Sprint(e.Error.Code))
	}
	return true
}

// short cuts foreign text and drops its control characters.
func short(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), 240)], "")
}

// read follows a stream. Only [DONE] after a natural finish completes a request.
func (row *Row) read(body io.Reader, due time.Time) {
	in := bufio.NewScanner(body)
	in.Buffer(make([]byte, 0, 16<<10), maxEvent)
	var first, last time.Time
	done := false
	for !done && in.Scan() {
		payload, ok := bytes.CutPrefix(in.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		payload = bytes.TrimSpace(payload)
		if string(payload) == "[DONE]" {
			done = true
			break
		}
		if bytes.Contains(payload, []byte(`"error"`)) && row.fault(payload) {
			continue
		}
		if row.event(payload) {
			last = time.Now()
			if first.IsZero() {
				first = last
			}
		}
	}
	if err := in.Err(); err != nil && row.Error == "" {
		row.Error = short(err.Error())
	}
	if !first.IsZero() {
		ttft := first.Sub(due).Seconds()
		row.TTFT = &ttft
		if row.OutputTokens > 1 {
			tpot := last.Sub(first).Seconds() / float64(row.OutputTokens-1)
			row.TPOT = &tpot
		}
	}
	row.Completed = done && row.Error == "" && (row.Finish == "stop" || row.Finish == "length" || row.Finish == "tool_calls")
	if !row.Completed && row.Error == "" {
		row.Error = "stream ended without a natural finish"
	}
}

// event takes one payload and reports whether it bore output.
func (row *Row) event(payload []byte) bool {
	var e struct {
		Choices []struct {
			Text   string  `json:"text"`
			Finish *string `json:"finish_reason"`
			Delta  struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
			} `json:"delta"`
		} `json:"choices"`
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(payload, &e) != nil {
		return false
	}
	if e.Usage != nil {
		row.PromptTokens, row.OutputTokens = e.Usage.Prompt, e.Usage.Completion
	}
	bore := false
	for _, c := range e.Choices {
		if c.Finish != nil {
			row.Finish = *c.Finish
			bore = true
		}
		bore = bore || c.Text != "" || c.Delta.Content != "" || c.Delta.Reasoning != ""
	}
	return bore
}

// Calibrate offers one prompt and returns the characters a token takes, by the engine's
// own count. The request is not part of any run.
func Calibrate(ctx context.Context, p Plan) (charsPerToken float64, err error) {
	const tokens = 400
	p.Arrivals = []Arrival{{Input: tokens, Output: 1}}
	r, err := prepare(p)
	if err != nil {
		return 0, err
	}
	defer r.client.CloseIdleConnections()
	r.start = time.Now()
	row := Row{Input: tokens, Output: 1, ClientRID: r.plan.Tag + "-calibrate"}
	r.offer(ctx, &row, r.start)
	if !row.Completed {
		return 0, fmt.Errorf("calibrate prompts: %s", row.Error)
	}
	if row.PromptTokens < 1 {
		return 0, errors.New("calibrate prompts: the answer counted no prompt tokens")
	}
	return float64(len(r.prompt(0, r.plan.Arrivals[0]))) / float64(row.PromptTokens), nil
}
