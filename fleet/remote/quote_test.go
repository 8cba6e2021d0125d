package remote

import (
	"os/exec"
	"strings"
	"testing"
)

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a b", "it's", "'", "''", `\`, "$(id)", "`id`", "\n", "~", "-n", "a=b", "é", "\xff\xfe", "*", "!x", "#"} {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.ContainsRune(a+b, 0) || len(a)+len(b) > 50_000 {
			t.Skip()
		}
		out, err := exec.Command("/bin/sh", "-c", "printf '%s\\0' "+Quote(a, b)).Output()
		if err != nil || string(out) != a+"\x00"+b+"\x00" {
			t.Fatalf("%q %q became %q: %v", a, b, out, err)
		}
		// A line inside a line, as the wrapper is.
		out, err = exec.Command("/bin/sh", "-c", Quote("sh", "-c", "printf '%s\\0' "+Quote(a), "sh")).Output()
		if err != nil || string(out) != a+"\x00" {
			t.Fatalf("nested %q became %q: %v", a, out, err)
		}
	})
}
