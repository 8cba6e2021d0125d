package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is printed holds nothing that a terminal acts on, and JSON stays the same value.
func TestShown(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.String().Draw(rt, "text")
		out := string(shown([]byte(s)))
		if strings.ContainsFunc(out, steers) {
			rt.Fatalf("%q became %q", s, out)
		}
		b, err := json.Marshal(s)
		if err != nil {
			rt.Fatal(err)
		}
		var back string
		if err := json.Unmarshal(shown(b), &back); err != nil || back != s {
			rt.Fatalf("%q came back as %q, %v", s, back, err)
		}
	})
	for in, want := range map[string]string{"plain\ttext\n": "plain\ttext\n", "\x1b[2J": `\u001b[2J`, "a\rb": `a\u000db`, "\u202e": `\u202e`, "\u009b": `\u009b`, "\x9b": "\ufffd",
		"\U000e0001": `\udb40\udc01`, "äöü 鯨": "äöü 鯨"} {
		if got := string(shown([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// Names of a fleet file reach no terminal as they are, whichever verb speaks of them.
func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	const esc = "\\u001b]0;owned\\u0007\\u202e\\nnarwhal: error: forged"
	engine := func(iid, url string) string { return `{"iid":"` + iid + `","url":"` + url + `"}` }
	doc := func(model, engines, more string) string {
		return `{"schema":"narwhal.fleet","schema_version":2,"model":"` + model + `","slo":{"ttft_s":1,"tpot_s":0.1},"engines":[` + engines + `]` + more + `}`
	}
	good := engine("a", "http://127.0.0.1:1")
	for name, text := range map[string]string{
		"model": doc("m"+esc, good, ""), "iid": doc("m", engine("a"+esc, "http://127.0.0.1:1"), ""), "iid twice": doc("m", engine("a"+esc, "http://h:1")+","+engine("a"+esc, "http://h:2"), ""),
		"url": doc("m", engine("a", "http://h"+esc), ""), "scheme": doc("m", engine("a", esc+"://h"), ""), "key": doc("m", good, `,"x`+esc+`":1`),
		"role": doc("m", `{"iid":"a","url":"http://h:1","role":"`+esc+`"}`, ""), "profiles": doc("m", good, `,"profiles":{"path":"p`+esc+`"}`),
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"validate", file}, {"validate", "--effective", file}, {"validate", "--format", "json", file}, {"validate", "--format", "sarif", file},
			{"validate", "--format", "github", file}, {"serve", "--check", "-f", file}, {"gate", "plan", "-f", file}, {"gate", "status", "-f", file}, {"bundle", "collect", "-f", file}} {
			var out, errs bytes.Buffer
			a := &app{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(string) string { return "" }, environ: func() []string { return nil }, dir: dir}
			run(context.Background(), append(args, "--state", dir), a)
			if all := out.String() + errs.String(); strings.ContainsFunc(all, steers) || strings.Contains("\n"+all, "\nnarwhal: error: forged") {
				t.Errorf("%s, %v: %q", name, args, all)
			}
		}
	}
}
