// Package cause reads why an engine did not start from the lines of its log.
//
// It promises one code and one telling line for what engines, their libraries and
// container runtimes print, bounded in time and memory for any bytes, and lines without
// control sequences and without what looks like a credential. It refuses to guess: a log
// without a line that it knows has no cause.
package cause

import (
	"bytes"
	"strings"
)

// Found is the cause that a log tells.
type Found struct {
	// Code is the finding's code; see Causes.
	Code string `json:"code"`
	// Line is the first line that tells it, cleaned and cut; Number is its place in the log
	// of this launch, from 1.
	Line   string `json:"line"`
	Number int    `json:"number"`
	// Sure means that no engine goes on after such a line. Where it is false, the line counts
	// once the process has ended or its time is up.
	Sure bool `json:"sure"`
}

// maxLine is how much of one line is read; the rest of it is passed over.
const maxLine = 8 << 10

// hostMemory is found without a line of the log too.
const hostMemory = "host-memory"

// OutOfHostMemory is the cause that somebody else than the log tells.
func OutOfHostMemory(line string) *Found {
	return &Found{Code: hostMemory, Line: show(line), Sure: true}
}

// coreDied is the cause that says least: any other one stands instead of it.
const coreDied = "core-died"

// maxShown is how much of a telling line is kept.
const maxShown = 400

// Reader takes a log in pieces. The zero value is ready to use.
type Reader struct {
	partial []byte
	skip    bool // within the rest of a line that is too long
	lines   int
	sure    *Found
	maybe   *Found
}

// Write takes the next piece of the log. It never fails.
func (r *Reader) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && r.sure == nil {
		i := bytes.IndexAny(p, "\n\r")
		piece := p
		if i >= 0 {
			piece, p = p[:i], p[i+1:]
		} else {
			p = nil
		}
		if room := maxLine - len(r.partial); !r.skip && len(piece) > room {
			piece, r.skip = piece[:room], true
			r.partial = append(r.partial, piece...)
		} else if !r.skip {
			r.partial = append(r.partial, piece...)
		}
		if i >= 0 {
			r.line()
		}
	}
	return n, nil
}

// Close takes what stands behind the last line's end.
func (r *Reader) Close() error {
	if len(r.partial) > 0 && r.sure == nil {
		r.line()
	}
	return nil
}

func (r *Reader) line() {
	raw := string(r.partial)
	r.partial, r.skip = r.partial[:0], false
	r.lines++
	code, sure := judge(raw)
	if code == "" {
		return
	}
	f := &Found{Code: code, Line: show(raw), Number: r.lines, Sure: sure}
	switch {
	case sure:
		r.sure = f
	case r.maybe == nil, r.maybe.Code == coreDied && code != coreDied:
		r.maybe = f
	}
}

// Found returns the first sure cause, else the first possible one, nil for none.
func (r *Reader) Found() *Found {
	if r.sure != nil {
		return r.sure
	}
	return r.maybe
}

// Of reads a whole log.
func Of(log string) *Found {
	var r Reader
	_, _ = r.Write([]byte(log))
	_ = r.Close()
	return r.Found()
}

// judge names the cause that one line tells, "" for none.
func judge(raw string) (code string, sure bool) {
	text, level := strip(raw)
	if level == chatter || quotesSource(text) {
		return "", false
	}
	low := strings.ToLower(text)
	for _, r := range rules {
		if r.matches(low) {
			return r.code, r.sure && level != warning && !survives(low)
		}
	}
	return "", false
}
