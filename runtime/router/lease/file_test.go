package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	testTTL    = 5 * time.Second
	testMargin = time.Second
)

func openFile(t *testing.T, path, holder string, proof Proof) *File {
	t.Helper()
	l, err := NewFile(FileOptions{Path: path, Holder: holder, TTL: testTTL, Margin: testMargin, Proof: proof})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func claim(t *testing.T, l Lease) Term {
	t.Helper()
	term, err := l.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func wantHeld(t *testing.T, l Lease, by string) {
	t.Helper()
	_, err := l.Claim(t.Context())
	var held *HeldError
	if !errors.As(err, &held) || held.Holder != by {
		t.Fatalf("claim: %v, want held by %s", err, by)
	}
}

// TestGoneHolder closes the descriptors of a holder as the kernel does when it dies.
func TestGoneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	a, b := openFile(t, path, "a", ProofOn), openFile(t, path, "b", ProofOn)
	claim(t, a)
	if err := a.Proven(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, b, "a")
	a.Close()
	wantHeld(t, openFile(t, path, "c", ProofOff), "a")
	if term := claim(t, b); term.Epoch != 2 {
		t.Errorf("claimed %+v", term)
	}
	wantHeld(t, openFile(t, path, "d", ProofOn), "b")
}

// TestNoProof lists what must never stand for the end of a holder.
func TestNoProof(t *testing.T) {
	for name, forge := range map[string]func(t *testing.T, alive string, a *File, term Term){
		"a living holder":     func(*testing.T, string, *File, Term) {},
		"a removed file":      func(t *testing.T, p string, _ *File, _ Term) { check(t, os.Remove(p)) },
		"a copy in its place": func(t *testing.T, p string, _ *File, _ Term) { copyOver(t, p) },
		"an empty file":       func(t *testing.T, p string, a *File, _ Term) { a.Close(); check(t, os.WriteFile(p, nil, 0o600)) },
		"a line cut short":    func(t *testing.T, p string, a *File, _ Term) { a.Close(); check(t, os.Truncate(p, 9)) },
		"a link": func(t *testing.T, p string, a *File, _ Term) {
			a.Close()
			check(t, os.Rename(p, p+"2"))
			check(t, os.Symlink(p+"2", p))
		},
		"another epoch's end": func(t *testing.T, p string, a *File, _ Term) {
			a.alive.name = life{}
			check(t, a.alive.hold("a", 7))
			a.Close()
		},
		"another holder's end":  func(t *testing.T, p string, a *File, _ Term) { check(t, a.alive.hold("x", 1)); a.Close() },
		"a reference's lease":   func(t *testing.T, p string, a *File, _ Term) { a.Close(); reference(t, a.o.Path) },
		"a failed renewal only": func(t *testing.T, p string, a *File, term Term) { term.Epoch++; _, _ = a.Renew(t.Context(), term) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lease")
			a := openFile(t, path, "a", ProofOn)
			forge(t, path+".alive", a, claim(t, a))
			d, err := a.Look(t.Context())
			check(t, err)
			wantHeld(t, openFile(t, path, "b", ProofOn), d.Holder)
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copyOver puts a copy of a locked file, which nobody locks, in its place.
func copyOver(t *testing.T, path string) {
	b, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path+".copy", b, 0o600))
	check(t, os.Rename(path+".copy", path))
}

func reference(t *testing.T, path string) {
	check(t, os.WriteFile(path, Make("router-r:0", 9, time.Now(), testTTL).Encode(), 0o600))
}

// TestSlowHolderIsNotNamed claims by expiry while the process before still exists: there
// is no proof then, and there is again once the lock could be had.
func TestSlowHolderIsNotNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	a, b, c := openFile(t, path, "a", ProofOn), openFile(t, path, "b", ProofOn), openFile(t, path, "c", ProofOn)
	first := claim(t, a)
	check(t, os.WriteFile(path, Make("a", 1, time.Now(), 0).Encode(), 0o600))
	second := claim(t, b)
	if second.Epoch != 2 || b.Proven() == nil {
		t.Fatalf("%+v, proven: %v", second, b.Proven())
	}
	wantHeld(t, c, "b")
	check(t, a.Release(t.Context(), first)) // the old one wakes up and gives in
	wantHeld(t, c, "b")
	if _, err := b.Renew(t.Context(), second); err != nil || b.Proven() != nil {
		t.Fatalf("%v, proven: %v", err, b.Proven())
	}
	b.Close()
	if term := claim(t, c); term.Epoch != 3 {
		t.Errorf("claimed %+v", term)
	}
}

// TestDamagedLeaseIsNoFreeLease keeps every operation from reading rubbish as absence.
func TestDamagedLeaseIsNoFreeLease(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"rubbish":  func(p string) error { return os.WriteFile(p, []byte("{}"), 0o600) },
		"empty":    func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"a folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"a pipe":   func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"a link":   func(p string) error { return os.Symlink("/nowhere", p) },
		"long":     func(p string) error { return os.WriteFile(p, make([]byte, 1<<20), 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "lease")
		check(t, put(path))
		l := openFile(t, path, "a", ProofOn)
		if _, err := l.Claim(t.Context()); err == nil {
			t.Errorf("%s: claimed", name)
		}
		if _, err := l.Renew(t.Context(), Term{Epoch: 1, Holder: "a"}); err == nil || errors.Is(err, ErrLost) {
			t.Errorf("%s: renew: %v", name, err)
		}
		if _, err := l.Look(t.Context()); err == nil {
			t.Errorf("%s: looked", name)
		}
	}
}

// TestRemovedOrDamagedDocument costs the holder nothing, and lets nobody else in.
func TestRemovedOrDamagedDocument(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"removed": os.Remove, "emptied": func(p string) error { return os.Truncate(p, 0) }, "rubbish": func(p string) error { return os.WriteFile(p, []byte("{}"), 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "lease")
		a, b := openFile(t, path, "a", ProofOn), openFile(t, path, "b", ProofOn)
		var told []error
		a.o.Mended = func(why error) { told = append(told, why) }
		term := claim(t, a)
		check(t, spoil(path))
		if _, err := b.Claim(t.Context()); err == nil {
			t.Fatalf("%s: another router claimed", name)
		}
		again, err := a.Renew(t.Context(), term)
		if err != nil || again.Epoch != 1 {
			t.Fatalf("%s: renewed %+v, %v", name, again, err)
		}
		if _, err := a.Renew(t.Context(), again); err != nil || len(told) != 1 {
			t.Errorf("%s: told %v, %v", name, told, err)
		}
		wantHeld(t, b, "a")
		check(t, os.Remove(path))
		a.Close()
		if term := claim(t, b); term.Epoch != 2 {
			t.Errorf("%s: the next epoch is %d", name, term.Epoch)
		}
	}
}

// TestGap lasts only while looks follow each other, or while the damaged file stays the same.
func TestGap(t *testing.T) {
	var g gap
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		look  float64
		mark  string
		until float64
	}{{0, "", 5}, {1, "", 5}, {2.5, "", 5}, {4.5, "", 5}, {6.6, "", 11.6}, {7, "", 11.6}, {7.1, "a", 12.1}, {20, "a", 12.1}, {20.1, "b", 25.1}, {21, "", 26}} {
		if got := g.until(at(c.look), c.mark, 5*time.Second); !got.Equal(at(c.until)) {
			t.Errorf("at %g until %s, want %g", c.look, got, c.until)
		}
	}
}

// TestAllFilesRemoved: the holder writes them anew, and whoever saw the lease waits for that.
func TestAllFilesRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	a, b := openFile(t, path, "a", ProofOn), openFile(t, path, "b", ProofOn)
	term := claim(t, a)
	if _, err := b.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	remove := func() {
		for _, p := range Paths(path) {
			if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	remove()
	wantHeld(t, b, "a")
	term, err := a.Renew(t.Context(), term)
	if err != nil || term.Epoch != 1 || a.Proven() != nil {
		t.Fatalf("renewed %+v, %v, proven %v", term, err, a.Proven())
	}
	wantHeld(t, b, "a")
	remove()
	a.Close()
	wantHeld(t, b, "a") // nothing tells that it is gone
	b.gap.since, b.gap.seen = time.Now().Add(-testTTL), time.Now()
	if term := claim(t, b); term.Epoch != 2 {
		t.Errorf("claimed epoch %d", term.Epoch)
	}
}

// TestAllFilesRemovedBeforeAStart: a router that starts then knows nobody, and waits for the
// holder all the same.
func TestAllFilesRemovedBeforeAStart(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system has no beacon")
	}
	path := filepath.Join(t.TempDir(), "lease")
	a := openFile(t, path, "a", ProofOn)
	term := claim(t, a)
	for _, p := range Paths(path) {
		check(t, os.Remove(p))
	}
	c := openFile(t, path, "c", ProofOn)
	var held *HeldError
	if _, err := c.Claim(t.Context()); !errors.As(err, &held) || held.Holder == "" {
		t.Fatalf("claimed beside a holder: %v", err)
	}
	if _, err := a.Renew(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, c, "a")
	for _, p := range Paths(path) {
		check(t, os.Remove(p))
	}
	a.Close()
	wantHeld(t, c, "a")
	c.gap.since = c.gap.since.Add(-testTTL)
	if term := claim(t, c); term.Epoch != 2 {
		t.Errorf("%+v", term)
	}
}

// TestOlderDocumentPutBack: what a backup brings back neither frees the lease nor ends it.
func TestOlderDocumentPutBack(t *testing.T) {
	for name, put := range map[string]func(path string, d Document) Document{
		"expired": func(_ string, d Document) Document {
			d.ExpiresAt, d.UpdatedAt = d.ExpiresAt-60, d.UpdatedAt-60
			return d
		},
		"an earlier epoch": func(_ string, d Document) Document { d.Epoch--; return d },
		"another's earlier": func(_ string, d Document) Document {
			d.Epoch, d.Holder, d.ExpiresAt = d.Epoch-1, "z", d.UpdatedAt
			return d
		},
	} {
		path := filepath.Join(t.TempDir(), "lease")
		check(t, os.WriteFile(path, Make("z", 6, time.Now(), 0).Encode(), 0o600))
		a := openFile(t, path, "a", ProofOn)
		term := claim(t, a)
		d, err := a.Look(t.Context())
		check(t, err)
		check(t, os.WriteFile(path, put(path, d).Encode(), 0o600))
		c := openFile(t, path, "c", ProofOn)
		var held *HeldError
		if _, err := c.Claim(t.Context()); !errors.As(err, &held) {
			t.Errorf("%s: claimed beside a holder: %v", name, err)
		}
		if term, err = a.Renew(t.Context(), term); err != nil || term.Epoch != 7 {
			t.Errorf("%s: renewed %+v, %v", name, term, err)
		}
		wantHeld(t, c, "a")
		a.Close()
		if term := claim(t, c); term.Epoch != 8 {
			t.Errorf("%s: the next epoch is %d", name, term.Epoch)
		}
	}
}

// TestOlderFilesPutBack: the alive file does not tell of the holder either, and yet nobody serves
// beside it.
func TestOlderFilesPutBack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system has no beacon")
	}
	for name, spoil := range map[string]func(t *testing.T, alive string){
		"removed":       func(t *testing.T, p string) { check(t, os.Remove(p)) },
		"emptied":       func(t *testing.T, p string) { check(t, os.Truncate(p, 0)) },
		"garbage":       func(t *testing.T, p string) { check(t, os.WriteFile(p, []byte("garbage"), 0o600)) },
		"a copy":        copyOver,
		"all but these": func(t *testing.T, p string) { copyOver(t, p); check(t, os.Remove(filepath.Dir(p)+"/lease.lock")) },
	} {
		path := filepath.Join(t.TempDir(), "lease")
		a, b := openFile(t, path, "a", ProofOn), openFile(t, path, "b", ProofOn)
		term := claim(t, a)
		wantHeld(t, b, "a")
		d, err := a.Look(t.Context())
		check(t, err)
		d.ExpiresAt, d.UpdatedAt = d.ExpiresAt-60, d.UpdatedAt-60
		check(t, os.WriteFile(path, d.Encode(), 0o600))
		spoil(t, path+".alive")
		for _, l := range []*File{b, openFile(t, path, "c", ProofOn)} {
			var held *HeldError
			if got, err := l.Claim(t.Context()); !errors.As(err, &held) {
				t.Errorf("%s: %s claimed beside a holder: %+v, %v", name, l.o.Holder, got, err)
			}
		}
		if _, err = a.Renew(t.Context(), term); err != nil || a.Proven() != nil {
			t.Fatalf("%s: %v, %v", name, err, a.Proven())
		}
		wantHeld(t, b, "a")
		a.Close()
		if term := claim(t, b); term.Epoch != 2 {
			t.Errorf("%s: %+v", name, term)
		}
	}
}

// TestDamagedAliveFile is written anew by its holder, so that its end is seen at once again.
func TestDamagedAliveFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	a, b := openFile(t, path, "a", ProofOn), openFile(t, path, "b", ProofOn)
	term := claim(t, a)
	check(t, os.WriteFile(path+".alive", []byte("rubbish"), 0o600))
	if _, err := a.Renew(t.Context(), term); err != nil || a.Proven() != nil {
		t.Fatalf("%v, %v", err, a.Proven())
	}
	a.Close()
	if term := claim(t, b); term.Epoch != 2 {
		t.Errorf("%+v", term)
	}
}

// TestEpochsGoOnFromWhatWasSeen, although another router began anew meanwhile.
func TestEpochsGoOnFromWhatWasSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	check(t, os.WriteFile(path, Make("x", 41, time.Now(), testTTL).Encode(), 0o600))
	b := openFile(t, path, "b", ProofOff)
	wantHeld(t, b, "x")
	check(t, os.WriteFile(path, Make("y", 1, time.Now(), 0).Encode(), 0o600))
	wantHeld(t, b, "x") // it is still valid
	b.gap.since = b.gap.since.Add(-testTTL)
	if term := claim(t, b); term.Epoch != 42 {
		t.Errorf("claimed epoch %d", term.Epoch)
	}
}

// TestDamagedAfterTheEnd: a holder that is gone leaves no lease that stays damaged for good.
func TestDamagedAfterTheEnd(t *testing.T) {
	rubbish := func(p string) error { return os.WriteFile(p, []byte("rubbish"), 0o600) }
	later := func(p string) error {
		return os.WriteFile(p, []byte(`{"schema": "narwhal.router-lease", "schema_version": 2, "more": []}`), 0o600)
	}
	for name, c := range map[string]struct {
		proof Proof
		seen  bool
		spoil func(path string) error
		want  string
	}{
		"proven":                 {ProofOn, false, rubbish, "claimed"},
		"proven, emptied":        {ProofOn, false, func(p string) error { return os.Truncate(p, 0) }, "claimed"},
		"seen before":            {ProofOff, true, rubbish, "held"},
		"never seen":             {ProofOff, false, rubbish, "refused"},
		"another version's":      {ProofOn, true, later, "refused"},
		"another program's":      {ProofOn, true, func(p string) error { return os.WriteFile(p, []byte(`{"schema": "other"}`), 0o600) }, "refused"},
		"a folder in its place":  {ProofOn, true, func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }, "refused"},
		"the alive file as well": {ProofOn, true, func(p string) error { return errors.Join(rubbish(p), rubbish(p+".alive")) }, "held"},
	} {
		path := filepath.Join(t.TempDir(), "lease")
		a, b := openFile(t, path, "a", c.proof), openFile(t, path, "b", c.proof)
		claim(t, a)
		if c.seen {
			wantHeld(t, b, "a")
		}
		a.Close()
		check(t, c.spoil(path))
		term, err := b.Claim(t.Context())
		var held *HeldError
		got := "refused"
		if err == nil && term.Epoch == 2 {
			got = "claimed"
		} else if errors.As(err, &held) {
			got = "held"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s: %+v, %v", name, got, c.want, term, err)
		}
		if got == "held" {
			b.gap.since = b.gap.since.Add(-testTTL)
			if term := claim(t, b); term.Epoch != 2 {
				t.Errorf("%s: claimed epoch %d after the time of a lease", name, term.Epoch)
			}
		}
	}
}

// keepLock keeps the lock on a file, as another router does.
func keepLock(t *testing.T, path string) {
	f, err := openLock(path)
	check(t, err)
	t.Cleanup(func() { f.Close() })
	if got, err := tryLock(f); err != nil || !got {
		t.Fatalf("%s is not free: %v", path, err)
	}
}

// TestNothingStandsForTheDocument keeps a term from coming back that is not provably this
// holder's own.
func TestNothingStandsForTheDocument(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, a *File, term *Term){
		"no proof":              func(_ *testing.T, a *File, _ *Term) { a.proof = false },
		"the lock was given up": func(_ *testing.T, a *File, _ *Term) { a.Close() },
		"the lock is another's": func(t *testing.T, a *File, _ *Term) { copyOver(t, a.o.Path+".alive"); keepLock(t, a.o.Path+".alive") },
		"an old term":           func(_ *testing.T, _ *File, term *Term) { term.ValidUntil = time.Now().Add(-time.Millisecond) },
		"another epoch":         func(_ *testing.T, _ *File, term *Term) { term.Epoch++ },
	} {
		path := filepath.Join(t.TempDir(), "lease")
		a := openFile(t, path, "a", ProofOn)
		term := claim(t, a)
		check(t, os.Remove(path))
		spoil(t, a, &term)
		if _, err := a.Renew(t.Context(), term); !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestJammedLock: a process that was stopped in the middle of a change keeps nobody out for good,
// and of those who come after it one alone gets each epoch.
func TestJammedLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	claim(t, openFile(t, path, "a", ProofOff))
	stopped, err := lockPath(t.Context(), path+".lock")
	check(t, err)
	t.Cleanup(func() { stopped.Close() })
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	others := make([]*File, 8)
	for i := range others {
		others[i] = openFile(t, path, fmt.Sprint("b", i), ProofOff)
	}
	try := func() (epochs []int64) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, l := range others {
			wg.Go(func() {
				if term, err := l.Claim(short()); err == nil {
					mu.Lock()
					epochs = append(epochs, term.Epoch)
					mu.Unlock()
				}
				l.jam.since = l.jam.since.Add(-2 * testTTL)
			})
		}
		wg.Wait()
		return epochs
	}
	for range 4 {
		if got := try(); len(got) > 0 {
			t.Fatalf("claimed beside a lease that lasts: %v", got)
		}
	}
	check(t, os.WriteFile(path, Make("a", 1, time.Now(), 0).Encode(), 0o600))
	var got []int64
	for range 50 {
		got = append(got, try()...)
	}
	if len(got) == 0 || got[0] != 2 {
		t.Fatalf("claimed %v", got)
	}
	for _, e := range got[1:] {
		if e != 2 { // the holder claims its own epoch again; nobody else may
			t.Errorf("claimed %v", got)
		}
	}
	d, err := others[0].Look(t.Context())
	check(t, err)
	if d.Epoch != 2 {
		t.Errorf("stored %+v", d)
	}
}

// TestFailedClaimHoldsNothing gives the lock back when the lease could not be written.
func TestFailedClaimHoldsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lease")
	l := openFile(t, path, "a", ProofOn)
	l.o.Path = filepath.Join(path, "missing", "lease")
	if _, err := l.Claim(t.Context()); err == nil {
		t.Fatal("claimed in a missing folder")
	}
	if l.alive.f != nil {
		t.Error("the lock is kept")
	}
}

func TestNewFileRefuses(t *testing.T) {
	for _, o := range []FileOptions{{}, {Path: "x", Holder: "h", TTL: time.Second, Margin: time.Second}, {Path: "x", TTL: 2, Margin: 1}, {Path: "x", Holder: "a\n", TTL: 2, Margin: 1}} {
		if _, err := NewFile(o); err == nil {
			t.Errorf("%+v passes", o)
		}
	}
}

// TestSweeps: a claimant removes what a killed router left beside the lease, and not what others did.
func TestSweeps(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lease.json")
	for _, name := range []string{".atomic-lease.json-12", ".atomic-state.json-12"} {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	claim(t, openFile(t, path, "a", ProofOff))
	list, err := filepath.Glob(filepath.Join(dir, ".atomic-*"))
	if check(t, err); len(list) != 1 || filepath.Base(list[0]) != ".atomic-state.json-12" {
		t.Errorf("left %q", list)
	}
}
