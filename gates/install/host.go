package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// SwitchRequest names a release by its digest.
type SwitchRequest struct {
	Root    string `json:"root"`
	Release string `json:"release"`
	Keep    int    `json:"keep,omitempty"`   // releases that stay, 0 = all
	Holder  string `json:"holder,omitempty"` // of the root's lock; "" = nobody asks
}

// Switched says what current points to and what ran to make it so.
type Switched struct {
	Self     string `json:"self"` // digest of the binary that answers, computed by it
	Current  string `json:"current"`
	Previous string `json:"previous"` // "none" for a first installation
}

// RootRequest names a host's root folder.
type RootRequest struct {
	Root string `json:"root"`
}

// RoleFiles is what lies in the folder of role files.
type RoleFiles struct {
	Role   Role   `json:"role"`
	Digest string `json:"digest"`
}

// Key is the public half of a host's sidecar key.
type Key struct {
	Public string `json:"public"` // PEM
	SHA256 string `json:"sha256"` // of the file
}

// HostVerbs are what gate B asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{
		"switch":      gates.Answer(doSwitch),
		"switch-back": gates.Answer(switchBack),
		"release":     gates.Answer(release),

		"check-release": gates.Answer(checkRelease),
		"role-files":    gates.Answer(roleFiles),
		"manager":       gates.Answer(manager),
		"units":         gates.Answer(readUnits),
		"unit-away":     gates.Answer(unitAway),
		"keygen":        gates.Answer(keygen),
		"key":           gates.Answer(key),
	}
}

var digestRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

// selfDigest is the digest of the running binary's file.
func selfDigest() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own binary: %w", err)
	}
	f, err := os.Open(exe)
	if err != nil {
		return "", fmt.Errorf("read own binary: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read own binary: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func previousFile(root string) string { return filepath.Join(root, gates.DirReleases, "previous") }

// doSwitch proves its own digest and points current at itself.
func doSwitch(ctx context.Context, q SwitchRequest) (Switched, error) {
	self, err := selfDigest()
	if err != nil {
		return Switched{}, err
	}
	if self != q.Release || !digestRE.MatchString(q.Release) {
		return Switched{}, fmt.Errorf("switch release: this binary is %.12s, asked was %.12s", self, q.Release)
	}
	if q.Holder != "" {
		if err := holds(q.Root, q.Holder); err != nil {
			return Switched{}, err
		}
	}
	was := gates.CurrentRelease(q.Root)
	if was != q.Release {
		if err := atomicfile.Write(previousFile(q.Root), []byte(was), 0o644); err != nil {
			return Switched{}, fmt.Errorf("switch release: %w", err)
		}
		if err := point(q.Root, q.Release); err != nil {
			return Switched{}, err
		}
		prune(q.Root, q.Keep, q.Release, was)
	}
	return release(ctx, q)
}

// point replaces the link in one rename.
func point(root, release string) error {
	link := filepath.Join(root, gates.LinkCurrent)
	tmp := fmt.Sprintf("%s.%d", link, os.Getpid())
	_ = os.Remove(tmp)
	if err := os.Symlink(filepath.Join(gates.DirReleases, release), tmp); err != nil {
		return fmt.Errorf("switch release: %w", err)
	}
	if err := os.Rename(tmp, link); err != nil {
		return errors.Join(fmt.Errorf("switch release: %w", err), os.Remove(tmp))
	}
	return nil
}

// release answers what current points to; ErrUndone when it is not the release.
func release(_ context.Context, q SwitchRequest) (Switched, error) {
	self, err := selfDigest()
	if err != nil {
		return Switched{}, err
	}
	s := Switched{Self: self, Current: gates.CurrentRelease(q.Root), Previous: previous(q.Root)}
	if s.Current != q.Release {
		return s, gates.ErrUndone
	}
	return s, nil
}

func previous(root string) string {
	b, err := os.ReadFile(previousFile(root))
	if err != nil || !digestRE.Match(b) {
		return "none"
	}
	return string(b)
}

// switchBack points current at the release before, or removes it after a first
// installation. Doing it twice changes nothing.
func switchBack(_ context.Context, q SwitchRequest) (Switched, error) {
	if gates.CurrentRelease(q.Root) == q.Release {
		before := previous(q.Root)
		if before == "none" || before == q.Release {
			if err := os.Remove(filepath.Join(q.Root, gates.LinkCurrent)); err != nil {
				return Switched{}, fmt.Errorf("switch back: %w", err)
			}
		} else if err := point(q.Root, before); err != nil {
			return Switched{}, err
		}
	}
	self, err := selfDigest()
	return Switched{Self: self, Current: gates.CurrentRelease(q.Root), Previous: previous(q.Root)}, err
}

// prune removes the oldest releases beyond keep; what is named stays.
func prune(root string, keep int, named ...string) {
	dir := filepath.Join(root, gates.DirReleases)
	entries, err := os.ReadDir(dir)
	if err != nil || keep <= 0 {
		return
	}
	type old struct {
		name string
		at   int64
	}
	var olds []old
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && digestRE.MatchString(e.Name()) && !slices.Contains(named, e.Name()) {
			olds = append(olds, old{e.Name(), info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(olds, func(a, b old) int { return int(min(1, max(-1, b.at-a.at))) })
	for i, o := range olds {
		if i >= keep-len(named) {
			_ = os.RemoveAll(filepath.Join(dir, o.name))
		}
	}
}

func roleFiles(_ context.Context, q RootRequest) (RoleFiles, error) {
	dir := filepath.Join(q.Root, gates.DirEtc)
	b, err := os.ReadFile(filepath.Join(dir, "host.json"))
	if err != nil {
		return RoleFiles{}, fmt.Errorf("read role file: %w", err)
	}
	var r Role
	if err := json.Unmarshal(b, &r); err != nil {
		return RoleFiles{}, fmt.Errorf("read role file: %w", err)
	}
	return RoleFiles{Role: r, Digest: gates.RoleFilesFact(dir)}, nil
}

// keygen makes the sidecar's key once; an existing one stays.
func keygen(ctx context.Context, q RootRequest) (Key, error) {
	if k, err := key(ctx, q); err == nil {
		return k, nil
	} else if !errors.Is(err, gates.ErrUndone) {
		return Key{}, err
	}
	private, public, err := attest.GenerateKey(nil)
	if err != nil {
		return Key{}, err
	}
	pub := filepath.Join(q.Root, gates.SidecarKey)
	if err := os.MkdirAll(filepath.Dir(pub), 0o755); err != nil {
		return Key{}, fmt.Errorf("write sidecar key: %w", err)
	}
	if err := atomicfile.Write(PrivateKeyPath(q.Root), private, 0o600); err != nil {
		return Key{}, fmt.Errorf("write sidecar key: %w", err)
	}
	if err := atomicfile.Write(pub, public, 0o644); err != nil {
		return Key{}, fmt.Errorf("write sidecar key: %w", err)
	}
	return key(ctx, q)
}

// PrivateKeyPath is where a host keeps its sidecar's private key.
func PrivateKeyPath(root string) string { return filepath.Join(root, gates.DirEtc, "sidecar.key") }

// paired reports whether the private half is there and belongs to the public one.
func paired(root string, public []byte) bool {
	if _, err := os.Stat(PrivateKeyPath(root)); err != nil {
		return false // opening would make one
	}
	signer, _, err := attest.OpenKeyFile(PrivateKeyPath(root), nil)
	if err != nil {
		return false
	}
	p, err := attest.LoadPublic(public)
	return err == nil && p.Hint() == signer.Public().Hint()
}

// key answers the public key; ErrUndone when a half is missing or they do not fit.
func key(_ context.Context, q RootRequest) (Key, error) {
	b, err := os.ReadFile(filepath.Join(q.Root, gates.SidecarKey))
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, gates.ErrUndone
	} else if err != nil {
		return Key{}, fmt.Errorf("read sidecar key: %w", err)
	}
	if !paired(q.Root, b) {
		return Key{}, gates.ErrUndone
	}
	sum := sha256.Sum256(b)
	return Key{Public: string(b), SHA256: hex.EncodeToString(sum[:])}, nil
}
