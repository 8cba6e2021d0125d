package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// Holder says who holds a lock.
type Holder struct {
	Host       string `json:"host"`
	PID        int    `json:"pid"`
	BootID     string `json:"boot_id"`
	StartTicks int64  `json:"start_ticks"` // field 22 of /proc/<pid>/stat
	User       string `json:"user"`
	Run        string `json:"run"`
}

// Self describes this process. What the machine does not tell stays empty.
func Self(run string) Holder {
	h := Holder{PID: os.Getpid(), Run: run}
	h.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil {
		h.User = u.Username
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		h.BootID = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/self/stat"); err == nil {
		// The command name, in parentheses, may hold anything; field 3 follows its end.
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) > 19 {
			h.StartTicks, _ = strconv.ParseInt(fields[19], 10, 64)
		}
	}
	return h
}

// LockedError says who holds the lock and until when they said they would.
type LockedError struct {
	Holder  Holder
	Expires time.Time // zero when the holder did not say
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.Holder.PID != 0 {
		who = fmt.Sprintf("run %s of %s (pid %d on %s)", clip(e.Holder.Run), clip(e.Holder.User), e.Holder.PID, clip(e.Holder.Host))
	}
	if e.Expires.IsZero() {
		return "lock: held by " + who
	}
	return fmt.Sprintf("lock: held by %s until %s", who, e.Expires.UTC().Format(time.RFC3339))
}

// Lock is a held lock. The kernel releases it when the process ends, however it
// ends; the holder file beside it only serves messages.
type Lock struct {
	f      *os.File
	holder Holder
	ttl    time.Duration
}

type lockNote struct {
	Holder  Holder    `json:"holder"`
	Expires time.Time `json:"expires"`
}

func holderFile(path string) string { return path + ".holder" }

// Acquire takes the lock at path without waiting, or returns *LockedError. ttl
// is what the holder promises in messages; Renew extends it. An expired promise
// does not free the lock: its process still lives.
func Acquire(path string, h Holder, ttl time.Duration) (*Lock, error) {
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, readHolder(path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &Lock{f: f, holder: h, ttl: ttl}
	if err := l.Renew(time.Now()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

func readHolder(path string) *LockedError {
	var n lockNote
	b, err := readBounded(holderFile(path), 64<<10)
	if err != nil || json.Unmarshal(b, &n) != nil {
		return &LockedError{}
	}
	return &LockedError{Holder: n.Holder, Expires: n.Expires}
}

// Renew promises to be done by now + ttl.
func (l *Lock) Renew(now time.Time) error {
	b, err := marshal(lockNote{Holder: l.holder, Expires: now.UTC().Add(l.ttl)})
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := atomicfile.Write(holderFile(l.f.Name()), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// Release gives the lock back. The lock file stays, since removing it would let
// two processes hold locks on two files of one name.
func (l *Lock) Release() error {
	err := os.Remove(holderFile(l.f.Name()))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, l.f.Close()); err != nil {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}
