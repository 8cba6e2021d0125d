package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedFilesAreNamed: whoever reads a file that is named tells which one is of no use.
func TestDamagedFilesAreNamed(t *testing.T) {
	p := newPlainFleet(t)
	for name, text := range map[string][]byte{"cut.json": []byte("{"), "empty": nil, "huge": bytes.Repeat([]byte("a"), 70<<10), "short": []byte("short"), "stale.samples.json": []byte("{")} {
		if err := os.WriteFile(filepath.Join(p.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tls := "serve -f fleet.json --lease-etcd https://127.0.0.1:1 "
	for _, c := range []struct{ args, says string }{
		{"serve -f fleet.json --check --profiles cut.json", "cut.json: read profile store: unexpected end of JSON input"},
		{"check -f fleet.json --profiles cut.json", "cut.json: read profile store"},
		{"profile -f fleet.json --out cut.json --overwrite", "cut.json: read profile store"},
		{"profile -f fleet.json --out stale.json --overwrite", "stale.samples.json: read samples"},
		{"profile -f fleet.json --out new.json --refit cut.json", "cut.json: read samples"},
		{"profile -f fleet.json --out new.json --merge empty --merge cut.json", "read empty: read profile store"},
		{"serve -f fleet.json --check --tenants cut.json", "cut.json: read tenants file"},
		{"serve -f cut.json --check", "cut.json:1:2"},
		{"serve -f fleet.json --check --control-token file:empty", "empty is empty"},
		{"serve -f fleet.json --check --control-token file:short", "file:short: read control token"},
		{"serve -f fleet.json --check --control-token file:huge", "huge is larger than 64KiB"},
		{"engines drain d0 --control-token file:short", "file:short: read control token"},
		{tls + "--lease-etcd-ca empty", "(empty)"},
		{tls + "--lease-etcd-cert cut.json --lease-etcd-private empty", "(cut.json, empty)"},
		{tls + "--lease-etcd-cert cut.json", "belong together"},
		{tls + "--lease-etcd-user u --lease-etcd-password file:empty", "empty is empty"},
		{"serve -f fleet.json --state-path cut.json --resume", "cut.json: file holds something else than a router's handoff document"},
	} {
		r := finish(t, p.verb(strings.Fields(c.args)...))
		if r.code != 2 || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, "hint: ") && !strings.Contains(c.says, ":1:2") {
			t.Errorf("%s: exit %d, want 2 and %q\n%s", c.args, r.code, c.says, r.err)
		}
	}
}

// TestProfileOfBadFlagsLeavesNothing: what the command line gets wrong is told before a file is made.
func TestProfileOfBadFlagsLeavesNothing(t *testing.T) {
	p := running(t)
	for _, args := range []string{"--decode-concurrency 1", "--prefill-lens 1,2", "--only nobody"} {
		if r := finish(t, p.verb(append([]string{"profile", "-f", p.fleet, "--out", "new.json"}, strings.Fields(args)...)...)); r.code != 2 {
			t.Errorf("%s: exit %d\n%s", args, r.code, r.err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(p.dir, "new*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
