package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stamp is the part of an ended file's name between the journal's stem and extension: when
// it ended, in UTC. Names in order are files in order.
const stamp = "20060102T150405.000000Z"

func stem(path string) (prefix, ext string) {
	ext = filepath.Ext(path)
	return strings.TrimSuffix(filepath.Base(path), ext) + "-", ext
}

// ended lists the ended files of the journal at path, oldest first.
func ended(path string) ([]string, error) {
	dir := filepath.Dir(path)
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	prefix, ext := stem(path)
	var out []string
	for _, e := range all {
		if t, ok := stampOf(e.Name(), prefix, ext); ok && !t.IsZero() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(out)
	return out, nil
}

func stampOf(name, prefix, ext string) (time.Time, bool) {
	mid, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return time.Time{}, false
	}
	if mid, ok = strings.CutSuffix(mid, ext); !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(stamp, mid)
	return t, err == nil
}

// endedName is the name for a file that ends now: later than all before it, even if the
// wall clock went back.
func endedName(path string, now time.Time) (string, error) {
	before, err := ended(path)
	if err != nil {
		return "", err
	}
	now = now.UTC().Truncate(time.Microsecond)
	prefix, ext := stem(path)
	if n := len(before); n > 0 {
		if last, ok := stampOf(filepath.Base(before[n-1]), prefix, ext); ok && !now.After(last) {
			now = last.Add(time.Microsecond)
		}
	}
	return filepath.Join(filepath.Dir(path), prefix+now.Format(stamp)+ext), nil
}

// prune removes the oldest ended files beyond keep; 0 keeps all.
func prune(path string, keep int) error {
	if keep <= 0 {
		return nil
	}
	all, err := ended(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range all[:max(0, len(all)-keep)] {
		errs = append(errs, os.Remove(p))
	}
	return errors.Join(errs...)
}

// Files lists the files of the journal at path in the order of their rows: the ended ones,
// oldest first, then path itself if it exists.
func Files(path string) ([]string, error) {
	all, err := ended(path)
	if err != nil {
		return nil, fmt.Errorf("list journal: %w", err)
	}
	if _, err := os.Stat(path); err == nil {
		all = append(all, path)
	}
	return all, nil
}

// ReadPath is Read over all files of the journal at path, in order, as they are now: rows
// of a file that ends meanwhile come once. A file that was pruned meanwhile is passed over.
func ReadPath(path string, f func(Line) error) (Stats, error) {
	var sum Stats
	open, err := os.Open(path)
	if err != nil {
		return sum, fmt.Errorf("read journal: %w", err)
	}
	defer open.Close()
	last, err := open.Stat()
	if err != nil {
		return sum, fmt.Errorf("read journal: %w", err)
	}
	all, err := ended(path)
	if err != nil {
		return sum, fmt.Errorf("read journal: %w", err)
	}
	for _, p := range all {
		if err := sum.readEnded(p, last, f); err != nil {
			return sum, err
		}
	}
	st, err := Read(open, f)
	sum.add(st)
	sum.Torn = st.Torn
	return sum, err
}

func (s *Stats) readEnded(p string, last os.FileInfo, f func(Line) error) error {
	in, err := os.Open(p)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	defer in.Close()
	if st, err := in.Stat(); err == nil && os.SameFile(st, last) {
		return nil
	}
	st, err := Read(in, f)
	s.add(st)
	if st.Torn {
		s.Bad++
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(p), err)
	}
	return nil
}

func (s *Stats) add(o Stats) {
	s.Lines += o.Lines
	s.Bad += o.Bad
}
