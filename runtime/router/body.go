package router

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Limits of a body on its way in.
const (
	// The first buffer of a body; each next one is so many times as large, up to what the
	// client declared. No more is held for bytes that are only announced.
	firstBuffer  = 16 << 10
	bufferGrowth = 4
	// Slower than this over HTTP.BodyPatience, bytes a second, and the body is ended.
	bodyRate = 1 << 10
)

var errBodyLarge = errors.New("body is too large")

// intake reads one body within its limits of size, memory and time.
type intake struct {
	out      *http.ResponseController
	src      io.Reader
	declared int64 // -1 = the client did not say
	most     int64
	whole    time.Duration // for all of it
	patience time.Duration // in which bodyRate must hold
}

// read takes the whole body. The end of ctx also ends it, with the error of the connection. The
// caller drops what it returns, with an error as well.
func (m *bodies) read(ctx context.Context, in intake) (*payload, error) {
	start := time.Now()
	b := &payload{of: m, moved: start, stop: func() { _ = in.out.SetReadDeadline(time.Unix(1, 0)) }}
	m.mu.Lock()
	m.arriving[b] = struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.arriving, b)
	}()
	_ = in.out.SetReadDeadline(start.Add(min(in.whole, in.patience)))
	leave := context.AfterFunc(ctx, b.stop)
	defer leave()
	if err := b.grow(in); err != nil {
		return b, err
	}
	pace := bodyPace{since: start, end: start.Add(in.whole), patience: in.patience}
	for {
		n, err := b.fill(in)
		now := time.Now()
		if n > 0 && !b.move(now) {
			return b, errBodySlow
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return b, b.why(err)
		}
		if pace.renew(now, n) {
			_ = in.out.SetReadDeadline(pace.deadline())
			if ctx.Err() != nil || !b.move(now) {
				b.stop() // what came between has lost its deadline
			}
		}
	}
}

// why puts the loss of its memory before what that broke.
func (b *payload) why(err error) error {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if b.yielded {
		return errBodySlow
	}
	return err
}

// fill reads once. A full buffer grows only when there is another byte.
func (b *payload) fill(in intake) (int, error) {
	if len(b.bytes) < cap(b.bytes) {
		n, err := in.src.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		return n, err
	}
	var one [1]byte
	n, err := in.src.Read(one[:])
	if n == 0 {
		return 0, err
	}
	if int64(len(b.bytes)) >= in.most {
		return n, errBodyLarge
	}
	if err := b.grow(in); err != nil {
		return n, err
	}
	b.bytes = append(b.bytes, one[0])
	return n, err
}

// grow makes the next buffer.
func (b *payload) grow(in intake) error {
	size := int64(firstBuffer)
	if c := int64(cap(b.bytes)); c > 0 && in.declared >= 0 {
		size = bufferGrowth * c
	} else if c > 0 {
		size = 2 * c // most of it may stay empty
	}
	size = min(size, in.most)
	if in.declared >= 0 {
		size = min(size, max(in.declared, int64(len(b.bytes))+1))
	}
	if err := b.charge(size); err != nil {
		return err
	}
	b.bytes = append(make([]byte, 0, size), b.bytes...)
	return nil
}

// bodyPace is the least speed of a body: bodyRate over each time of patience.
type bodyPace struct {
	since    time.Time
	end      time.Time
	patience time.Duration
	got      int
}

// renew notes bytes, and reports whether they earn another time of patience.
func (p *bodyPace) renew(now time.Time, n int) bool {
	p.got += n
	if float64(p.got) < bodyRate*p.patience.Seconds() || now.Sub(p.since) < p.patience/8 {
		return false
	}
	p.since, p.got = now, 0
	return true
}

func (p *bodyPace) deadline() time.Time {
	if d := p.since.Add(p.patience); d.Before(p.end) {
		return d
	}
	return p.end
}
