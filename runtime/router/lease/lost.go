package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// mark tells one writing of a file from another; the zero mark is of none.
type mark struct {
	inode   uint64
	changed time.Time // content or place
}

func (m mark) String() string {
	if m == (mark{}) {
		return ""
	}
	return fmt.Sprint(m.inode, "@", m.changed.UnixNano())
}

// misplaced reports whether a document is not what a living holder wrote there: it is of an epoch
// before the holder's or before one that this File saw and that is not over, or it expired long before it came to its place.
func (l *File) misplaced(d Document, m mark, now time.Time) bool {
	if k := l.known(); d.Epoch < k.Epoch && !k.Expired(now) && (d.Expired(now) || d.Holder == l.o.Holder) {
		return true
	}
	if !l.proof {
		return false
	}
	n, lives := l.alive.last()
	if lives && n.Epoch > d.Epoch {
		return true
	}
	late := m.changed.Sub(now) < closely && unix(m.changed) > d.UpdatedAt+closely.Seconds() // by one clock
	return d.Expired(now) && late && (lives && n.Epoch == d.Epoch && n.Holder == d.Holder || !lives && l.nearby())
}

// nearby reports whether another process shows that it holds a lease at this path, whatever
// became of the files.
func (l *File) nearby() bool { return l.alive.beacon == nil && beaconIsLit(l.o.Path) }

// gap is how long the same lack of a readable document was seen.
type gap struct {
	since, seen time.Time
	mark        string
}

// closely is the longest time between two looks of one gap. A file that stays the same needs
// no close looks, absence does.
const closely = 2 * time.Second

// until notes a look and tells when the gap will have lasted for d. The mark names the damaged
// file that is there; "" = none is.
func (g *gap) until(now time.Time, mark string, d time.Duration) time.Time {
	if g.seen.IsZero() || mark != g.mark || mark == "" && now.Sub(g.seen) > closely {
		g.since, g.mark = now, mark
	}
	g.seen = now
	return g.since.Add(d)
}

// note remembers the document with the highest epoch.
func (l *File) note(d Document) {
	for {
		old := l.seen.Load()
		if old != nil && old.Epoch >= d.Epoch || l.seen.CompareAndSwap(old, &d) {
			return
		}
	}
}

// known is the document with the highest epoch that this File has seen, the zero one if none.
func (l *File) known() Document {
	if d := l.seen.Load(); d != nil {
		return *d
	}
	return Document{}
}

// unnamed is the epoch of a claim where no document says who holds the lease: it was removed,
// damaged, or never was. What is known of the last holder, from the alive file or from what
// this File saw, decides: nobody known, and the lease is new; gone for certain, and it is free;
// else it is held until the document was lacking for the whole time of a lease, within which
// a holder that still serves writes it anew.
func (l *File) unnamed(now time.Time, mark string, spoilt error) (int64, error) {
	var damaged *MalformedError
	if spoilt != nil && (!errors.As(spoilt, &damaged) || damaged.Foreign || mark == "") {
		return 0, spoilt
	}
	last := l.known()
	gone, nearby := false, false
	if l.proof {
		nearby = l.nearby()
		if n, lives := l.alive.last(); n.Epoch >= last.Epoch && n.Epoch > 0 {
			last.Epoch, last.Holder, gone = n.Epoch, n.Holder, !lives
		}
	}
	switch {
	case last.Epoch == 0 && spoilt != nil:
		return 0, spoilt // nothing says that it ever was a lease of ours
	case last.Epoch == 0 && nearby:
		last.Holder = "a router whose files were removed"
	case last.Epoch == 0 || gone:
		return last.Epoch + 1, nil
	}
	if until := l.gap.until(now, mark, l.o.TTL); now.Before(until) {
		return 0, &HeldError{Holder: last.Holder, Epoch: last.Epoch, ExpiresAt: until}
	}
	return last.Epoch + 1, nil
}

// lostAlone reports whether nothing but files went wrong while this holder's term lasts: the
// document was removed, damaged or replaced by one of its past, or all files of the lease were
// removed. Nobody else can have claimed meanwhile, so that they may be written anew.
func (l *File) lostAlone(d Document, err error, old Term, now time.Time) bool {
	var damaged *MalformedError
	switch {
	case err != nil && (!errors.As(err, &damaged) || damaged.Foreign):
		return false
	case !l.proof || old.Holder != l.o.Holder || !old.Valid(now):
		return false
	case err != nil || d.Epoch < old.Epoch || d.Is(old) && d.Expired(now):
		return l.alive.unclaimed(old) // no document among them
	}
	return false
}

var errReplaced = errors.New("an older lease document stood in its place")

var errRemoved = errors.New("lease document was removed")

// unclaimed reports whether the lock is held in the name of a term, and nobody holds another
// file that came in the place of its own.
func (a *alive) unclaimed(t Term) bool {
	if a.f == nil || a.name != (life{t.Holder, t.Epoch, inode(a.f)}) {
		return false
	}
	if isAt(a.f, a.path) {
		return true
	}
	f, err := os.OpenFile(a.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	free, err := tryLock(f) // closing the file gives it back
	return err == nil && free
}
