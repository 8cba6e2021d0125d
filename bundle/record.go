package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// record takes the run's record as one reading found it: the log up to the last event of
// that reading, every object that those events name, and the copies that follow from them.
// So the folder record/ of the bundle verifies as a record of its own, unless something was
// left out. It returns nil where there is none to read.
func (c *collection) record() *record.Snapshot {
	if c.src.RunDir == "" {
		c.miss("record", "no run was named")
		return nil
	}
	snap, err := record.Read(c.src.RunDir)
	if err != nil {
		c.miss("record", err.Error())
		c.recordFile(record.LogFile, func() ([]byte, error) { return readRegular(filepath.Join(c.src.RunDir, record.LogFile), record.MaxLog) })
		return nil
	}
	c.recordFile(record.LogFile, func() ([]byte, error) { return readLog(snap) })
	s := snap.State
	ref := func(to string, r record.Ref) {
		if !r.Zero() {
			c.recordFile(to, func() ([]byte, error) { return c.load(snap, r) })
		}
	}
	ref(record.FleetFile, s.Fleet)
	ref(record.PlanFile, s.Plan.Object)
	for _, name := range slices.Sorted(maps.Keys(s.Seals)) {
		if component(name) == name {
			ref(path.Join(record.SealDir, name+".sigstore.json"), s.Seals[name].Ref)
		}
	}
	for _, r := range s.Repairs {
		if component(r.File) == r.File {
			c.recordFile(r.File, func() ([]byte, error) { return readRegular(filepath.Join(c.src.RunDir, r.File), maxRecord) })
		}
	}
	refs := references(snap.Events)
	for _, digest := range slices.Sorted(maps.Keys(refs)) {
		ref(path.Join(record.ObjectDir, digest), refs[digest])
	}
	return snap
}

// recordFile keeps one file of the record exactly as it is, or leaves it out: with a secret
// cut from it, it would no longer be what the log names.
func (c *collection) recordFile(name string, read func() ([]byte, error)) {
	to := path.Join("record", name)
	b, err := read()
	if err != nil {
		c.miss(to, reason(err))
		return
	}
	if line, before := c.redact.Where(b); line > 0 {
		c.miss(to, fmt.Sprintf("left out: line %d holds what looks like a secret after %q, and a changed copy would not verify", line, before))
		return
	}
	c.keep(Entry{Path: to, Source: name, Collector: "record"}, b)
}

func (c *collection) load(snap *record.Snapshot, r record.Ref) ([]byte, error) {
	if r.Media == "application/gzip" && r.Bytes > maxNested {
		return nil, fmt.Errorf("left out: an earlier bundle of %d bytes, limit %d", r.Bytes, maxNested)
	}
	if r.Bytes > maxRecord {
		return nil, fmt.Errorf("left out: %d bytes, limit %d", r.Bytes, maxRecord)
	}
	return snap.Load(r)
}

// readLog returns the lines of the snapshot; another process may have added more since.
func readLog(snap *record.Snapshot) ([]byte, error) {
	b, err := readRegular(filepath.Join(snap.Dir, record.LogFile), record.MaxLog)
	if err != nil {
		return nil, err
	}
	end := 0
	for range snap.Seq {
		i := bytes.IndexByte(b[end:], '\n')
		if i < 0 {
			return nil, errors.New("the log has become shorter")
		}
		end += i + 1
	}
	return b[:end], nil
}

func readRegular(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("left out: no regular file of at most %d bytes", limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// reason is an error's text without the folder of this machine.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// references finds the objects that events name, those inside a gate's own members too.
func references(events []record.Event) map[string]record.Ref {
	out := map[string]record.Ref{}
	for _, ev := range events {
		var tree any
		if json.Unmarshal(ev.Body, &tree) == nil {
			walkRefs(tree, out)
		}
	}
	return out
}

func walkRefs(tree any, out map[string]record.Ref) {
	switch t := tree.(type) {
	case []any:
		for _, e := range t {
			walkRefs(e, out)
		}
	case map[string]any:
		for _, e := range t {
			walkRefs(e, out)
		}
		digest, ok := t["sha256"].(string)
		media, hasMedia := t["media"].(string)
		n, hasBytes := t["bytes"].(float64)
		if ok && hasMedia && hasBytes && isDigest(digest) {
			out[digest] = record.Ref{SHA256: digest, Media: media, Bytes: int64(n)}
		}
	}
}

func isDigest(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
