// Package presets holds fleet files to start from.
//
// It promises files that pass `narwhal validate --strict`, each with comments that say
// what to replace and what was not measured. It refuses to guess addresses, keys or
// digests: those of hardware templates are from the documentation ranges or zeros.
package presets

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.cue
var files embed.FS

// Preset is one embedded fleet file.
type Preset struct {
	Name string `json:"name"`
	// About is one sentence, from the file's first line.
	About string `json:"about"`
	// File is the name to save it under.
	File string `json:"file"`
}

// order of the list; a preset that it lacks comes last.
var order = []string{"sandbox", "one-gpu"}

// List returns all presets: development first, then hardware by name.
func List() []Preset {
	names, err := fs.Glob(files, "*.cue")
	if err != nil {
		panic(err) // the pattern is constant
	}
	var out []Preset
	for _, file := range names {
		name := strings.TrimSuffix(file, ".cue")
		out = append(out, Preset{Name: name, About: about(name), File: file})
	}
	slices.SortStableFunc(out, func(a, b Preset) int { return rank(a.Name) - rank(b.Name) })
	return out
}

func rank(name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

func about(name string) string {
	b, err := Show(name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	_, says, _ := strings.Cut(strings.TrimPrefix(line, "// "), ": ")
	return says
}

// Show returns the commented file of a preset. The error names the presets there are.
func Show(name string) ([]byte, error) {
	b, err := files.ReadFile(name + ".cue")
	if err != nil {
		return nil, fmt.Errorf("find preset %q: the presets are %s", name, strings.Join(Names(), ", "))
	}
	return b, nil
}

// Names lists the presets.
func Names() []string {
	var out []string
	names, _ := fs.Glob(files, "*.cue")
	for _, n := range names {
		out = append(out, strings.TrimSuffix(n, ".cue"))
	}
	return out
}
