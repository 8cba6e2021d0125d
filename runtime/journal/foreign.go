package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/internal/ownfile"
)

// ErrForeign: the file holds something else than a journal, and nothing of it was touched.
var ErrForeign = errors.New("file is no narwhal journal")

// kind is what may be continued: each journal begins with its meta line. One that was torn in
// that very line begins like it.
var kind = ownfile.Kind{Name: "a journal", Most: 4096, Is: func(head []byte, whole bool) bool {
	line, _, ended := bytes.Cut(head, []byte("\n"))
	const start = `{"meta"`
	return bytes.Contains(line, []byte(Schema)) || !ended && whole && (bytes.HasPrefix(line, []byte(start)) || bytes.HasPrefix([]byte(start), line))
}}

// ours reports why a file that exists must not be continued as a journal.
func ours(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if keepsNothing(st.Mode()) {
		return nil
	}
	return foreign(ownfile.CheckFile(f, f.Name(), kind))
}

// keepsNothing tells a pipe or a device of characters, in which nothing could be lost, from a
// disk or a file.
func keepsNothing(m os.FileMode) bool {
	return m&os.ModeNamedPipe != 0 || m&os.ModeCharDevice != 0
}

func foreign(err error) error {
	switch {
	case errors.Is(err, ownfile.ErrForeign):
		return fmt.Errorf("%w: its first line is not a journal's", ErrForeign)
	case errors.Is(err, ownfile.ErrIrregular):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}

// CheckPath refuses a path whose file, or the file that a rotation makes beside it, holds
// something else than a journal: ErrForeign. It opens no pipe and writes nothing.
func CheckPath(path string) error {
	if st, err := os.Stat(path); err == nil && keepsNothing(st.Mode()) {
		return nil
	}
	for _, p := range []string{path, nextName(path)} {
		if err := foreign(ownfile.Check(p, kind)); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// Owns reports whether the journal at path uses other, another file in its folder: an ended
// file, or the one that a rotation makes.
func Owns(path, other string) bool {
	if a, err := ownfile.Real(filepath.Dir(path)); err != nil || a != filepath.Dir(other) {
		return false
	}
	prefix, ext := stem(path)
	name := filepath.Base(other)
	_, ended := stampOf(name, prefix, ext)
	return ended || name == filepath.Base(nextName(path))
}
