package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Journal holds the router's rows of the trial, and what else it wrote meanwhile.
type Journal struct {
	Tags    []string      `json:"tags"`
	Rows    []journal.Row `json:"rows"`
	Windows []Window      `json:"windows"` // one a point
}

const (
	maxJournal   = 256<<20 + 8<<20  // bytes of one file, which ends behind the row that fills it
	maxFiles     = 100_000          // files of one journal
	settleWait   = 10 * time.Second // for rows that the router is still writing
	pauseBetween = 200 * time.Millisecond
)

// HostVerbs are what gate G asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	verbs := monitoringVerbs()
	verbs["journal-files"], verbs["trial-rests"] = gates.Answer(journalFiles), gates.Answer(trialRests)
	return verbs
}

// FilesRequest asks for the files of a journal.
type FilesRequest struct {
	Path string `json:"path"`
}

// Files are a journal's files in the order of their rows.
type Files struct {
	Files []File `json:"files"`
}

// File is one of them, as long as it was then.
type File struct {
	Name string `json:"name"`
	Mark
}

// Mark is a place in a journal: a file by its device and inode, and an offset in it.
type Mark struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Bytes  int64  `json:"bytes"`
}

func journalFiles(_ context.Context, q FilesRequest) (Files, error) {
	all, err := journal.Files(q.Path)
	if err != nil {
		return Files{}, err
	}
	if n := len(all); n == 0 || all[n-1] != q.Path {
		return Files{}, fmt.Errorf("no journal at %s", q.Path)
	}
	out := Files{Files: []File{}}
	for _, p := range all {
		st, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) && p != q.Path {
			continue // it was pruned meanwhile
		}
		if err != nil {
			return Files{}, err
		}
		f := File{Name: filepath.Base(p), Mark: Mark{Bytes: st.Size()}}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			f.Device, f.Inode = uint64(sys.Dev), sys.Ino
		}
		out.Files = append(out.Files, f)
	}
	return out, nil
}

// journalStep lists the files with one planned command and reads them.
func journalStep(f fleet.Fleet) gates.Step {
	s := local("journal", "read the journal's rows of the trial", journalKey, "journal", 5*shortLimit, nil)
	host := f.Deploy.Router.Host
	s.Local.Runs = map[string][]gates.HostRun{host: {{Argv: filesArgv(f, host)}}}
	return s
}

func filesArgv(f fleet.Fleet, host string) []string {
	return gates.HostCommand(f, host, "journal-files", FilesRequest{Path: JournalPath(f)})
}

// JournalPath is where the router's journal is on its host.
func JournalPath(f fleet.Fleet) string {
	return pathOn(f, f.Deploy.Router.Host, routerName, written)
}

// journalRows reads the router's journal until every answered request of the trial has
// its row, or the wait is over: what is missing then is a finding.
func journalRows(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
	v := env.View()
	var t Trial
	if err := v.Decode(trialKey, &t); err != nil {
		return nil, err
	}
	from, err := newSource(ctx, env, t)
	if err != nil {
		return nil, err
	}
	want := 0
	for _, p := range t.Points {
		for _, r := range p.Rows {
			if r.RID != "" {
				want++
			}
		}
	}
	tick := time.NewTicker(pauseBetween)
	defer tick.Stop()
	for until := time.Now().Add(settleWait); ; {
		out, torn, err := from.read(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the router's journal: %w", err)
		}
		if len(out.Rows) >= want && !torn || time.Now().After(until) {
			return json.Marshal(out)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

const written = "journal.jsonl" // the file that is still written

// listFiles asks the host. A name is foreign: it must be that of a file in the folder.
func listFiles(ctx context.Context, h gates.Host, argv []string) ([]File, error) {
	res, err := h.Run(ctx, remote.Command{Argv: argv, Limit: shortLimit.D()})
	if err != nil {
		return nil, fmt.Errorf("list its files: %w", err)
	}
	var f Files
	if err := json.Unmarshal(res.Stdout, &f); err != nil || res.Truncated || len(f.Files) == 0 || len(f.Files) > maxFiles {
		return nil, errors.New("list its files: the host's answer is no list")
	}
	for _, x := range f.Files {
		if !strings.HasPrefix(x.Name, "journal") || path.Base(x.Name) != x.Name || x.Bytes < 0 {
			return nil, fmt.Errorf("list its files: the host names %.80q", x.Name)
		}
	}
	return f.Files, nil
}

// mark is where the router's journal ends now.
func (o *offering) mark(ctx context.Context) (Mark, error) {
	host := o.fleet.Deploy.Router.Host
	h, err := o.env.Host(ctx, host)
	if err != nil {
		return Mark{}, err
	}
	files, err := listFiles(ctx, h, filesArgv(o.fleet, host))
	if err != nil {
		return Mark{}, fmt.Errorf("mark the router's journal: %w", err)
	}
	return files[len(files)-1].Mark, nil
}
