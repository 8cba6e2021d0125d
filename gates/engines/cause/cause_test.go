package cause

import (
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// recorded are the blocks of testdata/lines.txt.
func recorded(t testing.TB) (blocks []struct{ code, sure, source, log string }) {
	t.Helper()
	b, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split("\n"+string(b), "\n== ")[1:] {
		head, log, _ := strings.Cut(part, "\n")
		f := strings.SplitN(head, " ", 3)
		blocks = append(blocks, struct{ code, sure, source, log string }{f[0], f[1], f[2], log})
	}
	return blocks
}

func TestRecordedLines(t *testing.T) {
	told := map[string]bool{}
	for _, b := range recorded(t) {
		got := Of(b.log)
		switch {
		case b.code == "none":
			if got != nil {
				t.Errorf("%s: found %+v in the log of an engine that starts", b.source, *got)
			}
		case got == nil:
			t.Errorf("%s: found nothing, want %s", b.source, b.code)
		case got.Code != b.code || got.Sure != (b.sure == "sure"):
			t.Errorf("%s: found %+v, want %s (%s)", b.source, *got, b.code, b.sure)
		}
		told[b.code] = true
	}
	for _, c := range Causes {
		if !told[c.Code] {
			t.Errorf("no recorded line tells %s", c.Code)
		}
	}
}

// TestColours reads the same causes from lines with terminal colours and carriage returns.
func TestColours(t *testing.T) {
	for _, b := range recorded(t) {
		if b.code == "none" {
			continue
		}
		var log strings.Builder
		for line := range strings.Lines(b.log) {
			log.WriteString("\x1b[1;36m" + strings.TrimSuffix(line, "\n") + "\x1b[0m\r\n")
		}
		if got := Of(log.String()); got == nil || got.Code != b.code || strings.ContainsRune(got.Line, '\x1b') {
			t.Errorf("%s: found %+v", b.source, got)
		}
	}
}

func TestCauses(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Causes {
		if seen[c.Code] || c.Says == "" || c.Hint == "" {
			t.Errorf("%+v", c)
		}
		seen[c.Code] = true
	}
	for _, r := range rules {
		if _, ok := ByCode(r.code); !ok {
			t.Errorf("rule %+v names no cause", r)
		}
		for _, s := range append(append(r.all, r.any...), r.not...) {
			if s != strings.ToLower(s) {
				t.Errorf("%q is not lower case and never matches", s)
			}
		}
	}
}

// TestFirstTellingLine keeps the first sure line, and a possible one only without it.
func TestFirstTellingLine(t *testing.T) {
	got := Of("loading\nPermissionError: [Errno 13] Permission denied: '/x'\nRuntimeError: NIXL is not available\nOSError: [Errno 98] Address already in use\n")
	if got == nil || got.Code != "transfer-missing" || got.Number != 3 || !got.Sure {
		t.Errorf("found %+v", got)
	}
	got = Of("PermissionError: [Errno 13] Permission denied: '/x'\nFileNotFoundError: [Errno 2] No such file or directory: '/y'")
	if got == nil || got.Code != "permission" || got.Number != 1 || got.Sure {
		t.Errorf("found %+v", got)
	}
}

// TestSecretsStayOut masks what looks like a credential in the telling line.
func TestSecretsStayOut(t *testing.T) {
	for _, line := range []string{
		"vllm: error: unrecognized arguments: --api-key planted-value-77 --x",
		"vllm: error: unrecognized arguments: --api-key=planted-value-77",
		"vllm: error: unrecognized arguments: hf_plantedvalue77abcdef",
		"401 Client Error: https://user:planted-value-77@example.org/x",
		"401 Client Error: Authorization: Bearer planted-value-77",
		`401 Client Error {"token": "planted-value-77"}`,
		"401 Client Error eyJhbGciOiJIUzI1NiJ9.planted-value-77",
	} {
		got := Of(line)
		if got == nil || strings.Contains(got.Line, "planted") {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

// TestHostileLogs bounds what any log costs and shows.
func TestHostileLogs(t *testing.T) {
	for name, log := range map[string]string{
		"one line of 32 MiB":          strings.Repeat("x", 32<<20) + " CUDA out of memory\n",
		"a cause at a line's far end": strings.Repeat("x", maxLine) + "CUDA out of memory\n",
		"nothing":                     "",
		"no text":                     strings.Repeat("\x00\xff\x1b[", 1<<16),
		"marks without an end":        strings.Repeat("ERROR ", 1<<18) + "\n",
		"open brackets":               strings.Repeat("[", 1<<20) + "\n" + strings.Repeat("(EngineCore ", 1<<16),
		"another language":            "erreur : mémoire insuffisante\nDatei oder Verzeichnis nicht gefunden\n",
	} {
		if got := Of(log); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := Of(strings.Repeat("a line\n", 1<<16) + "RuntimeError: CUDA out of memory. " + strings.Repeat("é", 4000)); got == nil || got.Number != 1<<16+1 || len(got.Line) > maxShown+len("…") || !utf8.ValidString(got.Line) {
		t.Errorf("found %+v", got)
	}
}

// TestPieces finds the same whatever the pieces in which a log arrives.
func TestPieces(t *testing.T) {
	blocks := recorded(t)
	rapid.Check(t, func(t *rapid.T) {
		log := blocks[rapid.IntRange(0, len(blocks)-1).Draw(t, "block")].log
		var r Reader
		for rest := log; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			_, _ = r.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		_ = r.Close()
		whole, got := Of(log), r.Found()
		if (whole == nil) != (got == nil) || whole != nil && *whole != *got {
			t.Fatalf("in pieces %+v, whole %+v", got, whole)
		}
	})
}

func FuzzOf(f *testing.F) {
	for _, b := range recorded(f) {
		f.Add(b.log)
	}
	f.Fuzz(func(t *testing.T, log string) {
		got := Of(log)
		if got == nil {
			return
		}
		if _, ok := ByCode(got.Code); !ok || !utf8.ValidString(got.Line) || len(got.Line) > maxShown+len("…") || strings.ContainsFunc(got.Line, unicode.IsControl) {
			t.Errorf("found %+v", *got)
		}
	})
}
