package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/filelock"
	"github.com/narwhal-fleet/narwhal/internal/ownfile"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// claimed are the files of a store that may be written, and what lies there.
type claimed struct {
	store, samples string
	rows           *profile.Store // nil = none
	points         *preflight.Samples
	seen           [2]string      // digests of both files, "" = absent
	hold           *filelock.Hold // nobody else profiles into them
}

// claim takes the files for this process and notes what they are.
func (c *claimed) claim() error {
	if err := atomicfile.MkdirAll(filepath.Dir(c.store), 0o700); err != nil {
		return problem.Wrap(problem.Failed, "store_unwritable", "write the profiles", err, otherStore)
	}
	hold, err := filelock.Take(c.store)
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return problem.Wrap(problem.Locked, "store_held", "write the profiles", err, "wait until that profile has ended, or "+otherStore)
	case err != nil:
		return problem.Wrap(problem.Failed, "store_unwritable", "write the profiles", err, otherStore)
	}
	c.hold = hold
	c.seen = c.look()
	return nil
}

func (c *claimed) look() (seen [2]string) {
	for i, path := range []string{c.store, c.samples} {
		if b, err := os.ReadFile(path); err == nil {
			sum := sha256.Sum256(b)
			seen[i] = string(sum[:])
		}
	}
	return seen
}

const otherStore = "--out FILE names another one"

// claimStore refuses to write through a link, over what is no profile store, and over one that
// exists without --overwrite.
// The caller releases the hold.
func (a *app) claimStore(ctx context.Context, f profileFlags, fl fleet.Fleet) (c claimed, err error) {
	path := f.out
	if path == "" {
		path = fl.Profiles.Path
	}
	c.store = a.abs(path)
	c.samples = samplesBeside(c.store)
	uses := []ownfile.Use{{What: "the profile store", Path: c.store, Writes: true}, {What: "the file of its points", Path: c.samples, Writes: true}}
	for _, p := range f.fleet {
		if p != "-" {
			uses = append(uses, ownfile.Use{What: "the fleet file", Path: a.abs(p)})
		}
	}
	for what, p := range map[string]string{"the state file": fl.Recovery.StatePath, "the calibration": fl.Engine.FirstTokenCalibrationPath} {
		if p != "" {
			uses = append(uses, ownfile.Use{What: what, Path: a.abs(p)})
		}
	}
	if err := ownfile.Distinct(uses); err != nil {
		return c, problem.Wrap(problem.Invalid, "one_file_twice", "write the profiles", err, otherStore)
	}
	for _, p := range []string{c.store, c.samples} {
		if err := writable(p, f.overwrite); err != nil {
			return c, err
		}
	}
	if err := c.claim(); err != nil {
		return c, err
	}
	defer func() {
		if err != nil {
			c.hold.Release()
		}
	}()
	var store profile.Store
	if store, err = readProfiles(ctx, c.store); err == nil {
		c.rows = &store
	} else if !absent(err) {
		return c, problem.Wrap(problem.Invalid, "store_foreign", "write the profiles", err, "nothing of it was changed: remove it if it is of no use, or "+otherStore)
	}
	if c.points, err = readSamples(ctx, c.samples); err != nil && !absent(err) {
		return c, problem.Wrap(problem.Invalid, "store_foreign", "write the points beside the profiles", err, "nothing of it was changed; "+otherStore)
	}
	return c, nil
}

// writable refuses a link, what is no regular file, and a file that may not be replaced.
func writable(path string, overwrite bool) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return problem.Wrap(problem.Failed, "store_unwritable", "write the profiles", err, otherStore)
	case st.Mode()&fs.ModeSymlink != 0:
		return problem.New(problem.Invalid, "store_is_link", path+" is a symbolic link", "nothing is written through a link: name the file itself with --out")
	case !st.Mode().IsRegular():
		return problem.New(problem.Invalid, "store_irregular", path+" is no regular file", otherStore)
	case !overwrite:
		return problem.New(problem.Invalid, "store_exists", path+" exists", "--overwrite replaces it (with --only the rows of other engines stay), or "+otherStore)
	}
	return nil
}

// put writes both files whole; the points first, so that no row is there without them.
func (c claimed) put(store profile.Store, points preflight.Samples) error {
	if c.look() != c.seen {
		return problem.New(problem.Refused, "store_changed", c.store+" or its points changed meanwhile", "nothing was written: look at what is there, then the same command with --overwrite, or "+otherStore)
	}
	rows, err := store.Encode()
	if err != nil {
		return problem.Wrap(problem.FailedGate, "store_invalid", "write the profiles", err, "measure on idle engines; nothing was written")
	}
	samples, err := points.Encode()
	if err == nil {
		err = atomicfile.MkdirAll(filepath.Dir(c.store), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(c.samples, samples, 0o644)
	}
	if err == nil && len(store.Rows) > 0 {
		err = atomicfile.Write(c.store, rows, 0o644)
	}
	if err != nil {
		return problem.Wrap(problem.Failed, "store_unwritable", "write the profiles", err, "--out FILE names a file in a folder that can be written")
	}
	return nil
}

// sources reads files to merge: stores with the points beside them, or points alone.
func (a *app) mergeSources(ctx context.Context, files []string) (out []preflight.Source, err error) {
	const hint = "--merge takes profile stores and samples files of narwhal profile"
	for _, name := range files {
		path := a.abs(name)
		b, err := storeBytes(ctx, path)
		if err != nil {
			return nil, unreadable(ctx, "read "+name, err)
		}
		var head struct {
			Schema string `json:"schema"`
		}
		if json.Unmarshal(b, &head) == nil && head.Schema == preflight.SamplesSchema {
			s, err := preflight.ReadSamples(bytes.NewReader(b))
			if err != nil {
				return nil, problem.Wrap(problem.Invalid, "samples_unreadable", "read "+name, err, hint)
			}
			out = append(out, preflight.Source{Name: name, Samples: &s})
			continue
		}
		store, err := profile.ReadStore(bytes.NewReader(b))
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "profiles_invalid", "read "+name, err, hint)
		}
		s, err := readSamples(ctx, samplesBeside(path))
		if err != nil && !absent(err) {
			return nil, problem.Wrap(problem.Invalid, "samples_unreadable", "read the points beside "+name, err, hint)
		}
		out = append(out, preflight.Source{Name: name, Rows: store.Rows, Samples: s})
	}
	return out, nil
}

// profileData is the answer of the verb.
type profileData struct {
	Engines []preflight.Fitted `json:"engines"`
	Kept    []string           `json:"kept"`
	Missing []string           `json:"missing"`
	Store   string             `json:"store"`
	Samples string             `json:"samples"`
}

// writeProfiles fits, writes, and tells what has no row.
func (a *app) writeProfiles(f profileFlags, fl fleet.Fleet, to claimed, p preflight.Profiling) error {
	keep := preflight.Kept{}
	if len(f.only) > 0 {
		keep = preflight.Kept{Store: to.rows, Samples: to.points}
	}
	meta := map[string]any{"package": "narwhal", "version": version}
	c := preflight.Compose(fl, p, keep, meta)
	d := profileData{Engines: c.Fitted, Kept: c.Kept, Missing: c.Missing}
	r := &result{status: problem.Success}
	states := map[string]string{}
	for _, path := range []string{to.store, to.samples} {
		states[path] = "created"
		if exists(path) {
			states[path] = "updated"
		}
	}
	if len(c.Samples.Engines)+len(c.Store.Rows) > 0 {
		if err := to.put(c.Store, c.Samples); err != nil {
			return err
		}
		d.Samples = to.samples
		r.artifacts = append(r.artifacts, artifact{"profile-samples", to.samples, states[to.samples]})
		if len(c.Store.Rows) > 0 {
			d.Store = to.store
			r.artifacts = append(r.artifacts, artifact{"profiles", to.store, states[to.store]})
		}
	}
	r.data, r.text = d, func(w io.Writer) { printProfiles(w, d) }
	r.status, r.problems = profileProblems(p, c)
	if r.status == problem.Success && len(c.Missing) > 0 {
		fmt.Fprintf(a.err, "narwhal: warning: the store has no row of %s, and a router refuses it: --only with --overwrite adds them\n", oneLine(fmt.Sprint(c.Missing)))
	}
	if len(c.Extra) > 0 {
		fmt.Fprintf(a.err, "narwhal: warning: the store has rows of %s, which are no engines of the fleet, and a router refuses it\n", oneLine(fmt.Sprint(c.Extra)))
	}
	a.result = r
	return nil
}

// profileProblems says why engines have no new row.
func profileProblems(p preflight.Profiling, c preflight.Composed) (problem.Status, []*problem.Problem) {
	status := problem.Success
	var out []*problem.Problem
	for _, x := range c.Fitted {
		for _, f := range x.Refused() {
			status = problem.FailedGate
			out = append(out, problemOf(status, f))
		}
	}
	for _, e := range p.FailedIDs() {
		status = problem.Failed
		one := problem.Wrap(status, "profile_failed", "profile "+e, p.Failed[e], "narwhal check -f FLEET --only "+e+" says what the engine is; then narwhal profile --only "+e+" --overwrite measures it, and keeps the others")
		one.Engine = e
		out = append(out, one)
	}
	return status, out
}
