package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/discover"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/schema"
)

// defaultDraft is the file that --draft writes unless it names one.
const defaultDraft = "draft.cue"

type draftData struct {
	Run    string   `json:"run"`
	File   string   `json:"file"`
	Fill   []string `json:"fill"`
	Faults int      `json:"faults"`
}

// draftFleet runs gate A on the hosts of a fleet file, which may hold little else, and
// writes what it found as a fleet file. What gate A finds wrong stands in the draft.
func (a *app) draftFleet(ctx context.Context, f gateFlags, o gates.Options, progress gates.Progress) error {
	if o.To != "A" && o.Only != "A" {
		return problem.New(problem.Invalid, "invalid_arguments", "a draft is made by gate A alone", "narwhal gate run A --draft")
	}
	if ext := filepath.Ext(f.draft); ext != ".cue" {
		return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("a draft is CUE, but %s does not end in .cue", f.draft), "narwhal gate run A --draft="+defaultDraft)
	}
	path := a.abs(f.draft)
	if _, err := os.Lstat(path); err == nil {
		return problem.New(problem.Invalid, "file_exists", f.draft+" exists", "choose another name: --draft=FILE.cue")
	}
	l, err := a.loadHosts(ctx, f.fleet)
	if err != nil {
		return err
	}
	s, err := a.openLoaded(l, f.run, f.fresh, progress)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintf(a.err, "run %s\n", s.run)
	out, err := s.runner.Run(ctx, o)
	if err != nil {
		return err
	}
	v, err := gates.ViewAt(s.record.State(), s.record.Load)
	if err != nil {
		return err
	}
	d := discover.Draft(v, s.run)
	if _, err := writeNew(path, d.Text, false); err != nil {
		return err
	}
	data := draftData{Run: s.run, File: f.draft, Fill: d.Fill, Faults: len(out.Errors)}
	a.result = &result{status: out.Status, data: data, problems: out.Errors, artifacts: []artifact{{"fleet", f.draft, "created"}, {"record", s.dir, "updated"}}, text: func(w io.Writer) {
		fmt.Fprintf(w, "wrote %s\n", data.File)
		for _, x := range data.Fill {
			fmt.Fprintf(w, "  fill in %s\n", x)
		}
		fmt.Fprintf(w, "next: edit it, then narwhal validate %s\n", data.File)
	}}
	return nil
}

// loadHosts loads fleet files, and completes those that name hosts and little else.
func (a *app) loadHosts(ctx context.Context, files []string) (loaded, error) {
	if len(files) == 0 {
		return a.loadFleet(ctx, files)
	}
	l, srcs, err := a.fleetSources(ctx, files)
	if err != nil {
		return l, err
	}
	more, err := schema.Skeleton(ctx, srcs)
	if err != nil {
		return l, err
	}
	if more != nil {
		srcs = append(srcs, schema.Source{Name: "skeleton.json", Data: more})
	}
	return a.loadSources(ctx, l, srcs)
}
