package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/presets"
	"github.com/narwhal-fleet/narwhal/schema"
)

// watchEvery is how often --watch looks at the files.
const watchEvery = 300 * time.Millisecond

type validateFlags struct {
	files     []string
	preset    string
	effective bool
	as        string
	strict    bool
	watch     bool
}

func validateVerb(a *app) *cobra.Command {
	var f validateFlags
	c := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Validates a fleet file offline; several files are unified",
		Long: "Validates a fleet file without network, hosts or credentials. Several files are\n" +
			"unified into one document. All errors come at once, each with its place, rule and wish.\n" +
			"--format takes text, json, github and sarif here. \"-\" reads standard input.",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.files = append(f.files, args...)
			if err := f.complain(a.format); err != nil {
				return err
			}
			if f.watch {
				return a.watchFleet(cmd.Context(), f)
			}
			return a.validate(cmd.Context(), f)
		},
	}
	fleetFlag(c, &f.files)
	c.Flags().StringVar(&f.preset, "preset", "", "validate an embedded fleet")
	c.Flags().BoolVar(&f.effective, "effective", false, "print the document with every default filled in")
	c.Flags().StringVar(&f.as, "as", "narwhal", "form of --effective: narwhal, or reference (without deploy)")
	c.Flags().BoolVar(&f.strict, "strict", false, "turn warnings into errors")
	c.Flags().BoolVar(&f.watch, "watch", false, "validate again whenever a file changes")
	return c
}

func (f validateFlags) complain(format string) error {
	usage := func(says, hint string) error { return problem.New(problem.Invalid, "invalid_arguments", says, hint) }
	switch format {
	case "text", "json", "github", "sarif":
	default:
		return usage(fmt.Sprintf("--format %q is not known", format), "choose text, json, github or sarif")
	}
	switch {
	case f.as != "narwhal" && f.as != "reference":
		return usage(fmt.Sprintf("--as %q is not known", f.as), "choose narwhal or reference")
	case len(f.files) == 0 && f.preset == "":
		return usage("no fleet file is given", "name one (narwhal sandbox up makes one to try), or use --preset; narwhal preset list lists them")
	case f.watch && (f.preset != "" && len(f.files) == 0 || contains(f.files, "-")):
		return usage("--watch wants files", "name the files to watch")
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// fleetData is the data of validate.
type fleetData struct {
	Files     []string           `json:"files"`
	Valid     bool               `json:"valid"`
	Warnings  []*problem.Problem `json:"warnings"`
	Fleet     *fleetSummary      `json:"fleet"`
	Digest    string             `json:"digest,omitempty"`
	Effective *fleet.Fleet       `json:"effective,omitempty"`
	Derived   map[string]any     `json:"derived,omitempty"`
}

type fleetSummary struct {
	Name    string `json:"name"`
	Engines int    `json:"engines"`
	Hosts   int    `json:"hosts"`
}

func (a *app) validate(ctx context.Context, f validateFlags) error {
	srcs, err := a.sources(ctx, f.files, f.preset)
	if err != nil {
		return err
	}
	opt := a.schemaOptions()
	opt.Strict, opt.Reference = f.strict, f.as == "reference"
	doc, err := schema.Load(ctx, srcs, opt)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d := fleetData{Valid: err == nil, Warnings: append([]*problem.Problem{}, schema.Warnings(err)...)}
	for _, s := range srcs {
		d.Files = append(d.Files, s.Name)
	}
	if doc != nil {
		d.fill(doc, f.effective)
	}
	a.result = &result{operation: "validate", data: d, text: func(w io.Writer) { d.print(w, a.err) }}
	return a.reportAs(doc, d, f, err)
}

func (d *fleetData) fill(doc *schema.Document, effective bool) {
	d.Warnings = append(d.Warnings, doc.Warnings...)
	d.Digest = doc.Digest
	d.Fleet = &fleetSummary{Name: doc.Fleet.Model, Engines: len(doc.Fleet.Engines)}
	if p := doc.Fleet.Deploy; p != nil {
		d.Fleet.Name, d.Fleet.Hosts = p.Name, len(p.Hosts)
	}
	if effective {
		d.Effective, d.Derived = &doc.Fleet, doc.Derived
	}
}

// reportAs writes the forms that replace the envelope.
func (a *app) reportAs(doc *schema.Document, d fleetData, f validateFlags, err error) error {
	switch {
	case a.format == "github":
		a.result.raw = shown(schema.GitHub(problem.All(err), d.Warnings))
	case a.format == "sarif":
		b, sarifErr := schema.SARIF(problem.All(err), d.Warnings, version)
		if sarifErr != nil {
			return sarifErr
		}
		a.result.raw = shown(b)
	case f.effective && a.format == "text" && doc != nil:
		b, jsonErr := indented(doc.Fleet)
		if jsonErr != nil {
			return jsonErr
		}
		a.result.raw = shown(b)
		printWarnings(a.err, d.Warnings)
	}
	return err
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

func (d fleetData) print(out, err io.Writer) {
	printWarnings(err, d.Warnings)
	if !d.Valid {
		return
	}
	fmt.Fprintf(out, "valid: %s, %d engines, %d hosts", oneLine(d.Fleet.Name), d.Fleet.Engines, d.Fleet.Hosts)
	if n := len(d.Warnings); n > 0 {
		fmt.Fprintf(out, ", %d warnings", n)
	}
	fmt.Fprintf(out, "\ndigest: %s\n", d.Digest)
}

func printWarnings(w io.Writer, ps []*problem.Problem) {
	for _, p := range ps {
		fmt.Fprintf(w, "narwhal: warning: %s:%d:%d: %s [%s]\n", oneLine(p.File), p.Line, p.Column, oneLine(p.Message), p.Rule)
		if p.Hint != "" {
			fmt.Fprintf(w, "narwhal: hint: %s\n", oneLine(p.Hint))
		}
	}
}

// sources reads the files of one document. A preset comes first.
func (a *app) sources(ctx context.Context, files []string, preset string) ([]schema.Source, error) {
	var out []schema.Source
	if preset != "" {
		b, err := presets.Show(preset)
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "unknown_preset", "read preset", err, "narwhal preset list")
		}
		out = append(out, schema.Source{Name: "preset:" + preset + ".cue", Data: b})
	}
	for _, name := range files {
		path := name
		if name != "-" {
			path = a.abs(name)
		}
		b, err := a.input(ctx, path, "read fleet file")
		if err != nil {
			return nil, err
		}
		out = append(out, schema.Source{Name: name, Data: b})
	}
	return out, nil
}

func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func (a *app) abs(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(a.dir, name)
}

// schemaOptions gives schema the environment, and the files that a document names.
func (a *app) schemaOptions() schema.Options {
	return schema.Options{
		Env: a.lookup,
		Read: func(name string) ([]byte, error) {
			info, err := os.Stat(a.abs(name))
			if err != nil {
				return nil, err
			}
			if !info.Mode().IsRegular() {
				return nil, fmt.Errorf("read %s: not a plain file", name)
			}
			return readBounded(a.abs(name), maxFleetFile)
		},
	}
}

// watchFleet validates whenever a file changes, until it is interrupted.
func (a *app) watchFleet(ctx context.Context, f validateFlags) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := ""
	for {
		if now := a.stamp(f.files); now != last {
			last = now
			err := a.validate(ctx, f)
			if ctx.Err() != nil {
				break
			}
			a.finish("narwhal validate", err)
			a.result = nil
			if a.lost != nil {
				return nil // nobody reads any more; the exit code says why
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
			continue
		}
		break
	}
	return context.Cause(ctx)
}

// stamp changes when a file's time, size or existence does.
func (a *app) stamp(files []string) string {
	s := ""
	for _, name := range files {
		if info, err := os.Stat(a.abs(name)); err == nil {
			s += fmt.Sprintf("%s %d %d\n", name, info.ModTime().UnixNano(), info.Size())
		} else {
			s += name + " unreadable\n"
		}
	}
	return s
}
