package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// Files of a record's folder.
const (
	LogFile   = "log.jsonl"
	FleetFile = "fleet.json"
	PlanFile  = "plan.json"
	ObjectDir = "objects"
	SealDir   = "seals"
)

// ErrBusy says that another process has the record open for appending.
var ErrBusy = errors.New("the record is open in another process")

// Options of Create and Open.
type Options struct {
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// CrashAfter makes the process kill itself right after the fsync of the n-th
	// event that it appends, not counting run.resumed, facts, repair and note. 0 = never.
	CrashAfter int
}

// Header is what a record starts with.
type Header struct {
	Run       string
	FleetName string
	Fleet     []byte // the frozen fleet document, JSON
	Release   string
	Operator  string
	Version   string
}

// Run is a record open for appending. One process holds it at a time; its
// methods may be called from many goroutines.
type Run struct {
	dir string
	opt Options

	mu     sync.Mutex
	log    *os.File
	head   link
	size   int64
	state  State
	broken error // sticky: the first failed write
	counts int
}

// Create makes a new record in dir, which must not exist or be empty.
func Create(dir string, h Header, opt Options) (*Run, error) {
	if old, err := os.ReadDir(dir); err == nil && len(old) > 0 {
		return nil, fmt.Errorf("create record: %s is not empty", dir)
	}
	for _, d := range []string{dir, filepath.Join(dir, ObjectDir), filepath.Join(dir, SealDir)} {
		if err := atomicfile.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("create record: %w", err)
		}
	}
	fleet, err := storeObject(dir, "application/json", h.Fleet)
	if err != nil {
		return nil, fmt.Errorf("create record: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(dir, FleetFile), h.Fleet, 0o600); err != nil {
		return nil, fmt.Errorf("create record: %w", err)
	}
	first := Created{Run: h.Run, FleetName: h.FleetName, Fleet: fleet, Release: h.Release, Operator: h.Operator, Version: h.Version}
	line, err := firstLine(first, opt.now())
	if err != nil {
		return nil, fmt.Errorf("create record: %w", err)
	}
	// The log appears with its first line in it, so that a record never lacks one.
	if err := atomicfile.Write(filepath.Join(dir, LogFile), append(line, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("create record: %w", err)
	}
	r, err := Open(dir, opt)
	if err != nil {
		return nil, fmt.Errorf("create record: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crash(KindCreated)
	return r, nil
}

func firstLine(body Created, now time.Time) ([]byte, error) {
	ev, err := newEvent(KindCreated, "", "", "", body, now)
	if err != nil {
		return nil, err
	}
	ev.Seq, ev.Prev = 1, zeroDigest
	return encodeLine(ev)
}

func (o Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

// Open opens a record for appending. A torn last line is cut off: its bytes are
// saved as torn-<seq>.bin and a repair event says so. Errors: ErrNoRecord,
// ErrBusy, *ChainError.
func Open(dir string, opt Options) (*Run, error) {
	f, err := os.OpenFile(filepath.Join(dir, LogFile), os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open record %s: %w", dir, ErrNoRecord)
	}
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	r := &Run{dir: dir, opt: opt, log: f}
	if err := r.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open record %s: %w", dir, err), f.Close())
	}
	return r, nil
}

func (r *Run) load() error {
	if err := syscall.Flock(int(r.log.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return ErrBusy
		}
		return err
	}
	info, err := r.log.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxLog {
		return fmt.Errorf("read log: not a regular file of at most %d bytes", MaxLog)
	}
	t, err := readChain(r.log, r.state.apply)
	if err != nil {
		return err
	}
	if err := r.state.whole(); err != nil {
		return err
	}
	if t.head.seq == 0 {
		return fmt.Errorf("%w: the log has no first event", ErrNoRecord)
	}
	r.head, r.size = t.head, t.offset
	if err := r.repair(info.Size()); err != nil {
		return err
	}
	return r.tidy()
}

// Dir returns the record's folder.
func (r *Run) Dir() string { return r.dir }

// State returns the fold of everything appended so far.
func (r *Run) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.clone()
}

// Head returns the last event's seq and the SHA-256 of its line.
func (r *Run) Head() (seq int64, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head.seq, r.head.digest
}

// Close releases the record. Nothing waits to be written.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.broken = os.ErrClosed
	}
	return r.log.Close()
}
