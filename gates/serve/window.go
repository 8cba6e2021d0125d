package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Window is what a journal got from the beginning of a point to that of the next one, beside
// the rows of the trial.
type Window struct {
	Others []Other `json:"others"` // ends of requests of other clients
	Moves  int     `json:"moves"`  // of roles
	Bad    int     `json:"bad"`    // lines that are none
	// Trouble is "replaced", "truncated", or why lines could not be read; "" = none.
	Trouble string `json:"trouble"`
}

// Other is the end of somebody else's request.
type Other struct {
	Run      string `json:"run"`
	Terminal string `json:"terminal"`
	Named    bool   `json:"named"` // it has a client id
}

// source is a journal on a host. One file at a time is in memory, and of those that have
// ended, which do not change any more, what was read.
type source struct {
	host  gates.Host
	argv  []string // lists the files
	dir   string
	tags  []string
	marks []Mark             // of the points that were offered
	ended map[string][]piece // by name
}

// piece is what a file tells of one window.
type piece struct {
	window int
	rows   []journal.Row
	others []Other
	moves  int
	bad    int
	torn   bool
	err    error
}

func newSource(ctx context.Context, env gates.Env, t Trial) (*source, error) {
	f := env.View().Fleet
	host := f.Deploy.Router.Host
	h, err := env.Host(ctx, host)
	if err != nil {
		return nil, err
	}
	s := &source{host: h, argv: filesArgv(f, host), dir: pathOn(f, host, routerName, ""), ended: map[string][]piece{}}
	for _, p := range t.Points {
		s.tags, s.marks = append(s.tags, p.Tag), append(s.marks, p.Begin)
	}
	return s, nil
}

// read reads the windows; torn says that the last line is not whole yet.
func (s *source) read(ctx context.Context) (out Journal, torn bool, err error) {
	out = Journal{Tags: s.tags, Rows: []journal.Row{}, Windows: make([]Window, len(s.marks))}
	files, err := listFiles(ctx, s.host, s.argv)
	if err != nil {
		return out, false, err
	}
	for i, m := range s.marks {
		out.Windows[i] = Window{Others: []Other{}, Trouble: trouble(files, m)}
	}
	window := -1
	for _, f := range files {
		cuts := s.cuts(f)
		if window < 0 && len(cuts) == 0 {
			continue // it ended before the trial
		}
		pieces, known := s.ended[f.Name]
		if !known {
			b, err := s.host.Get(ctx, path.Join(s.dir, f.Name), maxJournal)
			if errors.Is(err, fs.ErrNotExist) && f.Name != written {
				continue // it was pruned meanwhile
			}
			if err != nil {
				return out, false, err
			}
			pieces = s.pieces(b, window, cuts)
		}
		if f.Name != written {
			s.ended[f.Name] = pieces
		}
		for _, p := range pieces {
			torn = out.add(p) || torn
		}
		if n := len(cuts); n > 0 {
			window = cuts[n-1].window
		}
	}
	return out, torn, nil
}

// add takes a piece in; true = its last line is not whole.
func (j *Journal) add(p piece) bool {
	w := &j.Windows[p.window]
	j.Rows = append(j.Rows, p.rows...)
	w.Others = append(w.Others, p.others...)
	w.Moves += p.moves
	if w.Bad += p.bad; p.torn {
		w.Bad++
	}
	if p.err != nil && w.Trouble == "" {
		w.Trouble = clean(p.err.Error(), 200)
	}
	return p.torn
}

// trouble says what became of the file that a window begins in.
func trouble(files []File, m Mark) string {
	for _, f := range files {
		if f.Device != m.Device || f.Inode != m.Inode {
			continue
		}
		if f.Bytes < m.Bytes {
			return "truncated"
		}
		return ""
	}
	return "replaced"
}

// cut is where a window begins in a file.
type cut struct {
	window int
	at     int64
}

func (s *source) cuts(f File) (out []cut) {
	for i, m := range s.marks {
		if f.Device == m.Device && f.Inode == m.Inode && f.Bytes >= m.Bytes {
			out = append(out, cut{i, m.Bytes})
		}
	}
	return out
}

// pieces splits a file at the cuts; before the first one, window goes on.
func (s *source) pieces(b []byte, window int, cuts []cut) (out []piece) {
	at := 0
	for _, c := range cuts {
		to := lineBegin(b, min(int(max(c.at, 0)), len(b)))
		if window >= 0 && to > at {
			out = append(out, s.piece(b[at:to], window))
		}
		at, window = max(at, to), c.window
	}
	if window >= 0 {
		out = append(out, s.piece(b[at:], window))
	}
	return out
}

// lineBegin is the beginning of the line that holds the offset: it was not whole then.
func lineBegin(b []byte, at int) int { return bytes.LastIndexByte(b[:at], '\n') + 1 }

func (s *source) piece(b []byte, window int) piece {
	out := piece{window: window}
	st, err := journal.Read(bytes.NewReader(b), func(l journal.Line) error {
		switch {
		case l.Event != nil && l.Event.Name == "role_moved":
			out.moves++
		case l.Row == nil:
		case s.ours(l.Row):
			out.rows = append(out.rows, *l.Row)
		default:
			out.others = append(out.others, Other{Run: clean(l.Row.Run, 80), Terminal: clean(l.Row.Terminal, 40), Named: l.Row.ClientRID != nil && *l.Row.ClientRID != ""})
		}
		return nil
	})
	out.bad, out.torn = st.Bad, st.Torn
	if err != nil {
		out.err = fmt.Errorf("journal: %w", err)
	}
	return out
}

func (s *source) ours(r *journal.Row) bool {
	return r.ClientRID != nil && slices.ContainsFunc(s.tags, func(tag string) bool { return strings.HasPrefix(*r.ClientRID, tag+"-") })
}
