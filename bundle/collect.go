package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/narwhal-fleet/narwhal/bundle/redact"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// collection is a bundle in the making.
type collection struct {
	src    Source
	redact *redact.Redactor
	spool  *spool

	mu      sync.Mutex
	entries []Entry
	at      map[string]int64 // path → place in the spool
	missing []Missing
	hosts   map[string]bool
	failed  error // the spool's; no bundle can be written
}

// Collect asks every host that carries engines or a router, and the run's record, and
// writes the archive to w. What cannot be had is named in the summary and the manifest. The
// error is for a bundle that could not be written, or a context that has ended.
func Collect(ctx context.Context, src Source, w io.Writer) (Summary, error) {
	if src.Fleet.Deploy == nil {
		return Summary{}, errors.New("collect bundle: the fleet has no deploy section")
	}
	if src.Now == nil {
		src.Now = time.Now
	}
	sp, err := newSpool()
	if err != nil {
		return Summary{}, fmt.Errorf("collect bundle: %w", err)
	}
	defer sp.Close()
	c := &collection{src: src, redact: redact.New(src.Key, src.Literals), spool: sp, at: map[string]int64{}, hosts: map[string]bool{}}
	created := src.Now().UTC().Truncate(time.Second)
	snap := c.record()
	c.allHosts(ctx)
	if ctx.Err() != nil {
		return Summary{}, fmt.Errorf("collect bundle: %w", context.Cause(ctx))
	}
	m := c.manifest(created, snap)
	if err := c.report(m, snap); err != nil {
		return Summary{}, fmt.Errorf("collect bundle: %w", err)
	}
	if c.failed != nil {
		return Summary{}, fmt.Errorf("collect bundle: %w", c.failed)
	}
	return c.write(c.manifest(created, snap), w)
}

// allHosts works on several hosts at once.
func (c *collection) allHosts(ctx context.Context) {
	n := c.src.Fleet.Deploy.Limits.FanOut
	if n <= 0 {
		n = fanOut
	}
	slots := make(chan struct{}, n)
	var wait sync.WaitGroup
	for _, id := range c.src.Fleet.WorkHosts() {
		if id == "" {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			c.host(ctx, id)
		})
	}
	wait.Wait()
}

// add redacts bytes and keeps them.
func (c *collection) add(e Entry, raw []byte) {
	b, n := c.redact.Bytes(raw)
	e.Redactions += n
	c.keep(e, b)
}

// keep stores bytes that hold no secret.
func (c *collection) keep(e Entry, b []byte) {
	e.Bytes, e.SHA256 = int64(len(b)), digestOf(b)
	e.Source, e.Note = c.clean(e.Source), c.clean(e.Note)
	at, err := c.spool.put(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, twice := c.at[e.Path]
	switch {
	case errors.Is(err, errFull):
		c.missing = append(c.missing, Missing{e.Path, err.Error()})
	case err != nil:
		c.failed = err
	case twice:
		c.missing = append(c.missing, Missing{e.Path, "two sources have this name; the first is kept"})
	default:
		c.at[e.Path] = at
		c.entries = append(c.entries, e)
	}
}

// miss names something that is not there.
func (c *collection) miss(path, why string) {
	m := Missing{path, c.clean(why)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = append(c.missing, m)
}

// clean redacts foreign text, strips control characters and bounds it.
func (c *collection) clean(s string) string {
	s, _ = c.redact.Text(strings.ToValidUTF8(s, "?"))
	return clip(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s))
}

func clip(s string) string {
	if len(s) > maxWhy {
		return strings.ToValidUTF8(s[:maxWhy], "") + "…"
	}
	return s
}

// manifest is what has been collected so far.
func (c *collection) manifest(created time.Time, snap *record.Snapshot) *Manifest {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &Manifest{
		Schema: Schema, SchemaVersion: Version, Fleet: c.src.Fleet.Deploy.Name, Created: created.Format(time.RFC3339), Tool: c.src.Tool,
		Hosts: []string{}, Entries: slices.Clone(c.entries), Missing: append([]Missing{}, c.missing...),
	}
	if snap != nil {
		m.Run = filepath.Base(c.src.RunDir)
	}
	for _, id := range c.src.Fleet.WorkHosts() {
		if c.hosts[id] {
			m.Hosts = append(m.Hosts, id)
		}
	}
	slices.SortFunc(m.Entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(m.Missing, func(a, b Missing) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Why, b.Why)) })
	for _, e := range m.Entries {
		m.Redactions += e.Redactions
	}
	return m
}
