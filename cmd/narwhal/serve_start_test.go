package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every numeric flag has a row in the table of ranges, and a default within it.
func TestRangesAreComplete(t *testing.T) {
	named := map[string]limits{}
	for _, l := range ranges {
		if _, twice := named[l.flag]; twice || l.least > l.most {
			t.Errorf("--%s: %+v", l.flag, l)
		}
		named[l.flag] = l
	}
	seen := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			v, ok := number(f)
			if !ok {
				return
			}
			seen[f.Name] = true
			l, there := named[f.Name]
			unset := strings.Contains(f.Usage, "(default: ") // the zero of such a flag is no value
			if !there || !unset && (v < l.least || v > l.most) {
				t.Errorf("%s --%s, default %g: %+v", c.CommandPath(), f.Name, v, l)
			}
		})
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(root(&app{out: io.Discard, err: io.Discard}))
	for name := range named {
		if !seen[name] {
			t.Errorf("no verb has --%s", name)
		}
	}
}

// edit rewrites the fleet file of a plain fleet.
func (p *plainFleet) edit(change func(doc map[string]any)) {
	p.t.Helper()
	var doc map[string]any
	b, err := os.ReadFile(p.fleet)
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	change(doc)
	if b, err = json.Marshal(doc); err == nil {
		err = os.WriteFile(p.fleet, b, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// What --check lets pass can be served: an address of an engine is judged by one rule.
func TestCheckJudgesAddresses(t *testing.T) {
	p := newPlainFleet(t)
	for _, url := range []string{"http://u:secret@127.0.0.1:1", "http://127.0.0.1:1?a=b", "http://127.0.0.1:1#f", "ftp://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1:0",
		"http://127.0.0.1:99999", "http://127.0.0.1:1/a b", "http://", ""} {
		p.edit(func(doc map[string]any) { doc["engines"].([]any)[0].(map[string]any)["url"] = url })
		if v := finish(t, execCommand(p.bin, p.dir, p.dir, "validate", p.fleet)); !strings.Contains(v.err, "engines[0].url") {
			t.Errorf("%q: validate says %s", url, v.err)
		}
		r := finish(t, p.command("--check"))
		if r.code != 2 || !strings.Contains(r.err, `engine "p0": url `) || strings.Contains(r.err, "secret") {
			t.Errorf("%q: exit %d\n%s", url, r.code, r.err)
		}
	}
	p.edit(func(doc map[string]any) {
		doc["engines"].([]any)[0].(map[string]any)["url"] = "http://127.0.0.1:1/prefix/"
	})
	if r := finish(t, p.command("--check")); r.code != 0 {
		t.Errorf("a prefix: exit %d\n%s", r.code, r.err)
	}
}

// serve warns of what validate warns of.
func TestServeWarnsAsValidateDoes(t *testing.T) {
	p := newPlainFleet(t)
	b, err := os.ReadFile(p.fleet)
	if err != nil {
		t.Fatal(err)
	}
	twice := strings.Replace(string(b), `"model":`, `"model": "other",\n"model":`, 1)
	if err := os.WriteFile(p.fleet, []byte(strings.ReplaceAll(twice, `\n`, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	v := finish(t, execCommand(p.bin, p.dir, p.dir, "validate", p.fleet))
	r := finish(t, p.command("--check"))
	if r.code != 0 || !strings.Contains(r.err, "[duplicate-key]") || v.err != r.err {
		t.Errorf("exit %d\nserve    %s\nvalidate %s", r.code, r.err, v.err)
	}
}

// The folders of a router's files are made; one that cannot be is named.
func TestServeMakesFolders(t *testing.T) {
	p := newPlainFleet(t)
	p.serve("--journal", filepath.Join(p.dir, "new", "folder", "j.jsonl"))
	info, err := os.Stat(filepath.Join(p.dir, "new", "folder"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	r := finish(t, p.command("--journal", filepath.Join(p.fleet, "j.jsonl"), "--state-path", filepath.Join(p.dir, "s.json")))
	if r.code != 4 || !strings.Contains(r.err, "make the folder of the journal") || !strings.Contains(r.err, "--journal") {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
}

// A state file belongs to one router, although each has a journal of its own.
func TestOneRouterAStateFile(t *testing.T) {
	p := newPlainFleet(t)
	first, _ := p.serve()
	args := []string{"--listen", "127.0.0.1:0", "--journal", filepath.Join(p.dir, "b.jsonl")}
	r := finish(t, p.command(args...))
	if r.code != 5 || !strings.Contains(r.err, "state.json is held by process") || !strings.Contains(r.err, "--state-path") {
		t.Errorf("second: exit %d\n%s", r.code, r.err)
	}
	p.serve("--journal", filepath.Join(p.dir, "c.jsonl"), "--state-path", filepath.Join(p.dir, "c.json"))
	_ = first.Process.Kill()
	_ = first.Wait()
	p.serve("--journal", filepath.Join(p.dir, "b.jsonl"))
}

// A router that finds the lease taken says so, and by whom, instead of that it serves.
func TestFencedAtStart(t *testing.T) {
	p := newPlainFleet(t)
	lease := filepath.Join(p.dir, "lease.json")
	p.serve("--lease-path", lease, "--router-id", "alpha")
	cmd := p.command("--listen", "127.0.0.1:0", "--lease-path", lease, "--router-id", "beta", "--journal", filepath.Join(p.dir, "b.jsonl"), "--state-path", filepath.Join(p.dir, "b.json"))
	var errs outputSoFar
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	await(t, "the second router to speak", func() bool { return strings.Contains(errs.String(), "narwhal standby --of") })
	if s := errs.String(); !strings.Contains(s, "narwhal: fenced, not serving tern-tiny on 127.0.0.1:") || !strings.Contains(s, "held by alpha:") || servingOn.MatchString(s) {
		t.Errorf("it says %s", s)
	}
}
