package look

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
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

const (
	maxFiles  = 100_000
	maxHashes = 64 << 20 // bytes of a file of remembered digests
	maxDepth  = 64
	hashers   = 8
	// young files are hashed again: a write soon after may leave the same times.
	young = 2 * time.Second
)

// print tells one state of a file from the next.
type print struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"ino"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds
	CTime int64  `json:"ctime"`
}

// remembered is a digest with the state of the file that it is of.
type remembered struct {
	Print print  `json:"print"`
	SHA   string `json:"sha256"`
}

// file is one file of a tree.
type file struct {
	path   string // relative, with slashes
	linked int64  // newest change of a link on the way to it, in nanoseconds; 0 without one
	remembered
}

func (f file) changed() time.Time { return time.Unix(0, max(f.Print.MTime, f.Print.CTime, f.linked)) }

// hashes remembers digests of files by their absolute path.
type hashes struct {
	path  string // where they are kept, "" = nowhere
	known map[string]remembered
}

func openHashes(path string, keep bool) *hashes {
	h := &hashes{known: map[string]remembered{}}
	if keep {
		h.path = path
	}
	if path == "" {
		return h
	}
	if info, err := os.Stat(path); err != nil || info.Size() > maxHashes {
		return h
	}
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &h.known) != nil || h.known == nil {
		h.known = map[string]remembered{}
	}
	return h
}

// digestOf is the SHA-256 over one line a file, "DIGEST  PATH", sorted by path: what
// sha256sum prints.
func digestOf(tree []file) string {
	h := sha256.New()
	for _, f := range tree {
		fmt.Fprintf(h, "%s  %s\n", f.SHA, f.path)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// tree hashes the files of a folder, sorted by path. Links count as what they lead to; names
// that begin with a dot are left out.
func (h *hashes) tree(ctx context.Context, root string) ([]file, error) {
	out, err := list(root)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(hashers)
	fresh := false
	for i := range out {
		abs := filepath.Join(root, filepath.FromSlash(out[i].path))
		if old, ok := h.known[abs]; ok && old.Print == out[i].Print && isDigest(old.SHA) {
			out[i].SHA = old.SHA
			continue
		}
		fresh = true
		work.Go(func() (err error) {
			out[i].remembered, err = hash(ctx, abs)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	if !fresh {
		return out, nil
	}
	for _, f := range out {
		if now.Sub(f.changed()) > young {
			h.known[filepath.Join(root, filepath.FromSlash(f.path))] = f.remembered
		}
	}
	return out, h.save()
}

// save writes the digests for the next process; a host that cannot keep them hashes again.
func (h *hashes) save() error {
	if h.path == "" {
		return nil
	}
	b, err := json.Marshal(h.known)
	if err != nil {
		return err
	}
	_ = atomicfile.Write(h.path, b, 0o600)
	return nil
}

// list names the files of a folder as find -L does, those behind links to folders too, sorted by path. A link
// that leads nowhere or back to a folder above it is an error.
func list(root string) ([]file, error) {
	top, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(top)
	if err != nil {
		return nil, err
	}
	w := walk{}
	err = w.folder(top, "", []fs.FileInfo{info}, 0)
	if err == nil && len(w.out) == 0 {
		err = errors.New("the folder holds no file")
	}
	slices.SortFunc(w.out, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return w.out, err
}

type walk struct{ out []file }

// folder lists one folder. above are the folders that it lies in and itself, linked the newest change of a
// link on the way, in nanoseconds.
func (w *walk) folder(dir, rel string, above []fs.FileInfo, linked int64) error {
	if len(above) > maxDepth {
		return fmt.Errorf("%s: more than %d folders deep", rel, maxDepth)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, d := range entries {
		if strings.HasPrefix(d.Name(), ".") {
			continue
		}
		name := path.Join(rel, d.Name())
		if strings.ContainsAny(name, "\n\\") {
			return fmt.Errorf("the name %q cannot be listed", name)
		}
		at, since := filepath.Join(dir, d.Name()), linked
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("%s: %s", name, why(err))
		}
		if d.Type()&fs.ModeSymlink != 0 {
			own, err := os.Lstat(at)
			if err != nil {
				return fmt.Errorf("%s: %s", name, why(err))
			}
			since = max(since, printOf(own).CTime)
		}
		switch {
		case info.IsDir() && slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, info) }):
			return fmt.Errorf("%s: the link leads back to a folder that it lies in", name)
		case info.IsDir():
			if err := w.folder(at, name, append(slices.Clip(above), info), since); err != nil {
				return err
			}
		case !info.Mode().IsRegular():
		case len(w.out) == maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		default:
			w.out = append(w.out, file{path: name, linked: since, remembered: remembered{Print: printOf(info)}})
		}
	}
	return nil
}

// hash reads a file and makes sure that it did not change meanwhile.
func hash(ctx context.Context, path string) (remembered, error) {
	f, err := os.Open(path)
	if err != nil {
		return remembered{}, err
	}
	defer func() { _ = f.Close() }()
	before, err := f.Stat()
	if err != nil {
		return remembered{}, err
	}
	h, buf := sha256.New(), make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return remembered{}, err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return remembered{}, err
		}
	}
	after, err := f.Stat()
	if err != nil {
		return remembered{}, err
	}
	if printOf(before) != printOf(after) {
		return remembered{}, fmt.Errorf("%s changes while it is read", filepath.Base(path))
	}
	return remembered{Print: printOf(after), SHA: hex.EncodeToString(h.Sum(nil))}, nil
}

func (r roots) uptime() (time.Duration, error) {
	b, err := read(filepath.Join(r.proc, "uptime"))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return 0, errUptime
	}
	s, err := strconv.ParseFloat(f[0], 64)
	if err != nil || s < 0 {
		return 0, errUptime
	}
	return time.Duration(s * float64(time.Second)), nil
}
