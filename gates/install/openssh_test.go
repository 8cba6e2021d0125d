package install

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/fleet/remote/netns"
)

// TestLockEndsWithItsConnection: on a host with OpenSSH the lock's owner is the process that
// serves the connection, from one command to the next, and not longer.
func TestLockEndsWithItsConnection(t *testing.T) {
	h := netns.Up(t, 1)[0]
	f := fleet.Fleet{Deploy: &fleet.Deploy{Hosts: map[string]fleet.Host{h.ID: h.Fleet("root")}}}
	open := func() *remote.Host {
		cfg, err := remote.FromFleet(f, h.ID, nil)
		must(t, err)
		c, err := remote.Open(t.Context(), cfg, remote.Options{ConnectTimeout: 20 * time.Second})
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	root := filepath.Join(h.RootHome, "narwhal")
	lock := func(c *remote.Host, holder string) answer {
		t.Helper()
		res, err := c.Run(t.Context(), remote.Command{Script: lockProbe(root, viewOf(holder)), Limit: 20 * time.Second})
		must(t, err)
		a, whole := readAnswer(res.Stdout)
		if !whole {
			t.Fatalf("answer %q", res.Stdout)
		}
		return a
	}
	first, second := open(), open()
	if a := lock(first, "one"); a.one("state") != "taken" {
		t.Fatalf("got %v", a)
	}
	held := lock(second, "two")
	if held.one("state") != "held" || number(held.one("process")) < 2 || number(held.one("ticks")) < 1 || held.one("from") == "-" {
		t.Fatalf("got %v", held)
	}
	if a := lock(first, "one"); a.one("state") != "again" {
		t.Errorf("got %v", a)
	}
	if a := lock(second, "two"); a.one("state") != "held" || a.one("process") != held.one("process") {
		t.Errorf("the owner was %v and is %v", held, a)
	}
	must(t, first.Close())
	for until := time.Now().Add(20 * time.Second); ; {
		a := lock(second, "two")
		if a.one("state") == "over" {
			if a.one("why") != "its connection has ended" || a.one("process") != held.one("process") {
				t.Errorf("got %v", a)
			}
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the lock outlives its connection: %v", a)
		}
	}
	if a := lock(open(), "one"); a.one("state") != "held" {
		t.Errorf("got %v", a)
	}
}
