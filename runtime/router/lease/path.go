package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/narwhal-fleet/narwhal/internal/ownfile"
)

// ErrEmpty: an emptied lease is not a free one, its holder may still serve.
var ErrEmpty = errors.New("it is empty, as a lease never is")

// document and line are what a lease's files hold.
var (
	document = ownfile.Kind{Name: "a router's lease", Most: maxDocument + 1, Is: func(head []byte, _ bool) bool {
		_, err := Decode(head)
		return err == nil
	}}
	line = ownfile.Kind{Name: "the name of a lease's holder", Most: maxDocument, Is: func(head []byte, whole bool) bool {
		const start = `{"holder":`
		var l life
		return whole && (json.Unmarshal(head, &l) == nil && l.Holder != "" || string(head[:min(len(head), len(start))]) == start[:min(len(head), len(start))])
	}}
)

// Paths are the files of the lease at path: the document first.
func Paths(path string) []string { return []string{path, path + ".lock", path + aliveSuffix} }

// CheckPath refuses a path whose files hold anything but a lease, before they are touched.
// Links are refused, as every use of the lease does.
func CheckPath(path string) error {
	for i, p := range Paths(path) {
		st, err := os.Lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return err
		case st.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s: %w", p, syscall.ELOOP)
		case i == 0 && st.Mode().IsRegular() && st.Size() == 0:
			return fmt.Errorf("%s: %w", p, ErrEmpty)
		}
		if err := ownfile.Check(p, []ownfile.Kind{document, {Is: func([]byte, bool) bool { return true }}, line}[i]); err != nil {
			return err
		}
	}
	return nil
}
