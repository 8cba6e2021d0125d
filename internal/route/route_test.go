package route

import (
	"net"
	"strings"
	"testing"
)

func TestLoopback(t *testing.T) {
	iface, src := Via("127.0.0.1")
	if src != "127.0.0.1" {
		t.Fatalf("source %q over %q", src, iface)
	}
	i, err := net.InterfaceByName(iface)
	if err != nil || i.Flags&net.FlagLoopback == 0 {
		t.Errorf("interface %q, %v", iface, err)
	}
	if got := Towards(Sys, "127.0.0.1").Route; got != iface+" 127.0.0.1" {
		t.Errorf("route %q", got)
	}
	// Another address of the same network has no interface of its own, and is still loopback.
	if got := Towards(Sys, "127.1.2.3").Route; !strings.HasPrefix(got, iface+" ") {
		t.Errorf("route %q", got)
	}
	if MTU(iface) != i.MTU {
		t.Errorf("MTU %d, want %d", MTU(iface), i.MTU)
	}
}

func TestOwnAddresses(t *testing.T) {
	list, err := net.Interfaces()
	if err != nil {
		t.Skip(err)
	}
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok || n.IP.IsLinkLocalUnicast() {
				continue
			}
			if _, src := Via(n.IP.String()); src != n.IP.String() {
				t.Errorf("the way to %s itself starts at %q", n.IP, src)
			}
		}
	}
}

func TestUnknown(t *testing.T) {
	for _, dst := range []string{"fe80::1%no-such-interface", "a:b:c"} {
		if got := Towards(Sys, dst).Route; got != "unknown" {
			t.Errorf("%q: %q", dst, got)
		}
	}
	if MTU("no-such-interface") != 0 {
		t.Error("an interface that is not there has an MTU")
	}
}
