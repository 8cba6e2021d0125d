package answer

import (
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestRead(t *testing.T) {
	s, err := Read([]byte("noise\n== a\n one \x1b[1;31mred\x1b[0m\n\x1b[4mGPU0\tGPU1\x1b[0m\n== files\n keep \x1b[1m\n== end\n"), "files")
	if err != nil || s.At("a", 0) != "one red" || s.At("a", 1) != "GPU0\tGPU1" || s.At("files", 0) != " keep \x1b[1m" || s.At("a", 9) != "" || s.At("none", 0) != "" {
		t.Errorf("%q, %v", s, err)
	}
	for name, in := range map[string]string{
		"cut off": "== a\nx", "stands twice": "== a\n== a\n== end\n", "more than": "== a\n" + strings.Repeat("\n", MaxLines+1), "too long": "== a\n" + strings.Repeat("x", MaxLine+1),
	} {
		if _, err := Read([]byte(in)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "\x1b[31mred\x1b[0m": "red", "\x1b": "", "\x1b[": "", "\x1b[12;": "", "a\x1b]0;t\ab": "a0;tb", "\x9b1mx\xff": "1mx", "é\u202e": "é", "a\tb\x00": "a\tb",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func TestExit(t *testing.T) {
	for in, want := range map[string]int{"a\n-- status 0": 0, "-- status 127": 127, "a": -1, "": -1, "-- status x": -1, "-- status -1": -1, "-- status 999": -1} {
		lines := strings.Split(in, "\n")
		before, got := Exit(lines)
		if got != want || got >= 0 && slices.ContainsFunc(before, func(s string) bool { return strings.HasPrefix(s, "--") }) {
			t.Errorf("%q: %v %d", in, before, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("== a\nb\n-- status 1\n== end\n"))
	f.Add([]byte("== a\n\x1b[31m\x1b[\n== end"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Read(b)
		if err != nil {
			if len(err.Error()) > 300 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		for _, lines := range s {
			Exit(lines)
			for _, l := range lines {
				if strings.ContainsFunc(l, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
					t.Errorf("control characters in %q", l)
				}
			}
		}
	})
}
