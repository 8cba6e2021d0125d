package main

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documentation lists README.md and every page of docs/.
func documentation(t *testing.T) []string {
	t.Helper()
	out := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(projectDir, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			rel, _ := filepath.Rel(projectDir, path)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("found %d pages: %v", len(out), err)
	}
	return out
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fenced  = regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```")
)

// anchors are the fragments of a page's headings.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		s := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		out = append(out, s)
	}
	return out
}

// TestLinks checks that links within the project lead to a file, and fragments to a heading.
func TestLinks(t *testing.T) {
	checked := 0
	for _, page := range documentation(t) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(readPage(t, page), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			file, fragment, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), file))
			}
			if _, err := os.Stat(filepath.Join(projectDir, target)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
			} else if fragment != "" && !slices.Contains(anchors(readPage(t, target)), fragment) {
				t.Errorf("%s: %s has no heading #%s", page, target, fragment)
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d links were checked", checked)
	}
}

// TestCommandsInDocs checks that each command line on a page names a verb and flags that exist.
func TestCommandsInDocs(t *testing.T) {
	checked := 0
	inline := regexp.MustCompile("`(narwhal [^`]+)`")
	for _, page := range documentation(t) {
		if strings.HasPrefix(page, "docs/cli/") {
			continue // made of the commands themselves
		}
		body := readPage(t, page)
		var whole, named []string
		for _, m := range fenced.FindAllStringSubmatch(body, -1) {
			if m[1] == "sh" {
				whole = append(whole, strings.Split(m[2], "\n")...)
			}
		}
		for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(body, ""), -1) {
			named = append(named, strings.ReplaceAll(m[1], "\n", " "))
		}
		for i, l := range slices.Concat(whole, named) {
			if args := strings.Fields(strings.TrimSpace(l)); len(args) > 1 && args[0] == "narwhal" {
				checked++
				checkCommand(t, page, args[1:], i < len(whole))
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d commands were checked", checked)
	}
}

// checkCommand parses one command line; a whole one must also have the arguments it needs.
func checkCommand(t *testing.T, page string, args []string, whole bool) {
	t.Helper()
	if i := slices.IndexFunc(args, func(a string) bool { return a == "|" || a == "#" }); i >= 0 {
		args = args[:i]
	}
	if slices.Equal(args, []string{"host", "NAME", "REQUEST"}) {
		return // the form of all host verbs
	}
	r := root(&app{out: io.Discard, err: io.Discard})
	r.InitDefaultCompletionCmd()
	r.InitDefaultHelpCmd()
	c, rest, err := r.Find(args)
	switch {
	case err != nil || c == r || !c.Runnable() && len(rest) > 0:
		t.Errorf("%s: narwhal %s: no such verb", page, strings.Join(args, " "))
	case c.ParseFlags(rest) != nil:
		t.Errorf("%s: narwhal %s: %v", page, strings.Join(args, " "), c.ParseFlags(rest))
	case whole && c.ValidateArgs(c.Flags().Args()) != nil:
		t.Errorf("%s: narwhal %s: %v", page, strings.Join(args, " "), c.ValidateArgs(c.Flags().Args()))
	}
}

// TestFleetExample validates the annotated fleet file of docs/fleet-file.md, warnings included.
func TestFleetExample(t *testing.T) {
	for _, m := range fenced.FindAllStringSubmatch(readPage(t, "docs/fleet-file.md"), -1) {
		if m[1] != "cue" {
			continue
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "fleet.cue"), []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		a := &app{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(string) string { return "" }, environ: func() []string { return nil }, dir: dir}
		if code := run(context.Background(), []string{"validate", "--strict", "fleet.cue"}, a); code != 0 {
			t.Errorf("exit %d\n%s%s", code, out.String(), errs.String())
		}
		return
	}
	t.Fatal("docs/fleet-file.md has no example")
}

// TestEnvironmentTable checks that each variable that the code reads by name is in the table.
func TestEnvironmentTable(t *testing.T) {
	read := regexp.MustCompile(`(?:[gG]etenv|LookupEnv|lookup)\("([A-Z_]+)"\)|"(NARWHAL_[A-Z_]+)"`)
	declared := map[string]bool{}
	for _, v := range environment {
		declared[v.Name] = true
	}
	seen := map[string]bool{}
	err := filepath.WalkDir(projectDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasPrefix(filepath.Base(path), "docs") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range read.FindAllStringSubmatch(string(b), -1) {
			name := m[1] + m[2]
			if name == "PATH" || name == "NARWHAL_ENGINE_KEY" || strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(name, "NARWHAL_REQUIRE") {
				continue // the system's, or a test's own
			}
			if seen[name] = true; !declared[name] {
				t.Errorf("%s reads %s, which the table in docs.go lacks", path, name)
			}
		}
		for name := range declared { // by a constant
			seen[name] = seen[name] || strings.Contains(string(b), `= "`+name+`"`)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range declared {
		if !seen[name] {
			t.Errorf("nothing reads %s", name)
		}
	}
}
