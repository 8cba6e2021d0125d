package route

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestTowards: the line of a way is another when the link's speed, its MTU or the next hop is.
func TestTowards(t *testing.T) {
	lo, src := Via("127.0.0.1")
	i, err := net.InterfaceByName(lo)
	if err != nil {
		t.Fatal(err)
	}
	sys := t.TempDir()
	at := filepath.Join(sys, "class/net", lo, "speed")
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	plain := fmt.Sprintf("%s %s mtu %d", lo, src, i.MTU)
	for text, want := range map[string]string{
		"100000\n": plain + " speed 100000", "10000\n": plain + " speed 10000", "-1\n": plain, "fast": plain, "": plain,
	} {
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Towards(sys, "127.0.0.1").String(); got != want {
			t.Errorf("a speed of %q: %q, want %q", text, got, want)
		}
	}
	if got := Towards(t.TempDir(), "localhost"); got.Route == unknown || got.MTU != i.MTU {
		t.Errorf("a name: %+v", got)
	}
	if got := Towards(sys, "a:b:c").String(); got != unknown {
		t.Errorf("no address: %q", got)
	}
	lines := map[string]Way{}
	for _, w := range []Way{
		{Route: "eth1 192.0.2.11"}, {Route: "eth1 192.0.2.11", Gateway: "192.0.2.1"}, {Route: "eth1 192.0.2.11", Gateway: "192.0.2.2"},
		{Route: "eth1 192.0.2.11", MTU: 9000}, {Route: "eth1 192.0.2.11", MTU: 1500}, {Route: "eth1 192.0.2.11", SpeedMbps: 9000},
		{Route: "eth1 192.0.2.11", MTU: 9000, SpeedMbps: 9000}, {Route: "eth0 192.0.2.11"},
	} {
		if other, there := lines[w.String()]; there {
			t.Errorf("%+v and %+v are both %q", other, w, w)
		}
		lines[w.String()] = w
	}
}
