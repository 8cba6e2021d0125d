package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/bundle"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

type bundleLine struct {
	Path     string `json:"path"`
	Fleet    string `json:"fleet"`
	Run      string `json:"run"`
	Created  string `json:"created"`
	Entries  int    `json:"entries"`
	Missing  int    `json:"missing"`
	Readable bool   `json:"readable"`
}

func bundleListVerb(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Lists bundles here and in the state folder", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			state, err := a.stateDir()
			if err != nil {
				return err
			}
			lines := []bundleLine{}
			for _, name := range bundleFiles(a.dir, state) {
				l := readBundleLine(name)
				if l.Readable || strings.HasPrefix(filepath.Base(name), "bundle-") {
					lines = append(lines, l) // others are somebody else's archives
				}
			}
			a.result = &result{data: map[string]any{"bundles": lines}, text: func(w io.Writer) {
				for _, l := range lines {
					if !l.Readable {
						fmt.Fprintf(w, "%s  unreadable\n", l.Path)
						continue
					}
					fmt.Fprintf(w, "%s  fleet %s  %s  %d files, %d missing\n", l.Path, clean(l.Fleet), clean(l.Created), l.Entries, l.Missing)
				}
			}}
			return nil
		},
	}
}

// bundleFiles finds archives that may be bundles.
func bundleFiles(dir, state string) []string {
	found := map[string]bool{}
	for _, folder := range []string{dir, state, filepath.Join(state, "*"), filepath.Join(state, "*", "bundles")} {
		names, _ := filepath.Glob(filepath.Join(folder, "*.tar.gz"))
		for _, n := range names {
			found[n] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func readBundleLine(name string) bundleLine {
	l := bundleLine{Path: name}
	if regular(name) != nil {
		return l
	}
	r, err := bundle.Open(name)
	if err != nil {
		return l
	}
	defer r.Close()
	m := r.Manifest()
	l.Fleet, l.Run, l.Created, l.Entries, l.Missing, l.Readable = m.Fleet, m.Run, m.Created, len(m.Entries), len(m.Missing), true
	return l
}

// openBundle opens an archive; damage is a matter of verification, not of arguments.
func openBundle(name string) (*bundle.Reader, error) {
	var r *bundle.Reader
	err := regular(name)
	if err == nil {
		r, err = bundle.Open(name)
	}
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, bundle.ErrDamaged):
		return nil, problem.Wrap(problem.Unverified, "bundle_damaged", "open the bundle", err, "copy it again, or compare its SHA-256 with the one that collect printed")
	case errors.Is(err, os.ErrNotExist):
		return nil, problem.Wrap(problem.Invalid, "no_such_bundle", "open the bundle", err, "narwhal bundle list shows those in reach")
	}
	return nil, problem.Wrap(problem.Invalid, "bundle_unreadable", "open the bundle", err, "give the archive that narwhal bundle collect wrote")
}

func bundleVerifyVerb(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "verify PATH", Short: "Proves every byte of a bundle against its manifest, offline", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := openBundle(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			res, err := verifiedBundle(r, args[0])
			if err != nil {
				return err
			}
			a.result = res
			return nil
		},
	}
}

// verifiedBundle is the result of proving a bundle.
func verifiedBundle(r *bundle.Reader, name string) (*result, error) {
	problems, err := r.Verify()
	if err != nil {
		return nil, problem.Wrap(problem.Failed, "bundle_unreadable", "read the bundle", err, "check the disk")
	}
	m := r.Manifest()
	res := &result{status: problem.Success, artifacts: []artifact{{"bundle", name, "existing"}},
		data: map[string]any{"archive": name, "fleet": m.Fleet, "run": m.Run, "entries": len(m.Entries), "missing": m.Missing, "problems": problems}}
	for _, p := range problems {
		res.status = problem.Unverified
		where := ""
		if p.Path != "" {
			where = p.Path + ": "
		}
		res.problems = append(res.problems, problem.New(problem.Unverified, "bundle_"+p.Code, where+p.Message, "the bundle was changed after it was written: copy it again"))
	}
	res.text = func(w io.Writer) {
		if len(problems) == 0 {
			fmt.Fprintf(w, "the bundle holds: %d files of fleet %s, %d missing\n", len(m.Entries), clean(m.Fleet), len(m.Missing))
		}
	}
	return res, nil
}

func bundleShowVerb(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show PATH [FILE]", Short: "Shows what a bundle holds and lacks, or one of its files", Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := openBundle(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			if a.result, err = verifiedBundle(r, args[0]); err != nil || a.result.status != problem.Success {
				return err // what does not hold is not shown
			}
			if len(args) == 2 {
				a.result = nil
				return a.showEntry(r, args[0], args[1])
			}
			m := r.Manifest()
			a.result = &result{data: m, artifacts: []artifact{{"bundle", args[0], "existing"}}, text: func(w io.Writer) { printManifest(w, m) }}
			return nil
		},
	}
}

// showEntry writes a file as it is into a pipe, and without control characters to a terminal.
func (a *app) showEntry(r *bundle.Reader, archive, path string) error {
	b, err := r.File(path)
	switch {
	case errors.Is(err, bundle.ErrNoEntry):
		return problem.Wrap(problem.Invalid, "no_such_file", "show "+clean(path), err, "narwhal bundle show "+archive+" lists the files")
	case errors.Is(err, bundle.ErrDamaged):
		return problem.Wrap(problem.Unverified, "bundle_damaged", "show "+clean(path), err, "narwhal bundle verify "+archive+" names what does not hold")
	case err != nil:
		return problem.Wrap(problem.Failed, "bundle_unreadable", "show "+clean(path), err, "check the disk")
	}
	if a.format == "json" {
		a.result = &result{data: map[string]any{"path": path, "bytes": len(b), "text": string(b)}}
		return nil
	}
	if out := fileOf(a.out); out != nil && isTerminal(out) {
		b = []byte(cleanLines(string(b)))
	}
	a.result = &result{raw: b}
	return nil
}

func printManifest(w io.Writer, m bundle.Manifest) {
	run := m.Run
	if run == "" {
		run = "none"
	}
	fmt.Fprintf(w, "fleet %s  run %s  created %s  hosts %s\n", clean(m.Fleet), clean(run), clean(m.Created), clean(strings.Join(m.Hosts, ", ")))
	for _, e := range m.Entries {
		more := ""
		if e.Truncated {
			more += "  in part"
		}
		if e.Redactions > 0 {
			more += fmt.Sprintf("  %d secrets cut", e.Redactions)
		}
		if e.Note != "" {
			more += "  " + clean(e.Note)
		}
		fmt.Fprintf(w, "%10d B  %s%s\n", e.Bytes, clean(e.Path), more)
	}
	for _, x := range m.Missing {
		fmt.Fprintf(w, "missing %s: %s\n", clean(x.Path), clean(x.Why))
	}
}

// clean strips control characters of foreign text in one line.
func clean(s string) string { return strings.ReplaceAll(cleanLines(s), "\n", " ") }

func cleanLines(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return -1
		}
		return r
	}, s)
}
