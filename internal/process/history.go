package process

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DirLaunches holds, below the folder of records, one file a launch that is never changed.
const DirLaunches = "launches"

// keepLaunches is how many launches of a name stay.
const keepLaunches = 32

// Digest identifies everything that a spec says: SHA-256 of its JSON.
func (s Spec) Digest() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("marshal spec: %v", err)) // plain data always marshals
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// remember writes a launch where nothing changes it any more: a file of its own, made once and
// read-only. The oldest of the name beyond keepLaunches go.
func remember(dir string, r Record) error {
	folder := filepath.Join(dir, DirLaunches)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	prefix := r.Name + "@"
	path := filepath.Join(folder, fmt.Sprintf("%s%020d-%d-%d-%.12s.json", prefix, r.Started.UnixNano(), r.PID, r.StartTicks, r.SpecDigest))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return prune(folder, prefix)
}

func prune(folder, prefix string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var mine []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			mine = append(mine, e.Name())
		}
	}
	slices.Sort(mine) // by time
	for _, name := range mine[:max(len(mine)-keepLaunches, 0)] {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// Latest is the newest launch of a name, whether or not it runs; false when none is remembered.
func Latest(dir, name string) (Record, bool) {
	entries, err := os.ReadDir(filepath.Join(dir, DirLaunches))
	if err != nil || !nameRE.MatchString(name) {
		return Record{}, false
	}
	for i := len(entries) - 1; i >= 0; i-- { // by name, which is by time
		if !strings.HasPrefix(entries[i].Name(), name+"@") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, DirLaunches, entries[i].Name()))
		var r Record
		if err == nil && len(b) <= 1<<20 && json.Unmarshal(b, &r) == nil && r.Name == name {
			return r, true
		}
	}
	return Record{}, false
}
