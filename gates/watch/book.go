package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

// Mark is the last look at a pair or an engine.
type Mark struct {
	At    time.Time `json:"at"`
	OK    bool      `json:"ok"`
	Codes []string  `json:"codes,omitempty"`
	// Held is the last time at which nothing was found.
	Held time.Time `json:"held,omitzero"`
}

// Book is what the rotation remembers over restarts.
type Book struct {
	Schema  string           `json:"schema"`
	Version int              `json:"schema_version"`
	Run     string           `json:"run"`
	Since   time.Time        `json:"since"`
	Rounds  int64            `json:"rounds"`
	Pairs   map[string]Mark  `json:"pairs"`
	Engines map[string]Mark  `json:"engines"`
	Purses  map[string]Purse `json:"purses"`
}

// Schema of a book and of the lines of its journal.
const (
	Schema  = "narwhal.watch"
	Version = 1
	maxBook = 64 << 20
)

func newBook(run string, now time.Time) Book {
	return Book{Schema: Schema, Version: Version, Run: run, Since: now, Pairs: map[string]Mark{}, Engines: map[string]Mark{}, Purses: map[string]Purse{}}
}

// Open reads a run's book; one that is not there is empty, one that cannot be read is an error.
func Open(path, run string, now time.Time) (Book, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newBook(run, now), nil
	}
	if err == nil && st.Size() > maxBook {
		err = fmt.Errorf("it has %d bytes", st.Size())
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	book := newBook(run, now)
	if err == nil {
		err = json.Unmarshal(b, &book)
	}
	if err == nil && (book.Schema != Schema || book.Version != Version || book.Run != run || book.Pairs == nil || book.Engines == nil || book.Purses == nil) {
		err = fmt.Errorf("it is no %s %d of run %s", Schema, Version, run)
	}
	if err != nil {
		return Book{}, fmt.Errorf("read what was looked at: %w", err)
	}
	return book, nil
}

func (b Book) save(path string) error {
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write what was looked at: %w", err)
	}
	return nil
}

// keep forgets pairs and engines that the fleet has no more.
func (b *Book) keep(ids []string) {
	engines, pairs := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		engines[id] = true
	}
	for _, p := range pairsOf(ids) {
		pairs[p.String()] = true
	}
	maps.DeleteFunc(b.Engines, func(id string, _ Mark) bool { return !engines[id] })
	maps.DeleteFunc(b.Purses, func(id string, _ Purse) bool { return !engines[id] })
	maps.DeleteFunc(b.Pairs, func(id string, _ Mark) bool { return !pairs[id] })
}

// mark notes a look. What it found before stays held.
func mark(marks map[string]Mark, id string, now time.Time, codes []string) {
	m := Mark{At: now, OK: len(codes) == 0, Codes: codes, Held: marks[id].Held}
	if m.OK {
		m.Held = now
	}
	marks[id] = m
}
