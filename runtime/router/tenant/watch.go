package tenant

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/filetime"
)

// Watcher puts a tenants file in force again whenever it changes. Set the fields before
// the first call; the methods may be called by any goroutine.
type Watcher struct {
	Path string
	// Interval between looks at the file; 0 looks only on Reload.
	Interval time.Duration
	Set      *Set
	// Apply, if not nil, gets each new table before it is in force: hand it to the limiter
	// there (Limiter.Use). It must not call the watcher.
	Apply func(*Table)
	// Failed, if not nil, gets what Run finds wrong with the file, once while the same
	// fault lasts. The table in force stays.
	Failed func(error)

	mu    sync.Mutex
	seen  stamp
	told  string // last error that Failed got; "" after a good look
	known bool   // some table of the file is in force
	sum   [sha256.Size]byte
}

// stamp tells whether a file may have changed.
type stamp struct {
	changed time.Time
	size    int64
	inode   uint64
}

// settled is the age at which a file whose stamp stands still is believed unchanged: two
// writes within one tick of the file system's clock have the same stamp.
const settled = 2 * time.Second

// Reload reads the file now, whatever its stamp. changed tells whether a new table is in
// force; on an error the old one stays. Start with it: it fails where Run would only report.
func (w *Watcher) Reload() (changed bool, err error) { return w.look(true) }

// Run looks at the file every Interval until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	if w.Interval <= 0 {
		return
	}
	tick := time.NewTicker(w.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, err := w.look(false)
			w.tell(err)
		}
	}
}

// tell reports an error unless it is the one told last.
func (w *Watcher) tell(err error) {
	w.mu.Lock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	again := text == w.told
	w.told = text
	w.mu.Unlock()
	if !again && err != nil && w.Failed != nil {
		w.Failed(err)
	}
}

// errUnchanged says that the file is the one in force by its stamp.
var errUnchanged = errors.New("unchanged")

func (w *Watcher) look(force bool) (changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, at, err := w.read(force)
	if errors.Is(err, errUnchanged) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read tenants file: %w", err)
	}
	sum := sha256.Sum256(b)
	if w.known && sum == w.sum {
		w.seen = at
		return false, nil
	}
	t, err := Parse(b)
	if err != nil {
		return false, fmt.Errorf("%s: %w", w.Path, err)
	}
	if w.Apply != nil {
		w.Apply(t)
	}
	w.Set.Publish(t)
	w.seen, w.sum, w.known = at, sum, true
	return true, nil
}

// read returns the file's bytes, or errUnchanged.
func (w *Watcher) read(force bool) ([]byte, stamp, error) {
	f, err := os.OpenFile(w.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	before, err := stampOf(f)
	if err != nil {
		return nil, stamp{}, err
	}
	if age := time.Since(before.changed); !force && w.known && before == w.seen && age > settled {
		return nil, before, errUnchanged
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, stamp{}, err
	}
	return b, before, nil
}

func stampOf(f *os.File) (stamp, error) {
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	if !info.Mode().IsRegular() {
		return stamp{}, &fs.PathError{Op: "read", Path: f.Name(), Err: errors.New("is no regular file")}
	}
	s := stamp{changed: filetime.Changed(info), size: info.Size()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s, nil
}
