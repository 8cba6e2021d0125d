package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/filetime"
)

// Proof says whether a holder's death is proven by the kernel; see the package comment.
type Proof int

// The choices. ProofAuto proves on file systems known to be local.
const (
	ProofAuto Proof = iota
	ProofOff
	ProofOn
)

// FileOptions configure a File.
type FileOptions struct {
	Path   string // of the document; its folder must exist
	Holder string // from NewHolder
	TTL    time.Duration
	Margin time.Duration
	Proof  Proof
	// Mended, if not nil, is called after a renewal that wrote the document anew, with what
	// had become of it.
	Mended func(why error)
}

// File is the lease in a file.
type File struct {
	o     FileOptions
	turn  chan struct{} // holds a token while an operation of this File runs
	alive alive
	proof bool
	why   error // why the last claim or renewal is not backed by the alive lock
	jam   jam   // of the lock on the lease's files
	// gap is the lack of a readable document as this File's claims have seen it.
	gap gap
	// seen is the highest epoch that this File has read or claimed.
	seen  atomic.Pointer[Document]
	swept sync.Once
}

// NewFile checks the options; it touches nothing but the folder's file system number.
// Close the File when the process no longer serves.
func NewFile(o FileOptions) (*File, error) {
	if o.Path == "" || o.TTL <= o.Margin || o.Margin < 0 {
		return nil, errors.New("make file lease: path is empty, or ttl does not exceed the safety margin")
	}
	if err := checkHolder(o.Holder); err != nil {
		return nil, fmt.Errorf("make file lease: %w", err)
	}
	l := &File{o: o, turn: make(chan struct{}, 1), alive: alive{path: o.Path + aliveSuffix}}
	l.proof = o.Proof == ProofOn || o.Proof == ProofAuto && isLocal(filepath.Dir(o.Path))
	if !l.proof {
		l.why = errors.New("prove holder: turned off, or the lease is not on a file system known to be local")
	}
	return l, nil
}

// Proven returns nil when this holder's death frees the lease at once, else why others
// will wait for its expiry. Valid after a claim or renewal.
func (l *File) Proven() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.why
}

// exclusive runs f alone among all users of the lease.
func (l *File) exclusive(ctx context.Context, f func() error) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return fmt.Errorf("lock lease: %w", ctx.Err())
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("lock lease: %w", err)
	}
	lock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(), lock.Close())
}

// Claim implements Lease.
func (l *File) Claim(ctx context.Context) (t Term, err error) {
	err = l.exclusive(ctx, func() error {
		l.swept.Do(func() { atomicfile.Sweep(l.o.Path) })
		d, mark, err := l.read()
		now, had := time.Now(), l.alive.f != nil
		epoch := max(d.Epoch, l.known().Epoch) + 1
		switch {
		case err != nil || !d.Stored() || l.misplaced(d, mark, now):
			epoch, err = l.unnamed(now, mark.String(), err)
		case d.Expired(now):
		case d.Holder == l.o.Holder:
			epoch = d.Epoch
		case !l.proof || !l.alive.gone(d):
			err = d.Held()
		}
		if held := (*HeldError)(nil); errors.As(err, &held) {
			return err
		}
		if err == nil {
			l.gap = gap{}
			t, err = l.put(epoch, now)
		}
		if err != nil {
			if !had {
				l.alive.drop() // this holder does not serve, whatever is stored
			}
			return fmt.Errorf("claim lease: %w", err)
		}
		return nil
	})
	return t, err
}

// put names the holder in the alive file, then in the lease.
func (l *File) put(epoch int64, now time.Time) (Term, error) {
	if Exhausted(epoch) {
		return Term{}, ErrNoEpoch
	}
	if l.proof {
		l.why = l.alive.hold(l.o.Holder, epoch)
	}
	d := Make(l.o.Holder, epoch, now, l.o.TTL)
	if err := atomicfile.Write(l.o.Path, d.Encode(), 0o600); err != nil {
		return Term{}, err
	}
	l.note(d)
	return Term{Epoch: epoch, Holder: l.o.Holder, ValidUntil: now.Add(l.o.TTL - l.o.Margin)}, nil
}

// Renew implements Lease.
func (l *File) Renew(ctx context.Context, old Term) (t Term, err error) {
	err = l.exclusive(ctx, func() error {
		now := time.Now()
		d, _, err := l.read()
		var spoilt error
		if l.lostAlone(d, err, old, now) {
			switch spoilt = err; {
			case err == nil && d.Stored():
				spoilt = errReplaced
			case err == nil:
				spoilt = errRemoved
			}
			d, err = Make(old.Holder, old.Epoch, now, l.o.TTL), nil
		}
		if err != nil {
			return fmt.Errorf("renew lease: %w", err)
		}
		if !d.Is(old) || old.Holder != l.o.Holder || d.Expired(now) {
			return fmt.Errorf("renew lease: %w", ErrLost)
		}
		if t, err = l.put(d.Epoch, now); err != nil {
			return fmt.Errorf("renew lease: %w", err)
		}
		if spoilt != nil && l.o.Mended != nil {
			l.o.Mended(spoilt)
		}
		return nil
	})
	return t, err
}

// Release implements Lease. The alive lock goes after the lease, never before.
func (l *File) Release(ctx context.Context, t Term) error {
	return l.exclusive(ctx, func() error {
		d, _, err := l.read()
		if err != nil {
			return fmt.Errorf("release lease: %w", err)
		}
		if now := time.Now(); d.Is(t) && !d.Expired(now) {
			if err := atomicfile.Write(l.o.Path, Make(d.Holder, d.Epoch, now, 0).Encode(), 0o600); err != nil {
				return fmt.Errorf("release lease: %w", err)
			}
		}
		if n := l.alive.name; n == (life{}) || n.Epoch == t.Epoch {
			l.alive.drop()
		}
		return nil
	})
}

// Look implements Lease. Documents are replaced whole, so it needs no lock.
func (l *File) Look(context.Context) (Document, error) {
	d, _, err := l.read()
	if err != nil {
		return Document{}, fmt.Errorf("look at lease: %w", err)
	}
	return d, nil
}

// Close gives up the alive lock without a word to the lease: others may then claim at
// once what this File still holds. Call it when the process serves no more.
func (l *File) Close() {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.alive.drop()
}

// read returns the zero Document only when no file is there, and a mark that every writing of
// the file changes.
func (l *File) read() (d Document, m mark, err error) {
	f, err := os.OpenFile(l.o.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Document{}, m, nil
	}
	if err != nil {
		return Document{}, m, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return Document{}, m, malformed("no regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return Document{}, m, err
	}
	if d, err = Decode(b); err == nil {
		l.note(d)
	}
	return d, mark{inode(f), filetime.Changed(info)}, err
}
