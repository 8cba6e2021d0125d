package record

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoRun says that no run of the fleet matches.
var ErrNoRun = errors.New("no such run")

// AmbiguousError says that a prefix names several runs.
type AmbiguousError struct {
	Prefix  string
	Matches []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("find run %q: it names %d runs: %s", clip(e.Prefix), len(e.Matches), strings.Join(e.Matches, ", "))
}

// NewID returns a run id that sorts by time to the millisecond, as
// 20261129T185102.345Z-1a2b3c.
func NewID(now time.Time) string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails, as crypto/rand documents
	return now.UTC().Format("20060102T150405.000Z") + "-" + hex.EncodeToString(b[:])
}

// FleetDir is the folder of one fleet in the state folder. A name that is no
// plain file name is refused.
func FleetDir(stateDir, fleet string) (string, error) {
	if !isName(fleet) {
		return "", fmt.Errorf("find fleet: %q is not a plain name", clip(fleet))
	}
	return filepath.Join(stateDir, fleet), nil
}

// RunDir is the folder of one run: <state>/<fleet>/runs/<id>.
func RunDir(stateDir, fleet, id string) (string, error) {
	dir, err := FleetDir(stateDir, fleet)
	if err != nil {
		return "", err
	}
	if !isName(id) {
		return "", fmt.Errorf("find run: %q is not a run id", clip(id))
	}
	return filepath.Join(dir, "runs", id), nil
}

// Listed is one run of a fleet.
type Listed struct {
	ID  string
	Dir string
}

// List returns the fleet's runs that have a log, oldest first. A fleet without
// runs gives none and no error.
func List(stateDir, fleet string) ([]Listed, error) {
	dir, err := FleetDir(stateDir, fleet)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, "runs"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var out []Listed
	for _, e := range entries { // ReadDir sorts by name, and names sort by time
		d := filepath.Join(dir, "runs", e.Name())
		if isName(e.Name()) && !missing(filepath.Join(d, LogFile)) {
			out = append(out, Listed{ID: e.Name(), Dir: d})
		}
	}
	return out, nil
}

// Resolve finds a run's folder by a unique prefix of its id, by "latest", or by
// "" which means latest. Errors: ErrNoRun, *AmbiguousError.
func Resolve(stateDir, fleet, prefix string) (string, error) {
	runs, err := List(stateDir, fleet)
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", fmt.Errorf("find run of %s: %w", fleet, ErrNoRun)
	}
	if prefix == "" || prefix == "latest" {
		return runs[len(runs)-1].Dir, nil
	}
	var match []Listed
	for _, r := range runs {
		if r.ID == prefix {
			return r.Dir, nil
		}
		if strings.HasPrefix(r.ID, prefix) {
			match = append(match, r)
		}
	}
	switch len(match) {
	case 0:
		return "", fmt.Errorf("find run %q of %s: %w", clip(prefix), fleet, ErrNoRun)
	case 1:
		return match[0].Dir, nil
	}
	amb := &AmbiguousError{Prefix: prefix}
	for _, r := range match {
		amb.Matches = append(amb.Matches, r.ID)
	}
	return "", amb
}
