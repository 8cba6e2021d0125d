package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates"
)

func self(t *testing.T) string {
	t.Helper()
	d, err := selfDigest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// root is a host's root with releases of these names, oldest first.
func root(t *testing.T, releases ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, r := range releases {
		path := filepath.Join(dir, gates.DirReleases, r)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "narwhal"), []byte(r), 0o700); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func listed(t *testing.T, root string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, gates.DirReleases))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name()[:1])
		}
	}
	return strings.Join(names, "")
}

func digest(c string) string { return strings.Repeat(c, 64) }

func TestSwitchAndBack(t *testing.T) {
	me, ctx := self(t), t.Context()
	dir := root(t, me)
	q := SwitchRequest{Root: dir, Release: me}
	if _, err := release(ctx, q); !errors.Is(err, gates.ErrUndone) {
		t.Errorf("before: %v", err)
	}
	for range 2 { // the second time changes nothing
		got, err := doSwitch(ctx, q)
		if err != nil || got != (Switched{Self: me, Current: me, Previous: "none"}) {
			t.Fatalf("switch: %+v, %v", got, err)
		}
	}
	target, err := os.Readlink(filepath.Join(dir, gates.LinkCurrent))
	if err != nil || filepath.IsAbs(target) || target != filepath.Join(gates.DirReleases, me) {
		t.Errorf("current points to %q, %v", target, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, gates.LinkCurrent, "narwhal")); err != nil || string(b) != me {
		t.Errorf("through current: %v", err)
	}
	if got, err := release(ctx, q); err != nil || got.Current != me {
		t.Errorf("release: %+v, %v", got, err)
	}
	for range 2 {
		got, err := switchBack(ctx, q)
		if err != nil || got.Current != "none" {
			t.Errorf("back from a first installation: %+v, %v", got, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, gates.LinkCurrent)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("current: %v", err)
	}
}

func TestSwitchBackToTheReleaseBefore(t *testing.T) {
	me, ctx := self(t), t.Context()
	dir := root(t, digest("a"), me)
	if err := point(dir, digest("a")); err != nil {
		t.Fatal(err)
	}
	q := SwitchRequest{Root: dir, Release: me}
	got, err := doSwitch(ctx, q)
	if err != nil || got.Previous != digest("a") {
		t.Fatalf("switch: %+v, %v", got, err)
	}
	for range 2 {
		if got, err := switchBack(ctx, q); err != nil || got.Current != digest("a") {
			t.Errorf("back: %+v, %v", got, err)
		}
	}
	// Another release has been switched to meanwhile: it is not touched.
	if err := point(dir, digest("b")); err != nil {
		t.Fatal(err)
	}
	if got, err := switchBack(ctx, q); err != nil || got.Current != digest("b") {
		t.Errorf("back from what is not current: %+v, %v", got, err)
	}
}

// TestSwitchCutOff repeats a switch that died between its two writes.
func TestSwitchCutOff(t *testing.T) {
	me, ctx := self(t), t.Context()
	dir := root(t, digest("a"), me)
	if err := point(dir, digest("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(previousFile(dir), []byte(digest("a")), 0o600); err != nil {
		t.Fatal(err)
	}
	// A temporary link of a process that died lies there too.
	if err := os.Symlink("nowhere", filepath.Join(dir, gates.LinkCurrent+".1")); err != nil {
		t.Fatal(err)
	}
	got, err := doSwitch(ctx, SwitchRequest{Root: dir, Release: me})
	if err != nil || got.Previous != digest("a") || got.Current != me {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestSwitchRefusesAnotherDigest(t *testing.T) {
	dir := root(t, digest("a"))
	for _, release := range []string{digest("a"), "", "../../etc", strings.ToUpper(self(t))} {
		if _, err := doSwitch(t.Context(), SwitchRequest{Root: dir, Release: release}); err == nil {
			t.Errorf("switched to %q, which this binary is not", release)
		}
	}
	if got := gates.CurrentRelease(dir); got != "none" {
		t.Errorf("current is %s", got)
	}
}

func TestPrune(t *testing.T) {
	me := self(t)
	for name, c := range map[string]struct {
		keep   int
		before string // current
		want   string
	}{
		"no limit":                     {0, "e", "abcde"},
		"more than there are":          {9, "e", "abcde"},
		"three":                        {3, "e", "de"},
		"two":                          {2, "e", "e"},
		"one keeps the one before":     {1, "e", "e"},
		"the one before is the oldest": {3, "a", "ae"},
	} {
		var releases []string
		for _, c := range "abcde" {
			releases = append(releases, digest(string(c)))
		}
		dir := root(t, append(releases, me)...)
		for _, other := range []string{"not a release", "previous.bak"} {
			if err := os.Mkdir(filepath.Join(dir, gates.DirReleases, other), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := point(dir, digest(c.before)); err != nil {
			t.Fatal(err)
		}
		if _, err := doSwitch(t.Context(), SwitchRequest{Root: dir, Release: me, Keep: c.keep}); err != nil {
			t.Fatal(err)
		}
		for _, stays := range []string{me, "not a release", "previous.bak"} {
			if _, err := os.Stat(filepath.Join(dir, gates.DirReleases, stays)); err != nil {
				t.Errorf("%s: %s is gone", name, stays)
			}
			_ = os.RemoveAll(filepath.Join(dir, gates.DirReleases, stays))
		}
		if got := listed(t, dir); got != c.want {
			t.Errorf("%s: %s stay beside the new one, want %s", name, got, c.want)
		}
	}
}

func TestKeygen(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	q := RootRequest{Root: dir}
	if _, err := key(ctx, q); !errors.Is(err, gates.ErrUndone) {
		t.Errorf("key of nothing: %v", err)
	}
	first, err := keygen(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	public, err := attest.LoadPublic([]byte(first.Public))
	if err != nil {
		t.Fatal(err)
	}
	signer, _, err := attest.OpenKeyFile(PrivateKeyPath(dir), nil) // checks the mode, too
	if err != nil || !bytes.Equal(signer.Public().PEM(), public.PEM()) {
		t.Errorf("the private key: %v; it does not belong to the public one", err)
	}
	again, err := keygen(ctx, q)
	if err != nil || again != first {
		t.Errorf("again: %v, another key: %v", err, again != first)
	}
	if strings.Contains(first.Public, "PRIVATE") {
		t.Error("the answer holds a private key")
	}
	// What gate B reports is the fact that is observed later.
	seen, err := gates.Look(gates.Looking{Root: dir})
	if err != nil || seen.Facts["key"] != first.SHA256 {
		t.Errorf("observed %s, reported %s", seen.Facts["key"], first.SHA256)
	}
	if err := os.Remove(PrivateKeyPath(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := key(ctx, q); !errors.Is(err, gates.ErrUndone) {
		t.Errorf("half a key counts: %v", err)
	}
	if other, err := keygen(ctx, q); err != nil || other == first {
		t.Errorf("after the private half was lost: %v, the old public key: %v", err, other == first)
	}
}

// TestKeygenCutOff died after the private half: both are made anew.
func TestKeygenCutOff(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, gates.DirEtc), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(PrivateKeyPath(dir), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := keygen(t.Context(), RootRequest{Root: dir})
	if err != nil {
		t.Fatal(err)
	}
	signer, _, err := attest.OpenKeyFile(PrivateKeyPath(dir), nil)
	if err != nil || string(signer.Public().PEM()) != k.Public {
		t.Errorf("the halves do not fit: %v", err)
	}
}

// TestKeyOfTwoPairs refuses a public key that the private one beside it does not sign for.
func TestKeyOfTwoPairs(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	k, err := keygen(t.Context(), RootRequest{Root: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keygen(t.Context(), RootRequest{Root: other}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(PrivateKeyPath(other))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(PrivateKeyPath(dir), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := key(t.Context(), RootRequest{Root: dir}); !errors.Is(err, gates.ErrUndone) {
		t.Errorf("got %v", err)
	}
	if again, err := keygen(t.Context(), RootRequest{Root: dir}); err != nil || again == k {
		t.Errorf("keygen left the broken pair: %v", err)
	}
}

func TestRoleFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := roleFiles(t.Context(), RootRequest{Root: dir}); err == nil {
		t.Error("a role was read where none is")
	}
	want := Role{Fleet: "tern", Host: "h1", Model: "m", Engines: []string{"p0"}, Router: true}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, gates.DirEtc), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, gates.DirEtc, "host.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := roleFiles(t.Context(), RootRequest{Root: dir})
	if err != nil || got.Role.Host != "h1" || len(got.Role.Engines) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	seen, err := gates.Look(gates.Looking{Root: dir})
	if err != nil || seen.Facts["files-dir"] != got.Digest {
		t.Errorf("observed %s, reported %s", seen.Facts["files-dir"], got.Digest)
	}
}

func TestVerbNames(t *testing.T) {
	verbs := HostVerbs()
	for _, name := range []string{"switch", "switch-back", "release", "role-files", "keygen", "key"} {
		if verbs[name] == nil {
			t.Errorf("no verb %s", name)
			continue
		}
		if _, err := verbs[name](context.Background(), json.RawMessage(`[]`)); err == nil {
			t.Errorf("%s read a list", name)
		}
	}
}

// TestPointIsAtomic looks at current all the while it is switched: it is never gone.
func TestPointIsAtomic(t *testing.T) {
	dir := root(t, digest("a"), digest("b"))
	if err := point(dir, digest("a")); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan string, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- ""
				return
			default:
			}
			if got := gates.CurrentRelease(dir); got != digest("a") && got != digest("b") {
				done <- got
				return
			}
		}
	}()
	for i := range 300 {
		if err := point(dir, digest(string("ab"[i%2]))); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if got := <-done; got != "" {
		t.Errorf("current was %q for a moment", got)
	}
}
