package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/filelock"
)

// Point is one stretch of load. Points run one after the other, on an idle router each.
type Point struct {
	Label       string
	Arrivals    []Arrival
	Concurrency int           // closed loop; 0 = open
	Until       time.Duration // of a closed loop
}

// Setup is a whole run with its evidence.
type Setup struct {
	Dir     string // the run's folder; it must not exist
	ID      string
	Package string // version of the program

	URL       string
	Model     string
	Chat      bool
	Key       fleet.Secret
	Transport http.RoundTripper

	SLO    SLO
	Seed   uint64
	Salt   string // begins all prompts; "" = the seed
	Points []Point

	Timeout       time.Duration
	MaxInFlight   int
	CharsPerToken float64 // 0 = measured by one request
	Warmup        int     // requests before the first point
	Idle          time.Duration
	Journal       string // of the router; "" = none
	SampleEvery   time.Duration
	Inputs        []string // files whose change within the run is told
	Config        any      // the command's settings, kept as they are
	Progress      func(string)
}

// NewID names a run that begins at a moment; ids in order are runs in order.
func NewID(now time.Time) string {
	var b [3]byte
	_, _ = rand.Read(b[:])
	return now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b[:])
}

// Limits of a run that nobody sets.
const (
	drainWithin   = 30 * time.Second // open requests after a stop
	journalWithin = 5 * time.Second  // the router's last rows to reach its journal
)

type conductor struct {
	Setup
	manifest Manifest
	router   *Router // nil = the server tells no state
	tag      string
}

// Conduct runs all points in order and keeps their evidence. When ctx ends it stops in
// good order: what was measured is kept, the run is marked partial, and ctx's error comes
// back.
func Conduct(ctx context.Context, s Setup) (err error) {
	if len(s.Points) == 0 {
		return errors.New("run: no points")
	}
	if exists(s.Dir) {
		return fmt.Errorf("run: %s exists", s.Dir)
	}
	if err := atomicfile.MkdirAll(filepath.Join(s.Dir, "points"), 0o700); err != nil {
		return err
	}
	hold, err := filelock.Take(filepath.Join(s.Dir, fileRun))
	if err != nil {
		return err
	}
	defer hold.Release()
	c := &conductor{Setup: s, tag: s.ID[max(0, len(s.ID)-6):]}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	c.Salt = cmp.Or(c.Salt, fmt.Sprintf("seed-%d", c.Seed))
	if err := c.begin(); err != nil {
		return err
	}
	err = c.points(ctx)
	c.manifest.State = StateComplete
	if err != nil {
		c.manifest.State, c.manifest.Because = StatePartial, short(err.Error())
		if cause := context.Cause(ctx); cause != nil {
			c.manifest.Because = short(cause.Error())
		}
	}
	return errors.Join(err, c.end())
}

func (c *conductor) begin() error {
	config, err := json.Marshal(c.Config)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	c.manifest = Manifest{Schema: Schema, Version: Version, ID: c.ID, State: StateRunning, Started: time.Now().UTC(), Package: c.Package,
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Seed: c.Seed, Salt: c.Salt, SLO: c.SLO, Config: config,
		Inputs: []Input{}, Points: []string{}}
	for _, path := range c.Inputs {
		sum, err := digestFile(path)
		if err != nil {
			return fmt.Errorf("run: %w", err)
		}
		c.manifest.Inputs = append(c.manifest.Inputs, Input{Path: path, SHA256: sum})
	}
	for _, p := range c.Points {
		c.manifest.Points = append(c.manifest.Points, p.Label)
	}
	return writeJSON(filepath.Join(c.Dir, fileRun), c.manifest)
}

func (c *conductor) end() error {
	now := time.Now().UTC()
	c.manifest.Ended = &now
	for i := range c.manifest.Inputs {
		in := &c.manifest.Inputs[i]
		sum, err := digestFile(in.Path)
		if err != nil {
			sum = "unreadable"
		}
		in.After = sum
	}
	var err error
	if c.manifest.Files, err = evidenceDigests(c.Dir); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return writeJSON(filepath.Join(c.Dir, fileRun), c.manifest)
}

// evidenceDigests are those of a run's files, without what tells of it as a whole.
func evidenceDigests(dir string) (map[string]string, error) {
	sums := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || strings.HasPrefix(name, fileRun) || name == fileReport {
			return err
		}
		sums[filepath.ToSlash(name)], err = digestFile(path)
		return err
	})
	return sums, err
}

func digestFile(path string) (string, error) {
	f, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, 1<<30)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (c *conductor) points(ctx context.Context) error {
	r := NewRouter(c.URL, c.Transport)
	defer r.Close()
	if l := r.look(ctx); l.Error == "" {
		c.router = r
	} else if ctx.Err() == nil {
		c.Progress("the server tells no state, so nothing is reconciled with it: " + l.Error)
	}
	if err := c.warm(ctx); err != nil {
		return err
	}
	for i, p := range c.Points {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.point(ctx, i, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *conductor) plan(tag, salt string, p Point) Plan {
	return Plan{URL: c.URL, Model: c.Model, Arrivals: p.Arrivals, Chat: c.Chat, Timeout: c.Timeout, MaxInFlight: c.MaxInFlight, CharsPerToken: c.CharsPerToken,
		Tag: tag, Salt: salt, Key: c.Key, Transport: c.Transport, Concurrency: p.Concurrency, Until: p.Until, Drain: drainWithin}
}

// warm measures the prompts' characters, unless they are set, and offers unscored requests
// one after the other.
func (c *conductor) warm(ctx context.Context) error {
	if c.CharsPerToken <= 0 {
		v, err := Calibrate(ctx, c.plan(c.tag, c.Salt+" calibrate", Point{}))
		if err != nil {
			return err
		}
		c.CharsPerToken = v
	}
	if c.Warmup <= 0 {
		return nil
	}
	c.Progress(fmt.Sprintf("%d requests to warm up", c.Warmup))
	first := c.Points[0].Arrivals
	p := Point{Concurrency: 1}
	for i := range c.Warmup {
		a := first[i%len(first)]
		a.At = 0
		p.Arrivals = append(p.Arrivals, a)
	}
	res, err := Run(ctx, c.plan(c.tag+"-w", c.Salt+" warm-up", p))
	return errors.Join(err, writeLines(filepath.Join(c.Dir, fileWarmup), res.Due()))
}

func (c *conductor) point(ctx context.Context, i int, p Point) error {
	dir := pointDir(c.Dir, i)
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	table := FormatArrivals(p.Arrivals)
	info := PointInfo{Schema: Schema, Version: Version, Index: i, Label: p.Label, State: StateRunning, Tag: fmt.Sprintf("%s-%d", c.tag, i+1), Planned: len(p.Arrivals),
		Offers: offersDigest(table), Closed: p.Concurrency, CharsPerToken: c.CharsPerToken, Journal: c.Journal, SampleEveryS: c.SampleEvery.Seconds()}
	if err := atomicfile.Write(filepath.Join(dir, fileArrivals), table, 0o600); err != nil {
		return err
	}
	m := &measured{conductor: c, dir: dir, info: &info}
	res, err := m.run(ctx, p)
	info.State, info.ElapsedS = StateComplete, res.Elapsed.Seconds()
	if err != nil {
		info.State = StatePartial
	}
	if p.Until > 0 {
		info.Planned = len(res.Rows) // as many as the time took
	}
	rows := res.Due()
	sortRows(rows)
	if werr := writeLines(filepath.Join(dir, fileRows), rows); werr != nil {
		return errors.Join(err, werr)
	}
	_ = os.Remove(filepath.Join(dir, filePartRows)) // the same rows again
	return errors.Join(err, writeJSON(filepath.Join(dir, filePoint), info))
}
