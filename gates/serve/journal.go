package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
)

// Journal holds the router's rows of the trial.
type Journal struct {
	Tags []string      `json:"tags"`
	Rows []journal.Row `json:"rows"`
}

const (
	maxJournal = 256<<20 + 8<<20  // bytes of one file, which ends behind the row that fills it
	maxFiles   = 100_000          // files of one journal
	settleWait = 10 * time.Second // for rows that the router is still writing
	pause      = 200 * time.Millisecond
)

// HostVerbs are what gate G asks of the binary on a host.
func HostVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{"journal-files": gates.Answer(journalFiles)}
}

// FilesRequest asks for the files of a journal.
type FilesRequest struct {
	Path string `json:"path"`
}

// Files are the names of a journal's files in the order of their rows.
type Files struct {
	Names []string `json:"names"`
}

func journalFiles(_ context.Context, q FilesRequest) (Files, error) {
	all, err := journal.Files(q.Path)
	if err != nil {
		return Files{}, err
	}
	if n := len(all); n == 0 || all[n-1] != q.Path {
		return Files{}, fmt.Errorf("no journal at %s", q.Path)
	}
	out := Files{Names: []string{}}
	for _, p := range all {
		out.Names = append(out.Names, filepath.Base(p))
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
	out := Journal{}
	want := 0
	for _, p := range t.Points {
		out.Tags = append(out.Tags, p.Tag)
		for _, r := range p.Rows {
			if r.RID != "" {
				want++
			}
		}
	}
	host := v.Fleet.Deploy.Router.Host
	h, err := env.Host(ctx, host)
	if err != nil {
		return nil, err
	}
	from := source{host: h, list: filesArgv(v.Fleet, host), dir: pathOn(v.Fleet, host, routerName, ""), tags: out.Tags, ended: map[string][]journal.Row{}}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for until := time.Now().Add(settleWait); ; {
		if out.Rows, err = from.rows(ctx); err != nil {
			return nil, fmt.Errorf("read the router's journal: %w", err)
		}
		if len(out.Rows) >= want || time.Now().After(until) {
			return json.Marshal(out)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// source is a journal on a host. One file at a time is in memory, and of those that have
// ended, which do not change any more, the rows of the trial.
type source struct {
	host  gates.Host
	list  []string
	dir   string
	tags  []string
	ended map[string][]journal.Row // by name
}

const written = "journal.jsonl" // the file that is still written

func (s *source) rows(ctx context.Context) ([]journal.Row, error) {
	names, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	all := []journal.Row{}
	for _, name := range names {
		rows, known := s.ended[name]
		if !known {
			b, err := s.host.Get(ctx, path.Join(s.dir, name), maxJournal)
			if errors.Is(err, fs.ErrNotExist) && name != written {
				continue // it was pruned meanwhile
			}
			if err != nil {
				return nil, err
			}
			if rows, err = rowsOf(b, s.tags); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if name != written {
			s.ended[name] = rows
		}
		all = append(all, rows...)
	}
	return all, nil
}

// names asks the host. A name is foreign: it must be that of a file in the folder.
func (s *source) names(ctx context.Context) ([]string, error) {
	res, err := s.host.Run(ctx, remote.Command{Argv: s.list, Limit: shortLimit.D()})
	if err != nil {
		return nil, fmt.Errorf("list its files: %w", err)
	}
	var f Files
	if err := json.Unmarshal(res.Stdout, &f); err != nil || res.Truncated || len(f.Names) > maxFiles {
		return nil, errors.New("list its files: the host's answer is no list")
	}
	for _, name := range f.Names {
		if !strings.HasPrefix(name, "journal") || path.Base(name) != name {
			return nil, fmt.Errorf("list its files: the host names %.80q", name)
		}
	}
	return f.Names, nil
}

// rowsOf picks the rows whose client request id begins with one of the tags.
func rowsOf(b []byte, tags []string) ([]journal.Row, error) {
	rows := []journal.Row{}
	_, err := journal.Read(bytes.NewReader(b), func(l journal.Line) error {
		if l.Row == nil || l.Row.ClientRID == nil {
			return nil
		}
		for _, tag := range tags {
			if strings.HasPrefix(*l.Row.ClientRID, tag+"-") {
				rows = append(rows, *l.Row)
				break
			}
		}
		return nil
	})
	return rows, err
}
