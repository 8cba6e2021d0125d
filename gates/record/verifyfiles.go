package record

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

func (v *verifier) checkObjects() {
	v.rep.Objects = len(v.refs)
	for _, digest := range slices.Sorted(maps.Keys(v.refs)) {
		v.checkFile(filepath.Join(ObjectDir, digest), v.refs[digest])
	}
}

// checkFile compares a file with what the log says it holds.
func (v *verifier) checkFile(file string, want Ref) bool {
	digest, n, err := hashFile(filepath.Join(v.dir, file), MaxObject)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.problem(ProblemMissing, file, 0, "the log names it, and it is not there")
	case err != nil:
		v.problem(ProblemFile, file, 0, "%s", cause(err))
	case digest != want.SHA256:
		v.problem(ProblemDigest, file, 0, "its bytes have digest %s, recorded is %s", digest, want.SHA256)
	case n != want.Bytes:
		v.problem(ProblemDigest, file, 0, "it has %d bytes, recorded are %d", n, want.Bytes)
	default:
		return true
	}
	return false
}

func (v *verifier) checkMirrors() {
	mirrors := v.rep.State.mirrors()
	held := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(mirrors)) {
		held[file] = v.checkFile(file, mirrors[file])
	}
	for _, name := range slices.Sorted(maps.Keys(v.rep.State.Seals)) {
		file := filepath.Join(SealDir, name+".sigstore.json")
		v.rep.Seals = append(v.rep.Seals, SealFile{Name: name, File: file, Sealed: v.rep.State.Seals[name], Current: held[file]})
	}
}

func (v *verifier) checkTorn() {
	for _, file := range slices.Sorted(maps.Keys(v.torn)) {
		r := v.torn[file]
		if !isTornFile(file) || filepath.Base(file) != file {
			v.problem(ProblemReference, LogFile, 0, "a repair names %q, which is no torn-<seq>.bin", clip(file))
			continue
		}
		v.checkFile(file, Ref{SHA256: r.DroppedSHA256, Bytes: r.DroppedBytes})
	}
}

// checkFiles names whatever the log does not explain.
func (v *verifier) checkFiles() {
	mirrors := v.rep.State.mirrors()
	for name, mode := range v.list(".") {
		_, torn := v.torn[name]
		_, mirror := mirrors[name]
		switch folder := name == ObjectDir || name == SealDir; {
		case folder && mode.IsDir(), name == LogFile, torn, mirror:
		case atomicfile.IsTemp(name):
			v.notice(NoticeTemp, name, "left by a process that was killed")
		default:
			v.problem(ProblemUnknown, printable(name), 0, "nothing in the log explains it")
		}
	}
	for name := range v.list(SealDir) {
		v.foreign(filepath.Join(SealDir, name), mirrors)
	}
	for name := range v.list(ObjectDir) {
		if _, ok := v.refs[name]; !ok {
			v.orphan(name)
		}
	}
}

func (v *verifier) foreign(file string, mirrors map[string]Ref) {
	if _, ok := mirrors[file]; ok {
		return
	}
	if atomicfile.IsTemp(file) {
		v.notice(NoticeTemp, file, "left by a process that was killed")
		return
	}
	v.problem(ProblemUnknown, printable(file), 0, "nothing in the log explains it")
}

// orphan judges an object that no event names: a process killed between storing
// and recording leaves one, and its name still has to be its digest.
func (v *verifier) orphan(name string) {
	file := filepath.Join(ObjectDir, name)
	switch {
	case atomicfile.IsTemp(name):
		v.notice(NoticeTemp, file, "left by a process that was killed")
	case !isDigest(name):
		v.problem(ProblemUnknown, printable(file), 0, "its name is no SHA-256")
	default:
		digest, _, err := hashFile(filepath.Join(v.dir, file), MaxObject)
		switch {
		case err != nil:
			v.problem(ProblemFile, file, 0, "%s", cause(err))
		case digest != name:
			v.problem(ProblemDigest, file, 0, "its bytes have digest %s", digest)
		default:
			v.notice(NoticeOrphan, file, "no event names it")
		}
	}
}

// list returns a folder's entries, at most MaxEntries.
func (v *verifier) list(sub string) map[string]fs.FileMode {
	out := map[string]fs.FileMode{}
	path := filepath.Join(v.dir, sub)
	if info, err := os.Lstat(path); sub != "." && (err != nil || !info.IsDir()) {
		return out // a missing folder shows as missing files, a link as an unknown file
	}
	d, err := os.Open(path)
	if err != nil {
		v.problem(ProblemFile, sub, 0, "%s", cause(err))
		return out
	}
	defer func() { _ = d.Close() }()
	for {
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			out[e.Name()] = e.Type()
		}
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			v.problem(ProblemFile, sub, 0, "%s", cause(err))
			return out
		}
		if len(out) > MaxEntries {
			v.problem(ProblemLimit, sub, 0, "more than %d files", MaxEntries)
			return out
		}
	}
}

// printable keeps a foreign file name from steering a terminal.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, name)
}
