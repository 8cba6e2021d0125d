package remote

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
)

// userKey is the key that every server of the tests lets in.
func userKey(t testing.TB) (key loopback.Key, path string) {
	t.Helper()
	key, err := loopback.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(path, key.Private, 0o600); err != nil {
		t.Fatal(err)
	}
	return key, path
}

// serve starts a server that ends with the test, with its processes.
func serve(t testing.TB, cfg loopback.Config) *loopback.Server {
	t.Helper()
	if cfg.Root == "" {
		cfg.Root = t.TempDir()
	}
	s, err := loopback.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.KillAll(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// hopTo is the hop to a server with its key pinned.
func hopTo(s *loopback.Server, id, identity string) Hop {
	host, port, _ := net.SplitHostPort(s.Addr())
	n, _ := strconv.Atoi(port)
	line, _ := s.HostKey()
	return Hop{ID: id, InFleet: true, Address: host, Port: n, User: "narwhal", Pins: []string{line},
		Identities: []Identity{{Path: identity, Required: true}}}
}

func connect(t testing.TB, opts Options, hops ...Hop) *Host {
	t.Helper()
	h, err := Open(limited(t), Config{ID: hops[len(hops)-1].ID, Hops: hops}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// one is a server and an open connection to it.
func one(t testing.TB, opts Options) (*loopback.Server, *Host) {
	t.Helper()
	key, path := userKey(t)
	s := serve(t, loopback.Config{Authorized: []string{key.Public}})
	return s, connect(t, opts, hopTo(s, "alpha", path))
}

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func hidden(v string) fleet.Secret { return fleet.NewSecret(v) }

// eventually waits for what another process does.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ended waits for a process that was killed: the signal is sent before the process is gone.
func ended(t testing.TB, pid int) {
	t.Helper()
	eventually(t, "process "+strconv.Itoa(pid)+" ends", func() bool { return !alive(pid) })
}
