package remote

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/narwhal-fleet/narwhal/fleet"
	"pgregory.net/rapid"
)

func TestPrintableIsPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := printable(string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		if len(s) > 700 || strings.ContainsFunc(s, unicode.IsControl) {
			t.Errorf("%q", s)
		}
	})
	e := &ExitError{Host: "h", Command: "c\x1b[2J", Code: 1, LastLine: lastLine([]byte("first\n\x1b]0;title\x07bad \u202eend\n\n"))}
	if s := e.Error(); strings.ContainsAny(s, "\x1b\x07\u202e") || strings.Contains(s, "first") || !strings.Contains(s, "end") {
		t.Errorf("%q", s)
	}
}

func TestCaptureNeverShowsASecretOrItsBeginning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := "S3CRETVALUE"
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		c := newCapture(limit, map[string]fleet.Secret{"A": fleet.NewSecret(value)})
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{value, "x", "yy", "\n"}), 0, 30).Draw(t, "parts")
		all := strings.Join(parts, "")
		for len(all) > 0 {
			n := rapid.IntRange(1, len(all)).Draw(t, "n")
			if m, err := c.Write([]byte(all[:n])); m != n || err != nil {
				t.Fatal(m, err)
			}
			all = all[n:]
		}
		out, cut := c.bytes()
		if len(out) > limit || strings.Contains(string(out), "S") {
			t.Errorf("limit %d, cut %v: %q", limit, cut, out)
		}
		if whole := strings.Join(parts, ""); cut != (len(whole) > limit) {
			t.Errorf("cut = %v for %d bytes of %d", cut, len(whole), limit)
		}
	})
}

func TestHintKnowsEveryStage(t *testing.T) {
	for _, s := range []Stage{StageResolve, StageConnect, StageHandshake, StageChannel} {
		if Hint(&HopError{Host: "a", Hop: "a", Stage: s, Err: errors.New("x")}) == "" {
			t.Errorf("no hint for stage %s", s)
		}
	}
	if Hint(errors.New("x")) != "" {
		t.Error("a hint for a foreign error")
	}
}
