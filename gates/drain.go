package gates

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// Names of the processes that clients can ask.
const (
	routerProcess  = "router"
	standbyProcess = "standby"
)

// DrainRequest ends a router or a standby by its recorded identity: it admits nothing more,
// gives its lease back, and what runs may finish within Within.
type DrainRequest struct {
	Root    string         `json:"root"`
	Name    string         `json:"name"`
	Within  fleet.Duration `json:"within"`
	Journal string         `json:"journal"` // below Root; tells of requests that the limit ended
	// Keep are launches that may stay: a process of one of them is left alone.
	Keep []string `json:"keep,omitempty"`
	// Successor is the base URL of who takes over meanwhile, "" for nobody.
	Successor string `json:"successor,omitempty"`
	// SucceedWithin bounds the wait for it.
	SucceedWithin fleet.Duration `json:"succeed_within,omitempty"`
}

// Drained says how it ended.
type Drained struct {
	process.Stopped
	// ID is the process that was ended, "" for none.
	ID string `json:"id"`
	// Kept is true where it was left alone.
	Kept   bool  `json:"kept,omitempty"`
	TookMS int64 `json:"took_ms"`
	// Cut is how many requests the limit ended, nil where the journal does not tell.
	Cut *int `json:"cut"`
	// Succeeded is nil without a successor.
	Succeeded *Succeeded `json:"succeeded,omitempty"`
}

// Succeeded is what was seen of a successor.
type Succeeded struct {
	Ready bool `json:"ready"`
	// GapMS is from the end of admission until the successor admitted.
	GapMS  int64  `json:"gap_ms"`
	Epoch  int64  `json:"epoch"`
	Holder string `json:"holder"`
	Reason string `json:"reason"` // of not admitting
}

// drain ends the process on the host itself.
func drain(ctx context.Context, q DrainRequest) (out Drained, err error) {
	if !filepath.IsLocal(q.Journal) {
		return out, fmt.Errorf("drain %.80q: its journal %.80q is no path below the root", q.Name, q.Journal)
	}
	dir := filepath.Join(q.Root, DirRun)
	r, ok := process.Read(dir, q.Name)
	if ok && r.Remains() {
		out.ID = r.Identity.String()
	}
	if ok && r.Alive() && slices.Contains(q.Keep, r.Launch) {
		out.Kept, out.Stopped = true, process.Stopped{Name: q.Name, Was: true, PID: r.PID}
		return out, nil
	}
	rows := openRows(filepath.Join(q.Root, q.Journal))
	defer rows.close()
	begin := time.Now()
	taken := make(chan Succeeded, 1)
	watch, end := context.WithTimeout(ctx, max(q.SucceedWithin.D(), time.Millisecond))
	defer end()
	if q.Successor != "" {
		go func() { taken <- succession(watch, q.Successor, begin) }()
	}
	out.Stopped, err = process.Stop(ctx, dir, q.Name, q.Within.D())
	out.TookMS = time.Since(begin).Milliseconds()
	if q.Successor != "" {
		t := <-taken
		out.Succeeded = &t
	}
	if err == nil && !out.Killed {
		out.Cut = rows.cut()
	}
	return out, err
}

// rowsFrom is a journal from the place where it ended.
type rowsFrom struct {
	path string
	file *os.File // nil when there was none
}

func openRows(path string) *rowsFrom {
	f, err := os.Open(path)
	if err != nil {
		return &rowsFrom{path: path}
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		_ = f.Close()
		return &rowsFrom{path: path}
	}
	return &rowsFrom{path: path, file: f}
}

func (r *rowsFrom) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

const maxRows = 256 << 20

// cut counts the rows since then of requests that ended because the router did; nil when the
// journal cannot be read. A file that took the journal's name meanwhile is read too.
func (r *rowsFrom) cut() *int {
	n := 0
	now, err := os.Open(r.path)
	if err != nil {
		return nil
	}
	defer now.Close()
	files := []*os.File{now}
	if r.file != nil {
		a, aerr := r.file.Stat()
		b, berr := now.Stat()
		files = []*os.File{r.file, now}
		if aerr == nil && berr == nil && os.SameFile(a, b) {
			files = files[:1]
		}
	}
	for _, f := range files {
		lines := bufio.NewScanner(io.LimitReader(f, maxRows))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var row struct {
				Reason string `json:"reason"`
			}
			if json.Unmarshal(lines.Bytes(), &row) == nil && row.Reason == reasonShutdown {
				n++
			}
		}
		if lines.Err() != nil {
			return nil
		}
	}
	return &n
}

// reasonShutdown is the journal's reason of a request that the router's end cut.
const reasonShutdown = "shutdown"

// JournalOf is the journal of a router or standby, below its host's root.
func JournalOf(name string) string { return path.Join(name, "journal.jsonl") }

// DrainUndo takes a started router or standby back: no more admission, a drain with a limit,
// then its end by its recorded identity.
func DrainUndo(f fleet.Fleet, host, name string, within fleet.Duration) *Undo {
	return &Undo{
		Title: "drain and stop " + name, Stops: name, Limit: within + fleet.Duration(10*time.Second),
		Argv: HostCommand(f, host, "drain", DrainRequest{Root: f.Deploy.Hosts[host].Root, Name: name, Within: within, Journal: JournalOf(name)}),
	}
}
