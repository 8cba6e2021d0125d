// Package model reads checkpoints: the tree of files with their digests, and what the
// model's configuration asks of a launch.
//
// It promises one digest for equal trees on any host, and to name the first path in which
// two differ. It refuses a tree that holds anything but files and folders, and a file that
// moved while it was read.
package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/gates"
)

// File is one file of a checkpoint.
type File struct {
	Path   string `json:"path"` // below the folder
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	MTime  int64  `json:"mtime,omitempty"` // seconds since the epoch
	Inode  uint64 `json:"inode,omitempty"`
}

// Same reports whether size, time and inode say that the content is what it was.
func (f File) Same(o File) bool {
	return f.Path == o.Path && f.Size == o.Size && f.MTime == o.MTime && f.Inode == o.Inode
}

// Listing is a folder before its files are read.
type Listing struct {
	Files []File `json:"files"`
	// Odd are entries that are neither file nor folder, or whose names no manifest can hold.
	Odd []string `json:"odd,omitempty"`
}

// Limits of a tree.
const (
	MaxFiles = 20000
	maxPath  = 1024
)

// ParseListing reads lines "size mtime inode ./path" and "odd ./path". It leaves out what
// the folder's owner may edit without changing the model: README.md at the top and the hub
// client's own notes.
func ParseListing(lines []string) (Listing, error) {
	var l Listing
	seen := map[string]bool{}
	for _, s := range lines {
		if p, ok := strings.CutPrefix(s, "odd "); ok {
			if len(l.Odd) < 100 {
				l.Odd = append(l.Odd, quoted(p))
			}
			continue
		}
		f := strings.SplitN(s, " ", 4)
		if len(f) != 4 {
			return l, fmt.Errorf("read the listing: %.80q is no line of it", s)
		}
		size, err1 := strconv.ParseInt(f[0], 10, 64)
		mtime, err2 := strconv.ParseInt(f[1], 10, 64)
		inode, err3 := strconv.ParseUint(f[2], 10, 64)
		p, below := strings.CutPrefix(f[3], "./")
		if err1 != nil || err2 != nil || err3 != nil || size < 0 || !below {
			return l, fmt.Errorf("read the listing: %.80q is no line of it", s)
		}
		if gates.TreeExcludes(p) {
			continue
		}
		if !plain(p) {
			if len(l.Odd) < 100 {
				l.Odd = append(l.Odd, quoted(p))
			}
			continue
		}
		if seen[p] {
			return l, fmt.Errorf("read the listing: %.80q stands twice", p)
		}
		if seen[p] = true; len(l.Files) == MaxFiles {
			return l, fmt.Errorf("read the listing: more than %d files", MaxFiles)
		}
		l.Files = append(l.Files, File{Path: p, Size: size, MTime: mtime, Inode: inode})
	}
	slices.SortFunc(l.Files, byPath)
	return l, nil
}

// plain is a path that a line can hold and that stays below the folder.
func plain(p string) bool {
	return p != "" && len(p) <= maxPath && utf8.ValidString(p) && path.Clean(p) == p && !path.IsAbs(p) && p != ".." && !strings.HasPrefix(p, "../") &&
		!strings.ContainsFunc(p, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) })
}

func quoted(p string) string {
	if len(p) > 200 {
		p = p[:200]
	}
	return strings.Trim(strconv.QuoteToASCII(p), `"`)
}

func byPath(a, b File) int { return strings.Compare(a.Path, b.Path) }

// digestLine is what sha256sum, shasum and openssl dgst -r print.
var digestLine = regexp.MustCompile(`^([0-9a-f]{64}) [ *](?:\./)?(.+)$`)

// ParseDigests reads digests by path.
func ParseDigests(lines []string) map[string]string {
	out := map[string]string{}
	for _, l := range lines {
		if m := digestLine.FindStringSubmatch(l); m != nil && len(out) < MaxFiles {
			out[m[2]] = m[1]
		}
	}
	return out
}

// Manifest is a tree with its digest. Document form: that of the reference's version 2.
type Manifest struct {
	Version  int      `json:"manifest_version"`
	Excluded []string `json:"excluded_paths"`
	Root     string   `json:"model_tree_sha256"`
	Files    []File   `json:"files"`
	Count    int      `json:"file_count"`
	Bytes    int64    `json:"bytes_verified"`
}

// NewManifest seals files that all have a digest.
func NewManifest(files []File) Manifest {
	m := Manifest{Version: 2, Excluded: []string{"README.md", ".cache/huggingface/"}, Files: slices.Clone(files), Count: len(files)}
	slices.SortFunc(m.Files, byPath)
	for _, f := range m.Files {
		m.Bytes += f.Size
	}
	m.Root = root(m.Files)
	return m
}

// root is the SHA-256 of the files' compact JSON with sorted keys and escaped non-ASCII
// text: the reference's model_tree_sha256.
func root(files []File) string {
	h := sha256.New()
	h.Write([]byte{'['})
	for i, f := range files {
		if i > 0 {
			h.Write([]byte{','})
		}
		fmt.Fprintf(h, `{"path":%s,"sha256":"%s","size":%d}`, escaped(f.Path), f.SHA256, f.Size)
	}
	h.Write([]byte{']'})
	return hex.EncodeToString(h.Sum(nil))
}

// escaped is a JSON string in ASCII, as Python writes it.
func escaped(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Whole reports whether the root follows from the files, each of which has a digest.
func (m Manifest) Whole() bool {
	for i, f := range m.Files {
		if len(f.SHA256) != 64 || i > 0 && m.Files[i-1].Path >= f.Path {
			return false
		}
	}
	return m.Version == 2 && m.Count == len(m.Files) && m.Root == root(m.Files)
}

// Difference is the first path, by name, in which two trees differ.
type Difference struct {
	Path string
	A, B string // "" = absent there
}

// Compare returns the first difference; false when the trees are equal.
func Compare(a, b Manifest) (Difference, bool) {
	i, j := 0, 0
	for i < len(a.Files) || j < len(b.Files) {
		switch {
		case j == len(b.Files) || i < len(a.Files) && a.Files[i].Path < b.Files[j].Path:
			return Difference{Path: a.Files[i].Path, A: a.Files[i].SHA256}, true
		case i == len(a.Files) || b.Files[j].Path < a.Files[i].Path:
			return Difference{Path: b.Files[j].Path, B: b.Files[j].SHA256}, true
		case a.Files[i].SHA256 != b.Files[j].SHA256 || a.Files[i].Size != b.Files[j].Size:
			return Difference{Path: a.Files[i].Path, A: a.Files[i].SHA256, B: b.Files[j].SHA256}, true
		}
		i, j = i+1, j+1
	}
	return Difference{}, false
}

// Cache holds digests of files by folder and path, valid as long as size, time and inode
// are the same.
type Cache map[string]map[string]File

// ReadCache reads a stored cache; what cannot be read is empty.
func ReadCache(b []byte) Cache {
	c := Cache{}
	dec := json.NewDecoder(bytes.NewReader(b))
	if dec.Decode(&c) != nil || c == nil {
		return Cache{}
	}
	return c
}

// Take fills digests that the cache knows and returns the files that must be read, largest
// first: so parallel readers end together.
func (c Cache) Take(dir string, files []File) (missing []File) {
	known := c[dir]
	for i, f := range files {
		if k, ok := known[f.Path]; ok && k.Same(f) && hexDigest.MatchString(k.SHA256) {
			files[i].SHA256 = k.SHA256
		} else {
			missing = append(missing, f)
		}
	}
	slices.SortStableFunc(missing, func(a, b File) int { return int(min(1, max(-1, b.Size-a.Size))) })
	return missing
}

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Put replaces what is known of a folder.
func (c Cache) Put(dir string, files []File) {
	c[dir] = map[string]File{}
	for _, f := range files {
		c[dir][f.Path] = f
	}
}
