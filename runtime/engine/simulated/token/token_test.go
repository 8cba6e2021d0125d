package token

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTextInvertsIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z .,]*[A-Z]?[äé🐋]?[a-z]*`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		if got := Text(IDs(s)); got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

func TestDensity(t *testing.T) {
	s := strings.Repeat("the quick brown fox jumps over the lazy dog. ", 40)
	if n := len(IDs(s)); n < len(s)/5 || n > len(s)/3 {
		t.Fatalf("%d tokens for %d characters", n, len(s))
	}
}

func TestIDsStay(t *testing.T) {
	got := IDs("The import, naïve 🐋")
	if len(got) == 0 || got[0] != 'T' {
		t.Fatal(got)
	}
	for _, id := range got {
		if !Valid(int64(id)) {
			t.Fatal(id)
		}
	}
	if Valid(Size) || Valid(-1) || Size > 999_999 {
		t.Fatal("vocabulary bound")
	}
}

func TestAnswerTokensArePrintable(t *testing.T) {
	seen := map[int32]bool{}
	for v := range uint64(4096) {
		s := Text([]int32{Word(v)})
		if len(s) != 4 || !utf8.ValidString(s) || strings.ContainsAny(s, "\n") {
			t.Fatalf("%q", s)
		}
		seen[Word(v)] = true
		if w := Text([]int32{Symbol(v)}); len(w) < 2 {
			t.Fatalf("%q", w)
		}
	}
	if len(seen) < 1500 {
		t.Fatalf("only %d words", len(seen))
	}
}

func FuzzIDs(f *testing.F) {
	f.Add("hello, world")
	f.Add("\xff\xfeab")
	f.Fuzz(func(t *testing.T, s string) {
		if Text(IDs(s)) != s {
			t.Fatalf("%q", s)
		}
	})
}
