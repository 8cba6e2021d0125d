package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// listing is the names and texts below a folder; what is no regular file shows its mode.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		out.WriteString(path + " " + e.Type().String())
		if e.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out.Write(append([]byte(" "), b...))
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A router writes over nothing but what a router wrote: neither the named file nor a lock
// beside it is touched.
func TestServeWritesOverNothingForeign(t *testing.T) {
	p := newPlainFleet(t)
	at := func(name string) string { return filepath.Join(p.dir, name) }
	for name, text := range map[string]string{"notes.txt": "important", "held.json.lock": "important", "j.jsonl.next": "important", "l.json.alive": "important", "tenants.json": "important",
		"empty-lease.json": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link.json": "notes.txt", "fleet-link.json": "fleet.json", "here": "."} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(p.fleet, at("hard.json")); err != nil {
		t.Fatal(err)
	}
	before := listing(t, p.dir)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a text file":                 {[]string{"--state-path", at("notes.txt")}, "holds something else"},
		"a link to a text file":       {[]string{"--state-path", at("link.json")}, "holds something else"},
		"a pipe":                      {[]string{"--state-path", at("pipe")}, "no regular file"},
		"a folder":                    {[]string{"--state-path", p.dir}, "no regular file"},
		"a foreign lock":              {[]string{"--state-path", at("held.json")}, "held.json.lock"},
		"the fleet file":              {[]string{"--state-path", p.fleet}, "the fleet file"},
		"the fleet file, dotted":      {[]string{"--state-path", p.dir + "/x/../fleet.json"}, "the fleet file"},
		"the fleet file by a link":    {[]string{"--state-path", at("fleet-link.json")}, "the fleet file"},
		"the fleet file by a folder":  {[]string{"--state-path", at("here/fleet.json")}, "the fleet file"},
		"the fleet file's other name": {[]string{"--state-path", at("hard.json")}, "the fleet file"},
		"the profiles":                {[]string{"--state-path", at("profiles.json")}, "the profiles"},
		"the journal":                 {[]string{"--journal", at("x"), "--state-path", at("x")}, "the journal"},
		"a file of the journal":       {[]string{"--journal", at("j2.jsonl"), "--state-path", at("j2-20260102T030405.000000Z.jsonl")}, "the journal"},
		"the tenants":                 {[]string{"--tenants", at("tenants.json"), "--state-path", at("tenants.json")}, "the file of tenants"},
		"the lease":                   {[]string{"--lease-path", at("x"), "--state-path", at("x")}, "the lease"},
		"the lease's lock":            {[]string{"--lease-path", at("x"), "--state-path", at("x.lock")}, "one file"},
		"the control token":           {[]string{"--control-token", "file:" + at("notes.txt"), "--journal", at("notes.txt")}, "the control token"},
		"the lease is a text file":    {[]string{"--lease-path", at("notes.txt"), "--state-path", at("s")}, "holds something else"},
		"the lease is empty":          {[]string{"--lease-path", at("empty-lease.json"), "--state-path", at("s")}, "empty"},
		"the lease is a pipe":         {[]string{"--lease-path", at("pipe"), "--state-path", at("s")}, "no regular file"},
		"the lease's life is foreign": {[]string{"--lease-path", at("l.json"), "--state-path", at("s")}, "l.json.alive"},
		"the lease is the fleet":      {[]string{"--lease-path", p.fleet, "--state-path", at("s")}, "the fleet file"},
		"the journal is a text file":  {[]string{"--journal", at("notes.txt")}, "is no narwhal journal"},
		"the journal is the fleet":    {[]string{"--journal", p.fleet}, "the fleet file"},
		"the journal's next file":     {[]string{"--journal", at("j.jsonl")}, "j.jsonl.next"},
		"the journal's old file":      {[]string{"--journal", at("j3.jsonl"), "--lease-path", at("j3-20260102T030405.000000Z.jsonl")}, "the journal"},
	} {
		for _, check := range []bool{false, true} {
			args := append([]string{"--listen", "127.0.0.1:0"}, c.args...)
			if check {
				args = append(args, "--check")
			}
			r := finish(t, p.command(args...))
			if r.code != 2 || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, "hint: ") {
				t.Errorf("%s, check %v: exit %d\n%s", name, check, r.code, r.err)
			}
		}
		if after := listing(t, p.dir); after != before {
			t.Fatalf("%s: changed\n%s\nto\n%s", name, before, after)
		}
	}
}

// A link to a state file, or to none yet, is followed: the link stays.
func TestServeFollowsALinkToItsState(t *testing.T) {
	p := newPlainFleet(t)
	at := filepath.Join(p.dir, "link.json")
	if err := os.Symlink("kept.json", at); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd, _ := p.serve("--state-path", at)
		await(t, "the state file", func() bool {
			b, err := os.ReadFile(filepath.Join(p.dir, "kept.json"))
			return err == nil && strings.Contains(string(b), "narwhal.handoff")
		})
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if st, err := os.Lstat(at); err != nil || st.Mode()&os.ModeSymlink == 0 {
			t.Fatalf("the link is now %v, %v", st, err)
		}
	}
}
