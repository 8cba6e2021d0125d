package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/presets"
)

func presetVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "preset", Short: "Embedded fleet files to start from"}
	c.AddCommand(presetListVerb(a), presetShowVerb(a), presetInitVerb(a))
	return c
}

func presetListVerb(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Lists the presets",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list := presets.List()
			a.result = &result{data: map[string]any{"presets": list}, text: func(w io.Writer) {
				for _, p := range list {
					fmt.Fprintf(w, "%-24s %s\n", p.Name, p.About)
				}
			}}
			return nil
		},
	}
}

func showPreset(name string) ([]byte, error) {
	b, err := presets.Show(name)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "unknown_preset", "read preset", err, "narwhal preset list")
	}
	return b, nil
}

func presetShowVerb(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Prints a preset",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := showPreset(args[0])
			a.result = &result{raw: b}
			return err
		},
	}
}

func presetInitVerb(a *app) *cobra.Command {
	var out string
	var force bool
	c := &cobra.Command{
		Use:   "init NAME -o FILE",
		Short: "Writes a preset as a commented file to start from",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := showPreset(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				return problem.New(problem.Invalid, "invalid_arguments", "no output file is given", "narwhal preset init "+args[0]+" -o fleet.cue")
			}
			if out == "-" {
				a.result = &result{raw: b}
				return nil
			}
			if ext := filepath.Ext(out); ext != ".cue" {
				return problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("a preset is CUE, but %s does not end in .cue", out), "narwhal validate --preset "+args[0]+" --effective prints JSON")
			}
			state, err := writeNew(a.abs(out), b, force)
			if err != nil {
				return err
			}
			a.result = &result{
				data:      map[string]any{"preset": args[0], "file": out},
				artifacts: []artifact{{Kind: "fleet", Path: out, State: state}},
				text: func(w io.Writer) {
					fmt.Fprintf(w, "wrote %s\nnext: edit it, then narwhal validate %s\n", out, out)
				},
			}
			return nil
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "the file to write (.cue), - for standard output (required)")
	c.Flags().BoolVar(&force, "force", false, "replace a file that exists")
	return c
}

// writeNew writes a file that does not exist yet, or replaces it when forced.
func writeNew(path string, b []byte, force bool) (state string, err error) {
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	state = "created"
	if _, statErr := os.Stat(path); statErr == nil && force {
		flags, state = os.O_WRONLY|os.O_TRUNC, "updated"
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return "", problem.Wrap(problem.Invalid, "file_exists", "write preset", err, "choose another name, or give --force")
	}
	if err != nil {
		return "", problem.Wrap(problem.Failed, "write_failed", "write preset", err, "")
	}
	_, err = f.Write(b)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", problem.Wrap(problem.Failed, "write_failed", "write preset", err, "")
	}
	return state, nil
}
