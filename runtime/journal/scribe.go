package journal

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// scribe is the goroutine of a writer: it encodes, writes, rotates, and waits out failures.
type scribe struct {
	j    *Writer
	d    *disk
	enc  *encoder
	meta Meta

	batch   []item // taken from the queue; those before next are encoded
	next    int
	pending []byte // whole lines that the file does not have yet
	lines   []line // what pending is made of
	told    uint64 // losses that the journal knows of
	badLine int    // items that could not be encoded, not told yet
	rotate  time.Time
	stuck   bool   // the last rotation failed
	lost    uint64 // losses when the failure began
	backoff time.Duration
}

// line is one line of pending and the room that it frees in the queue.
type line struct {
	n    int
	size int64
	own  bool // the writer's, not from the queue
}

func (s *scribe) run() {
	defer close(s.j.done)
	s.backoff = s.j.opt.backoff
	if s.meta.Git == nil {
		s.meta.Git = revision()
	}
	s.begin()
	for {
		s.fill()
		if len(s.pending) == 0 {
			if s.j.q.drained() {
				break
			}
			<-s.j.q.wake
			continue
		}
		if err := s.write(); err != nil && !s.rest() {
			break
		}
	}
	s.end()
}

// begin puts the meta line before what is pending.
func (s *scribe) begin() {
	s.meta.AtUnix = float64(s.j.opt.now().UnixMicro()) / 1e6
	b := append([]byte(nil), s.enc.meta(s.meta)...)
	s.pending = append(b, s.pending...)
	s.lines = append([]line{{n: len(b), own: true}}, s.lines...)
	s.meta.Part = max(1, s.meta.Part) + 1
}

// fill encodes queued items up to one chunk.
func (s *scribe) fill() {
	s.tellLosses()
	for len(s.pending) < chunk {
		if s.next == len(s.batch) {
			s.batch, s.next = s.j.q.take(s.batch), 0
			if len(s.batch) == 0 {
				return
			}
		}
		it := &s.batch[s.next]
		s.next++
		b, err := s.enc.line(it)
		if err != nil {
			s.badLine++
			s.j.q.drop(1)
			s.j.q.release(1, it.size)
			continue
		}
		s.add(b, it.size, false)
	}
}

func (s *scribe) add(b []byte, size int64, own bool) {
	s.pending = append(s.pending, b...)
	s.lines = append(s.lines, line{len(b), size, own})
}

// tellLosses writes how many lines were lost since the last time, once the file takes
// lines again.
func (s *scribe) tellLosses() {
	lost := s.j.q.losses()
	if lost == s.told || s.j.Err() != nil {
		return
	}
	bad := s.badLine
	if n := int(lost-s.told) - bad; n > 0 {
		s.say("journal_dropped", map[string]any{"rows": n, "cause": "queue_full"})
	}
	if bad > 0 {
		s.say("journal_dropped", map[string]any{"rows": bad, "cause": "not_encodable"})
	}
	s.told, s.badLine = lost, 0
}

// say adds an event of the writer's own.
func (s *scribe) say(name string, fields map[string]any) {
	b, err := s.enc.line(&item{event: &Event{Name: name, At: s.j.clock(), AtUnix: float64(s.j.opt.now().UnixMicro()) / 1e6, Fields: fields}})
	if err == nil {
		s.add(b, 0, true)
	}
}

// write gives the file what is pending, in a new file if that is due or the open one is gone.
func (s *scribe) write() error {
	n, err := 0, s.find()
	if err == nil {
		s.turn()
		n, err = s.d.append(s.pending)
	}
	o := s.j.note(s.took(n), n, err)
	s.tell(o)
	if err != nil {
		return err
	}
	s.backoff = s.j.opt.backoff
	if o.ended {
		s.say("journal_recovered", map[string]any{"failed_s": o.after, "error": o.was.Error()})
	}
	return nil
}

// tell logs where a failure begins and where it ends.
func (s *scribe) tell(o outcome) {
	log := s.j.opt.Log
	switch {
	case o.began != nil:
		s.lost = s.j.q.losses()
		log.Warn("journal cannot be written: rows wait, and are lost when too many do", "path", s.d.name, "error", o.began.Error())
	case o.ended:
		log.Warn("journal is written again", "path", s.d.name, "failed_s", o.after, "lost", s.j.q.losses()-s.lost)
	}
}

// find makes sure that the rows which follow are where readers look for them.
func (s *scribe) find() error {
	cause := s.d.lost()
	if cause == "" {
		return s.settle()
	}
	if err := s.d.renew(s.j.opt.now()); err != nil {
		return err
	}
	s.j.reopened()
	s.begin()
	s.say("journal_reopened", map[string]any{"cause": cause})
	s.j.opt.Log.Warn("journal file was "+cause+", and is made anew", "path", s.d.name)
	return nil
}

// settle tells of a file that another process wrote to, or cut.
func (s *scribe) settle() error {
	was := s.d.size
	size, yes := s.d.disturbed()
	if !yes {
		return nil
	}
	if err := s.d.settle(size); err != nil {
		return fmt.Errorf("go on in a journal that was changed: %w", err)
	}
	if size == 0 {
		s.begin()
	}
	s.say("journal_changed", map[string]any{"bytes_before": was, "bytes_after": size})
	s.j.opt.Log.Warn("journal file was changed by another process: rows may be missing or damaged", "path", s.d.name, "bytes_before", was, "bytes_after", size)
	return nil
}

// turn begins the next file when the open one is full or old. A rotation that fails leaves
// the open file in use: rows come first.
func (s *scribe) turn() {
	now := s.j.opt.now()
	if !s.d.due(len(s.pending), &s.j.opt) || now.Before(s.rotate) {
		return
	}
	done, err := s.d.rotate(&s.j.opt)
	s.j.rotated(done, err)
	if done {
		s.begin()
	}
	if err != nil {
		s.rotate = now.Add(retryRotation)
	}
	switch stuck := err != nil; {
	case stuck && !s.stuck:
		s.j.opt.Log.Warn("journal file cannot be ended as it should", "path", s.d.name, "error", err.Error())
	case !stuck && s.stuck:
		s.j.opt.Log.Warn("journal files end again", "path", s.d.name)
	}
	s.stuck = err != nil
}

// took removes the first n bytes, whole lines, from pending and frees their room.
func (s *scribe) took(n int) (written int) {
	rows, size := 0, int64(0)
	for sum := 0; written < len(s.lines); written++ {
		l := s.lines[written]
		if sum += l.n; sum > n {
			break
		}
		if !l.own {
			rows++
			size += l.size
		}
	}
	s.pending = s.pending[:copy(s.pending, s.pending[n:])]
	s.lines = s.lines[:copy(s.lines, s.lines[written:])]
	s.j.q.release(rows, size)
	return written
}

// rest waits before the next try; false when Close no longer waits for one.
func (s *scribe) rest() bool {
	t := time.NewTimer(s.backoff)
	defer t.Stop()
	s.backoff = min(2*s.backoff, longestRetry)
	select {
	case <-t.C:
		return true
	case <-s.j.abandon:
		return false
	}
}

// end closes the file and says what was lost.
func (s *scribe) end() {
	lost := s.j.q.end()
	err := s.d.close()
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	if lost > 0 {
		err = errors.Join(fmt.Errorf("%d lines are lost", lost), s.j.err, err)
	}
	if err != nil {
		s.j.final = fmt.Errorf("close journal: %w", err)
	}
}

// revision is the source revision that this binary was built from; nil if not known.
func revision() *string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, v := range info.Settings {
		if v.Key == "vcs.revision" && v.Value != "" {
			return &v.Value
		}
	}
	return nil
}
