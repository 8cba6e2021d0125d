package process

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

const socketTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31337 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 31338 1 0000000000000000 20 4 30 10 -1
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0000000000000000 100 0 0 10 0
   3: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 41 1 0 100 0 0 10 0
   4: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 42 1 0 100 0 0 10 0
   5: nonsense
   6: 0100007F:1F90 00000000:0000 0A 0 0 0 0 0 notanumber 1
`

func TestReadSockets(t *testing.T) {
	if b := [2]byte{1, 0}; fmt.Sprintf("%x", b) != "0100" {
		t.Skip("the table is of a little-endian machine")
	}
	got, err := readSockets(strings.NewReader(socketTable))
	want := []Socket{
		{netip.MustParseAddrPort("127.0.0.1:8080"), 31337},
		{netip.MustParseAddrPort("0.0.0.0:22"), 99},
		{netip.MustParseAddrPort("[::1]:8080"), 41},
		{netip.MustParseAddrPort("127.0.0.1:80"), 42},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestListening finds this process behind a socket that it opened.
func TestListening(t *testing.T) {
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		t.Skip("needs Linux")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := netip.MustParseAddrPort(l.Addr().String())
	got, err := Listening(addr.Port())
	if err != nil || !slices.ContainsFunc(got, func(s Socket) bool { return s.Addr == addr }) {
		t.Fatalf("got %v, %v", got, err)
	}
	i := slices.IndexFunc(got, func(s Socket) bool { return s.Addr == addr })
	by, _ := Holders([]uint64{got[i].Inode})
	if !slices.Contains(by[got[i].Inode], os.Getpid()) {
		t.Errorf("held by %v, not by %d", by, os.Getpid())
	}
	if by, _ := Holders([]uint64{1}); len(by) != 0 {
		t.Errorf("a socket that is none is held by %v", by)
	}
}

func TestDescends(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs Linux")
	}
	dir := t.TempDir()
	r := start(t, dir, "e", "l", forever)
	if !Descends(r.PID, r.PID) || !Descends(r.PID, os.Getpid()) {
		t.Error("a child does not descend from its parent")
	}
	if Descends(os.Getpid(), r.PID) || Descends(r.PID, 0) || Descends(1<<30, os.Getpid()) {
		t.Error("a stranger descends")
	}
}

func FuzzReadSockets(f *testing.F) {
	f.Add(socketTable)
	f.Fuzz(func(t *testing.T, s string) {
		got, _ := readSockets(strings.NewReader(s))
		for _, x := range got {
			if !x.Addr.Addr().IsValid() || x.Inode == 0 {
				t.Errorf("got %v", x)
			}
		}
	})
}
