package record

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

func tornFile(seq int64) string { return fmt.Sprintf("torn-%d.bin", seq) }

func isTornFile(name string) bool {
	return strings.HasPrefix(name, "torn-") && strings.HasSuffix(name, ".bin")
}

// repair cuts off what follows the last good line. The bytes are saved first and
// the event comes last, so that a crash in between loses neither.
func (r *Run) repair(size int64) error {
	if size > r.size {
		dropped, err := io.ReadAll(io.NewSectionReader(r.log, r.size, size-r.size))
		if err != nil {
			return fmt.Errorf("read torn line: %w", err)
		}
		if err := r.keepTorn(dropped); err != nil {
			return err
		}
		if err := r.log.Truncate(r.size); err != nil {
			return fmt.Errorf("cut torn line: %w", err)
		}
		if err := r.log.Sync(); err != nil {
			return fmt.Errorf("cut torn line: %w", err)
		}
	}
	name := tornFile(r.head.seq + 1)
	digest, n, err := hashFile(filepath.Join(r.dir, name), MaxLog)
	if err != nil {
		if missing(filepath.Join(r.dir, name)) {
			return nil
		}
		return err
	}
	_, err = r.append(KindRepair, "", "", "", Repair{DroppedBytes: n, DroppedSHA256: digest, File: name})
	return err
}

// keepTorn saves cut-off bytes. After a crash during an earlier repair the file
// may hold bytes already: the same ones, or ones that these follow.
func (r *Run) keepTorn(dropped []byte) error {
	path := filepath.Join(r.dir, tornFile(r.head.seq+1))
	old, err := readBounded(path, MaxLog)
	switch {
	case err != nil && !missing(path):
		return fmt.Errorf("save torn line: %w", err)
	case bytes.Equal(old, dropped):
		return nil
	}
	return atomicfile.Write(path, append(old, dropped...), 0o600)
}

// tidy removes temporary files of a killed process and restores mirrors.
func (r *Run) tidy() error {
	for _, sub := range []string{".", ObjectDir, SealDir} {
		entries, err := os.ReadDir(filepath.Join(r.dir, sub))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !atomicfile.IsTemp(e.Name()) {
				continue
			}
			if err := os.Remove(filepath.Join(r.dir, sub, e.Name())); err != nil {
				return fmt.Errorf("remove leftover: %w", err)
			}
		}
	}
	return r.restoreMirrors()
}
