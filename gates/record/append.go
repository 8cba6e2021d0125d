package record

import (
	"fmt"
	"os"
	"syscall"
)

// Append writes one event and waits for the disk. body is the struct that
// belongs to kind (nil for gate.started); fields that the kind lacks are refused.
// A bad or too large body (ErrTooLarge) writes nothing; after a failed write or
// fsync every further Append fails, since what is on disk is not known.
func (r *Run) Append(kind Kind, gate, step, host string, body any) (Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.append(kind, gate, step, host, body)
}

func (r *Run) append(kind Kind, gate, step, host string, body any) (Event, error) {
	if r.broken != nil {
		return Event{}, fmt.Errorf("append %s: an earlier write failed: %w", kind, r.broken)
	}
	ev, err := newEvent(kind, gate, step, host, body, r.opt.now())
	if err != nil {
		return Event{}, fmt.Errorf("append: %w", err)
	}
	ev.Seq, ev.Prev = r.head.seq+1, r.head.digest
	if kind == KindIntent && r.state.full() {
		return Event{}, fmt.Errorf("append %s: %d intents are open, done or partial: %w", kind, MaxActions, ErrTooLarge)
	}
	line, err := encodeLine(ev)
	if err != nil {
		return Event{}, fmt.Errorf("append: %w", err)
	}
	// What a reader will see is what is folded, and a line that no reader would take is never written.
	if ev, err = decodeLine(line); err == nil {
		err = r.head.follow(ev)
	}
	if err != nil {
		return Event{}, fmt.Errorf("append %s: %w", kind, err)
	}
	if r.size+int64(len(line))+1 > MaxLog {
		return Event{}, fmt.Errorf("append %s: the log would exceed %d bytes: %w", kind, MaxLog, ErrTooLarge)
	}
	if err := r.write(append(line[:len(line):len(line)], '\n')); err != nil {
		r.broken = err
		return Event{}, fmt.Errorf("append %s: %w", kind, err)
	}
	r.head = link{seq: ev.Seq, digest: digestOf(line)}
	r.state.apply(ev)
	r.crash(kind)
	return ev, nil
}

func (r *Run) write(b []byte) error {
	n, err := r.log.Write(b)
	r.size += int64(n)
	if err != nil {
		return err
	}
	return r.log.Sync()
}

// crash ends the process the way a power cut does, where a test asked for it.
func (r *Run) crash(kind Kind) {
	switch kind {
	case KindResumed, KindFacts, KindRepair, KindNote:
		return
	}
	r.counts++
	if r.opt.CrashAfter == 0 || r.counts != r.opt.CrashAfter {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
