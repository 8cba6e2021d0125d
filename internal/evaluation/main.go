// Command evaluation writes docs/evaluation.md and its pictures from simulations.
//
// It promises that every figure of the page comes from a run of this program, and the same
// bytes from the same code and workloads. It refuses to write anything when a run fails, and to
// measure real engines: the page says what the simulator does not model.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
)

func main() {
	root := flag.String("root", ".", "the project's folder")
	output := flag.String("output", "docs", "the folder to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := write(ctx, *root, *output); err != nil {
		fmt.Fprintf(os.Stderr, "evaluation: error: %v\n", err)
		os.Exit(1)
	}
}

func write(ctx context.Context, root, output string) error {
	e := &evaluation{ctx: ctx, root: root, pictures: map[string][]byte{}, say: func(s string) { fmt.Fprintln(os.Stderr, s) }}
	page, err := e.page()
	if err != nil {
		return err
	}
	folder := filepath.Join(output, "evaluation")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write pictures: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		return fmt.Errorf("write pictures: %w", err)
	}
	for _, path := range old {
		if _, kept := e.pictures[filepath.Base(path)]; !kept {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("write pictures: %w", err)
			}
		}
	}
	for _, name := range sorted(e.pictures) {
		if err := atomicfile.Write(filepath.Join(folder, name), e.pictures[name], 0o644); err != nil {
			return fmt.Errorf("write pictures: %w", err)
		}
	}
	return atomicfile.Write(filepath.Join(output, "evaluation.md"), []byte(page), 0o644)
}

func sorted[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
