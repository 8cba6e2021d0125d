package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Field is one header line. Name and value must hold no line break.
type Field struct{ Name, Value string }

// ErrNoAnswer: the connection ended before the engine answered anything.
var ErrNoAnswer = errors.New("engine closed the connection before it answered")

const maxInterim = 8 // answers of class 1xx before the real one

var request = &http.Request{Method: http.MethodPost}

// Post sends one request and returns its answer, whatever its status. The caller reads the
// body to its end or closes it; closing early, or the end of ctx, aborts the request. Errors
// of dialling are *net.OpError, those of a wait for a connection ErrPool.
func (p *Pool) Post(ctx context.Context, path string, fields []Field, payload []byte) (*http.Response, error) {
	c, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	if !c.last.IsZero() {
		_ = c.net.SetDeadline(time.Time{})
	}
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(past) })
	resp, err := c.exchange(path, fields, payload)
	if err != nil {
		stop()
		p.give(c, false)
		if cause := context.Cause(ctx); cause != nil && isDeadline(err) {
			err = cause
		}
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, c: c, stop: stop, again: !resp.Close && resp.ProtoAtLeast(1, 1)}
	if resp.ContentLength == 0 {
		// Nothing will be read: the connection is free already.
		_, _ = resp.Body.Read(make([]byte, 1))
	}
	return resp, nil
}

func (c *conn) exchange(path string, fields []Field, payload []byte) (*http.Response, error) {
	c.got, c.room = false, c.pool.opt.MaxHead
	if c.room < int64(c.br.Size()) {
		c.room = int64(c.br.Size())
	}
	out := net.Buffers{head(c.pool.opt.Address, path, fields, len(payload)), payload}
	_, werr := out.WriteTo(c.net)
	if werr != nil && isDeadline(werr) {
		return nil, fmt.Errorf("send to engine: %w", werr)
	}
	// An engine that refuses early closes before it has read the whole body: its answer
	// may be there all the same.
	resp, err := c.head()
	switch {
	case err == nil:
		c.room = -1
		if werr != nil {
			resp.Close = true
		}
		return resp, nil
	case werr != nil:
		return nil, fmt.Errorf("send to engine: %w", werr)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		if !c.got {
			return nil, ErrNoAnswer
		}
		return nil, fmt.Errorf("read answer's head: %w", io.ErrUnexpectedEOF)
	}
	return nil, fmt.Errorf("read answer's head: %w", err)
}

func (c *conn) head() (*http.Response, error) {
	for range maxInterim {
		resp, err := http.ReadResponse(c.br, request)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, errors.New("engine switches protocols")
		}
	}
	return nil, errors.New("too many interim answers")
}

func head(host, path string, fields []Field, length int) []byte {
	b := make([]byte, 0, 512)
	b = append(append(append(b, "POST "...), path...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, host...), "\r\nAccept: */*\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\nContent-Length: "...)
	b = append(strconv.AppendInt(b, int64(length), 10), '\r', '\n')
	for _, f := range fields {
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), '\r', '\n')
	}
	return append(b, '\r', '\n')
}
