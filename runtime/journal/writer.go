package journal

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// queueLen rows may wait for the disk; a row is a few kilobytes at most.
const queueLen = 4096

// Writer appends rows from its own goroutine. Its methods are safe for concurrent use
// and never wait, but for Close.
type Writer struct {
	run     string
	queue   chan any
	stop    chan struct{}
	done    chan struct{}
	closed  atomic.Bool
	written atomic.Uint64
	dropped atomic.Uint64
	failed  atomic.Pointer[error]
}

// Open appends to the file at path, which it holds against every other writer until Close:
// Take and Start in one.
func Open(path, run string, meta Meta) (*Writer, error) {
	h, err := Take(path)
	if err != nil {
		return nil, err
	}
	return h.Start(run, meta)
}

func endTornLine(f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], st.Size()-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		_, err = f.Write([]byte{'\n'})
	}
	return err
}

// New writes to w, which Close closes.
func New(w io.WriteCloser, run string, meta Meta) *Writer {
	return newWriter(w, run, meta, queueLen)
}

func newWriter(w io.WriteCloser, run string, meta Meta, capacity int) *Writer {
	meta.Schema, meta.Version = Schema, Version
	j := &Writer{run: run, queue: make(chan any, capacity), stop: make(chan struct{}), done: make(chan struct{})}
	go j.loop(w, meta)
	return j
}

// Put queues a request's row; false when the queue is full and the row is lost.
func (j *Writer) Put(r Row) bool {
	r.Head = Head{Schema, Version, j.run}
	return j.offer(r)
}

// Event queues an event; false when it is lost.
func (j *Writer) Event(e Event) bool {
	line := map[string]any{"schema": Schema, "schema_version": Version, "run": j.run, "event": e.Name, "at": e.At, "at_unix": e.AtUnix}
	for k, v := range e.Fields {
		if _, taken := line[k]; !taken {
			line[k] = v
		}
	}
	return j.offer(line)
}

func (j *Writer) offer(v any) bool {
	if j.closed.Load() {
		j.dropped.Add(1)
		return false
	}
	select {
	case j.queue <- v:
		return true
	default:
		j.dropped.Add(1)
		return false
	}
}

// Dropped is how many rows were lost: queue full, not encodable, or after a write error.
func (j *Writer) Dropped() uint64 { return j.dropped.Load() }

// Written is how many lines reached the file, the meta line included.
func (j *Writer) Written() uint64 { return j.written.Load() }

// Err is the first write error; nil while all is well.
func (j *Writer) Err() error {
	if p := j.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Close writes what is queued and closes the file. It waits until ctx ends.
func (j *Writer) Close(ctx context.Context) error {
	if !j.closed.Swap(true) {
		close(j.stop)
	}
	select {
	case <-j.done:
		return j.Err()
	case <-ctx.Done():
		return fmt.Errorf("close journal: %w", ctx.Err())
	}
}

func (j *Writer) loop(w io.WriteCloser, meta Meta) {
	defer close(j.done)
	out := bufio.NewWriterSize(w, 1<<16)
	defer func() {
		j.note(out.Flush())
		j.note(w.Close())
	}()
	j.line(out, map[string]Meta{"meta": meta})
	told := uint64(0)
	for open := true; open; {
		select {
		case v := <-j.queue:
			j.line(out, v)
		case <-j.stop:
			open = false
		}
		for drained := false; !drained; {
			select {
			case v := <-j.queue:
				j.line(out, v)
			default:
				drained = true
			}
		}
		told = j.settle(out, told)
	}
}

// settle says how many rows were lost since the last time and flushes.
func (j *Writer) settle(out *bufio.Writer, told uint64) uint64 {
	lost := j.dropped.Load()
	if lost != told {
		j.line(out, map[string]any{"schema": Schema, "schema_version": Version, "run": j.run, "event": "journal_dropped", "rows": lost - told})
	}
	j.note(out.Flush())
	return lost
}

func (j *Writer) line(out *bufio.Writer, v any) {
	b, err := json.Marshal(v)
	if err != nil || j.Err() != nil {
		j.note(err)
		j.dropped.Add(1)
		return
	}
	_, err = out.Write(append(b, '\n'))
	j.note(err)
	if err == nil {
		j.written.Add(1)
	}
}

func (j *Writer) note(err error) {
	if err != nil {
		err = fmt.Errorf("write journal: %w", err)
		j.failed.CompareAndSwap(nil, &err)
	}
}
