package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrNoRecord says that a folder holds no log.
var ErrNoRecord = errors.New("no record here")

// ChainError says where a log stops being the chain that was written.
type ChainError struct {
	Line int // from 1
	Why  string
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("read log: line %d: %s", e.Line, e.Why)
}

// rawLine is one line as found; b is valid until the next one.
type rawLine struct {
	n      int
	offset int64
	b      []byte // without the newline
	ended  bool   // the newline is there
	long   bool   // longer than MaxLine; b holds its beginning
	last   bool
}

// torn reports whether the line looks like a write that did not finish.
func (l rawLine) torn() bool { return l.last && (!l.ended || (!l.long && !json.Valid(l.b))) }

// walk calls visit for each line, in bounded memory.
func walk(r io.Reader, visit func(rawLine) error) error {
	br := bufio.NewReaderSize(io.LimitReader(r, MaxLog), MaxLine+1)
	var offset int64
	for n := 1; ; n++ {
		b, err := br.ReadSlice('\n')
		if len(b) == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		l := rawLine{n: n, offset: offset, b: b, ended: err == nil, long: errors.Is(err, bufio.ErrBufferFull)}
		offset += int64(len(b))
		if err != nil && !l.long && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read log: %w", err)
		}
		if l.ended {
			l.b = b[:len(b)-1]
		}
		if l.long {
			l.b = append([]byte(nil), b[:256]...)
			skipped, ended, err := skipLine(br)
			offset, l.ended = offset+skipped, ended
			if err != nil {
				return fmt.Errorf("read log: %w", err)
			}
		}
		if len(l.b) > 0 && !l.long {
			l.b = append([]byte(nil), l.b...)
		}
		_, err = br.Peek(1)
		l.last = err != nil
		if err := visit(l); err != nil {
			return err
		}
	}
}

func skipLine(br *bufio.Reader) (skipped int64, ended bool, err error) {
	for {
		b, err := br.ReadSlice('\n')
		skipped += int64(len(b))
		switch {
		case err == nil:
			return skipped, true, nil
		case errors.Is(err, io.EOF):
			return skipped, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return skipped, false, err
		}
	}
}

// tail is what a strict reading found after the last good line.
type tail struct {
	head   link
	offset int64 // end of the last good line, in bytes
	torn   bool  // an unfinished line follows
}

// readChain folds every good line and stops at the first that breaks the chain.
// A torn last line is reported in the tail, not as an error.
func readChain(r io.Reader, visit func(Event)) (tail, error) {
	t := tail{head: genesis()}
	err := walk(r, func(l rawLine) error {
		if l.torn() {
			t.torn = true
			return nil
		}
		ev, err := decodeLine(l.b)
		if err == nil {
			err = t.head.follow(ev)
		}
		if err != nil {
			return &ChainError{Line: l.n, Why: err.Error()}
		}
		t.head = link{seq: ev.Seq, digest: digestOf(l.b)}
		t.offset = l.offset + int64(len(l.b)) + 1
		visit(ev)
		return nil
	})
	return t, err
}

// openRegular opens a file for reading and refuses links, pipes and devices.
func openRegular(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: not a regular file", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
