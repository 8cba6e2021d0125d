package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Snapshot is a record as one reading found it.
type Snapshot struct {
	Dir    string
	Events []Event
	State  State
	Seq    int64  // of the last event
	Digest string // SHA-256 of its line
	// Torn says that an unfinished line follows: another process is writing it, or was killed.
	Torn bool
}

// Read reads a record without changing it. It may run beside a writer. Errors:
// ErrNoRecord, *ChainError.
func Read(dir string) (*Snapshot, error) {
	f, size, err := openRegular(filepath.Join(dir, LogFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read record %s: %w", dir, ErrNoRecord)
	}
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	defer func() { _ = f.Close() }()
	if size > MaxLog {
		return nil, fmt.Errorf("read record: log of %d bytes, limit %d: %w", size, MaxLog, ErrTooLarge)
	}
	s := &Snapshot{Dir: dir}
	t, err := readChain(f, func(ev Event) {
		s.Events = append(s.Events, ev)
		s.State.apply(ev)
	})
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", dir, err)
	}
	if err := s.State.whole(); err != nil {
		return nil, fmt.Errorf("read record %s: %w", dir, err)
	}
	if t.head.seq == 0 {
		return nil, fmt.Errorf("read record %s: %w: the log has no first event", dir, ErrNoRecord)
	}
	s.Seq, s.Digest, s.Torn = t.head.seq, t.head.digest, t.torn
	return s, nil
}

// Load returns the bytes of a reference, as Run.Load does.
func (s *Snapshot) Load(ref Ref) ([]byte, error) { return loadObject(s.Dir, ref) }
