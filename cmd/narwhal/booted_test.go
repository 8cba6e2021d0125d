package main

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/booted"
	"github.com/narwhal-fleet/narwhal/internal/freeport"
)

// bootedHost is a host with systemd.
type bootedHost struct {
	*booted.Host
	dir  string
	port int
}

func needSystemd(t *testing.T) { t.Helper(); booted.Need(t) }

func boot(t *testing.T, public string) *bootedHost {
	t.Helper()
	h := booted.Boot(t, public)
	return &bootedHost{h, h.Dir, h.Port}
}

func (b *bootedHost) write(name, text string)            { b.Write(name, text) }
func (b *bootedHost) start()                             { b.Start() }
func (b *bootedHost) run(argv ...string) (string, error) { return b.Run(argv...) }
func (b *bootedHost) cut()                               { b.Cut() }

func freePort(t *testing.T) int {
	t.Helper()
	ports, err := freeport.Draw(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}
