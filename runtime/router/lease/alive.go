package lease

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
)

const aliveSuffix = ".alive"

// alive is the lock that a holder keeps for its whole life. It is guarded by the flock on
// <path>.lock and by the File that owns it.
type alive struct {
	path string
	f    *os.File // locked; nil = not held
	name life     // what is written there
	// beacon is kept beside the lock, where the system has one: it stays when files go.
	beacon *os.File
}

// life is the one line of the file.
type life struct {
	Holder string `json:"holder"`
	Epoch  int64  `json:"epoch"`
	Inode  uint64 `json:"inode"`
}

// try takes the lock if nobody has it.
func (a *alive) try() (bool, error) {
	if a.f != nil {
		return true, nil
	}
	f, err := openLock(a.path)
	if err != nil {
		return false, err
	}
	got, err := tryLock(f)
	if err != nil || !got || !isAt(f, a.path) {
		_ = f.Close()
		return false, err
	}
	a.f = f
	if a.beacon == nil {
		a.beacon = lightBeacon(strings.TrimSuffix(a.path, aliveSuffix))
	}
	return true, nil
}

// hold takes the lock if it can and names the term there. A lock on a file that is no longer at
// the path keeps nobody out: the one that is there now is taken instead, made if absent.
func (a *alive) hold(holder string, epoch int64) error {
	if a.f != nil && !isAt(a.f, a.path) {
		a.drop()
	}
	got, err := a.try()
	if err != nil {
		return fmt.Errorf("hold %s: %w", a.path, err)
	}
	if !got {
		return fmt.Errorf("hold %s: a process that held the lease before still exists", a.path)
	}
	want := life{holder, epoch, inode(a.f)}
	if a.name == want && readLife(a.f) == want {
		return nil
	}
	line, err := json.Marshal(want)
	if err == nil {
		err = a.f.Truncate(0)
	}
	if err == nil {
		_, err = a.f.WriteAt(append(line, '\n'), 0)
	}
	if err != nil {
		a.name = life{}
		return fmt.Errorf("hold %s: %w", a.path, err)
	}
	a.name = want
	return nil
}

// gone reports whether the process of d's holder has provably ended. On true the lock
// stays with the caller.
func (a *alive) gone(d Document) bool {
	if a.f != nil {
		return false // what stands there is our own earlier term
	}
	if got, err := a.try(); err != nil || !got {
		return false
	}
	if readLife(a.f) == (life{d.Holder, d.Epoch, inode(a.f)}) {
		return true
	}
	a.drop()
	return false
}

// last reads whose life the file tells, the zero value when it tells none, and whether another
// process still leads it.
func (a *alive) last() (l life, lives bool) {
	if a.f != nil {
		return a.name, false
	}
	f, err := os.OpenFile(a.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return life{}, false
	}
	defer f.Close()
	if l = readLife(f); checkHolder(l.Holder) != nil || l.Epoch < 1 || l.Epoch >= maxEpoch || l.Inode != inode(f) {
		return life{}, false
	}
	free, err := tryLock(f) // closing the file gives it back
	return l, err == nil && !free
}

// readLife reads what a file tells, the zero value when it is no line of ours.
func readLife(f *os.File) (l life) {
	b := make([]byte, maxDocument)
	n, _ := f.ReadAt(b, 0) // io.EOF is the rule
	if json.Unmarshal(b[:n], &l) != nil {
		return life{}
	}
	return l
}

// drop gives the lock back.
func (a *alive) drop() {
	if a.f != nil {
		_ = a.f.Close()
	}
	if a.beacon != nil {
		_ = a.beacon.Close()
	}
	a.f, a.name, a.beacon = nil, life{}, nil
}

func inode(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return inodeOf(info)
}

func inodeOf(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
