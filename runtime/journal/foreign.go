package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrForeign: the file holds something else than a journal, and nothing of it was touched.
var ErrForeign = errors.New("file is no narwhal journal")

// ours reports why a file that exists must not be continued as a journal: each begins with
// its meta line. One that was torn in that very line begins like it.
func ours(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return nil // a device keeps nothing that could be lost
	}
	head := make([]byte, 4096)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head = head[:n]
	line, _, whole := bytes.Cut(head, []byte("\n"))
	const start = `{"meta"`
	switch {
	case n == 0, bytes.Contains(line, []byte(Schema)):
		return nil
	case !whole && st.Size() == int64(n) && (bytes.HasPrefix(line, []byte(start)) || bytes.HasPrefix([]byte(start), line)):
		return nil
	}
	return fmt.Errorf("%w: its first line is not a journal's", ErrForeign)
}
