package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds one line; longer ones are counted as bad and skipped.
const maxLine = 4 << 20

// Line is one line that was read; exactly one member is set.
type Line struct {
	Meta  *Meta
	Row   *Row
	Event *Event
}

// Stats says what a reader skipped.
type Stats struct {
	Lines int
	Bad   int  // not JSON, of no known kind, or too long
	Torn  bool // the last line has no end; it is not counted as bad
}

// ErrVersion is returned for a journal of another schema or version.
var ErrVersion = errors.New("journal of another version")

// Read calls f for each line in order until f fails or the input ends.
func Read(r io.Reader, f func(Line) error) (Stats, error) {
	var st Stats
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		raw, whole, err := next(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return st, fmt.Errorf("read journal: %w", err)
		}
		ended := err != nil
		if ended && len(bytes.TrimSpace(raw)) == 0 && whole {
			return st, nil
		}
		st.Lines++
		line, ok, perr := parse(raw)
		switch {
		case perr != nil:
			return st, fmt.Errorf("read journal: line %d: %w", st.Lines, perr)
		case ended && (!ok || !whole):
			st.Torn = true
		case !ok || !whole:
			st.Bad++
		default:
			if err := f(line); err != nil {
				return st, err
			}
		}
		if ended {
			return st, nil
		}
	}
}

// next reads up to a newline. whole is false when the line was longer than maxLine; the
// rest of it is skipped.
func next(in *bufio.Reader) (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			whole = false
			line = line[:0]
		} else if whole {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, whole, err
		}
	}
}

func parse(raw []byte) (Line, bool, error) {
	var k struct {
		Meta     *Meta   `json:"meta"`
		Terminal *string `json:"terminal"`
		Event    *string `json:"event"`
		Schema   string  `json:"schema"`
		Version  int     `json:"schema_version"`
	}
	if json.Unmarshal(raw, &k) != nil {
		return Line{}, false, nil
	}
	if k.Meta != nil {
		k.Schema, k.Version = k.Meta.Schema, k.Meta.Version
	}
	if k.Meta == nil && k.Terminal == nil && k.Event == nil {
		return Line{}, false, nil
	}
	if k.Schema != Schema || k.Version != Version {
		return Line{}, false, fmt.Errorf("%q version %d: %w", k.Schema, k.Version, ErrVersion)
	}
	switch {
	case k.Meta != nil:
		return Line{Meta: k.Meta}, true, nil
	case k.Terminal != nil:
		var row Row
		if json.Unmarshal(raw, &row) != nil {
			return Line{}, false, nil
		}
		return Line{Row: &row}, true, nil
	}
	return parseEvent(raw, *k.Event)
}

func parseEvent(raw []byte, name string) (Line, bool, error) {
	e := Event{Name: name}
	if json.Unmarshal(raw, &e.Fields) != nil {
		return Line{}, false, nil
	}
	e.At, _ = e.Fields["at"].(float64)
	e.AtUnix, _ = e.Fields["at_unix"].(float64)
	for _, k := range []string{"schema", "schema_version", "run", "event", "at", "at_unix"} {
		delete(e.Fields, k)
	}
	return Line{Event: &e}, true, nil
}

// ReadRows returns the terminal rows alone.
func ReadRows(r io.Reader) ([]Row, Stats, error) {
	var rows []Row
	st, err := Read(r, func(l Line) error {
		if l.Row != nil {
			rows = append(rows, *l.Row)
		}
		return nil
	})
	return rows, st, err
}
