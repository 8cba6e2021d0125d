package netns

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

func TestHosts(t *testing.T) {
	hosts := Up(t, 2)
	gate := hosts[2]
	f := fleet.Fleet{Deploy: &fleet.Deploy{Hosts: map[string]fleet.Host{
		"root": hosts[0].Fleet("root"), "user": hosts[1].Fleet(User), GateID: gate.Fleet(User),
		"behind": hosts[1].Behind(GateID, User), "unreachable": hosts[1].Behind("", User),
	}}}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	open := func(id string) (*remote.Host, error) {
		cfg, err := remote.FromFleet(f, id, nil)
		if err != nil {
			return nil, err
		}
		h, err := remote.Open(ctx, cfg, remote.Options{ConnectTimeout: 3 * time.Second})
		if err == nil {
			t.Cleanup(func() { _ = h.Close() })
		}
		return h, err
	}
	for id, want := range map[string]string{
		"root":   "0 " + hosts[0].RootHome,
		"user":   "42042 " + hosts[1].UserHome,
		"behind": "42042 " + hosts[1].UserHome,
	} {
		h, err := open(id)
		if err != nil {
			t.Fatal(id, err)
		}
		res, err := h.Run(ctx, remote.Command{Script: `echo "$(id -u) $HOME"`})
		if err != nil || strings.TrimSpace(string(res.Stdout)) != want {
			t.Errorf("%s: %v %q, want %q", id, err, res.Stdout, want)
		}
	}
	if _, err := open("unreachable"); err == nil {
		t.Error("the inner network is reached without the jump host")
	}

	// Cancel and loss, as root and as an ordinary user.
	for _, id := range []string{"root", "behind"} {
		h, err := open(id)
		if err != nil {
			t.Fatal(err)
		}
		home := map[string]string{"root": hosts[0].RootHome, "behind": hosts[1].UserHome}[id]
		run, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			_, err := h.Run(run, remote.Command{Script: `trap '' TERM; echo $$ >pid; while :; do sleep 1; done`})
			done <- err
		}()
		pid := line(t, filepath.Join(home, "pid"))
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(id, err)
		}
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("%s: process %s lives after a cancel", id, pid)
		}
	}
	h, err := open("root")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	hosts[0].Cut(t)
	_, err = h.Run(ctx, remote.Command{Argv: []string{"sleep", "60"}})
	var lost *remote.LostError
	if !errors.As(err, &lost) || time.Since(began) > 6*time.Second {
		t.Errorf("vanished host: %v after %s", err, time.Since(began))
	}
	hosts[0].Mend(t)
	if _, err := open("root"); err != nil {
		t.Errorf("after the link is mended: %v", err)
	}
}

func line(t *testing.T, path string) string {
	t.Helper()
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(text), "\n") {
			return strings.TrimSpace(string(text))
		}
	}
	t.Fatal(path, "does not appear")
	return ""
}
