package lease

import (
	"context"
	"os"
	"time"
)

// jam is for how long a lock file could not be had at all.
type jam struct {
	inode uint64
	since time.Time
}

// lock takes the flock under which the lease's files change. A process that was stopped, or whose
// disk hangs, in the middle of a change keeps it, and nobody could claim after it: when the lock
// could not be had for the length of a lease, and the lease is over, another lock file takes its
// place. The process before finds its own validity over when it goes on, whatever it writes then.
func (l *File) lock(ctx context.Context) (*os.File, error) {
	path := l.o.Path + ".lock"
	f, err := lockPath(ctx, path)
	if err == nil {
		l.jam = jam{}
		return f, nil
	}
	at := inodeAt(path)
	if now := time.Now(); at == 0 || at != l.jam.inode {
		l.jam = jam{at, now}
	} else if now.Sub(l.jam.since) >= l.o.TTL {
		if d, _, err := l.read(); err == nil && d.Stored() && d.Expired(now) && l.replaceLock(at) {
			l.jam = jam{}
		}
	}
	return nil, err
}

// replaceLock removes the lock file that is jammed, unless another router was faster.
func (l *File) replaceLock(jammed uint64) bool {
	turn, err := openLock(l.o.Path + ".lock.turn")
	if err != nil {
		return false
	}
	defer turn.Close()
	if got, err := tryLock(turn); err != nil || !got || !isAt(turn, turn.Name()) {
		return false
	}
	path := l.o.Path + ".lock"
	if inodeAt(path) != jammed {
		return true
	}
	return os.Remove(path) == nil && os.Remove(turn.Name()) == nil
}

// inodeAt is 0 where no file is.
func inodeAt(path string) uint64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return inodeOf(info)
}
