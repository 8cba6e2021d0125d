package network

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/narwhal-fleet/narwhal/gates/discover/answer/answertest"
)

func TestLinks(t *testing.T) {
	ls := ParseLinks([]string{"eth1|9000|up|1|400000|full|bond0|0000:1a:00.0|0", "lo|65536|unknown|1||||virtual|", "eth2|1500|down|0|-1|unknown|||-1", "eth3|x|\x07|2|fast|full duplex|a/b||99999", "bad", "|1|up|1||||", "a b|1|up|1|||||"})
	if len(ls) != 4 || ls[0] != (Link{"eth1", 9000, "up", 1, 400000, "full", "bond0", "0000:1a:00.0", 0}) || !ls[0].Up() || !ls[1].Up() || ls[2].Up() || ls[3] != (Link{Name: "eth3", Carrier: -1, NUMA: -1}) || ls[3].Up() {
		t.Errorf("%+v", ls)
	}
	for l, want := range map[Link]bool{{State: "down", Carrier: 1}: true, {State: "down", Carrier: -1}: false, {State: "dormant", Carrier: 1}: false, {State: "lowerlayerdown", Carrier: 1}: false, {State: "unknown", Carrier: 0}: false, {Carrier: 1}: false} {
		if l.Up() != want {
			t.Errorf("%+v is up: %t", l, !want)
		}
	}
	if l, ok := Find(ls, "eth2"); !ok || l.Name != "eth2" {
		t.Error("eth2 is not found")
	}
	if _, ok := Find(ls, "eth9"); ok {
		t.Error("eth9 is found")
	}
}

func TestAddresses(t *testing.T) {
	as := ParseAddresses([]string{"lo inet 127.0.0.1/8", "eth1 inet 192.0.2.11/24", "eth1 inet6 fe80::1/64", "eth1@if3 inet6 2001:db8::11/64", "tun0 inet 10.0.0.1", "x inet weg", "x", "eth1 inet6 fe80::1%eth1",
		`2: eth2    inet 192.0.2.21/24 brd 192.0.2.255 scope global eth2\       valid_lft forever preferred_lft forever`, "3: eth2@if3    inet6 2001:db8::21/64 scope global", "4:", "4: x y z"})
	if len(as) != 7 || Holder(as, netip.MustParseAddr("192.0.2.21")) != "eth2" || Holder(as, netip.MustParseAddr("2001:db8::21")) != "eth2" || Holder(as, netip.MustParseAddr("2001:db8::11")) != "eth1" || Holder(as, netip.MustParseAddr("192.0.2.12")) != "" || Holder(as, netip.MustParseAddr("::ffff:192.0.2.11")) != "eth1" {
		t.Errorf("%+v", as)
	}
	if r := Routable(as); len(r) != 5 || r[0].Net.Addr().String() != "192.0.2.11" {
		t.Errorf("%+v", r)
	}
}

func TestRoutes(t *testing.T) {
	rs := ParseRoutes(answertest.Recorded(t, "route-get.json"))
	r, ok := Way(rs, netip.MustParseAddr("198.51.100.1"))
	if len(rs) != 2 || !ok || r.Dev != "eth1" || r.From.String() != "192.0.2.11" || r.Via.String() != "192.0.2.1" || rs[1].Kind != "local" {
		t.Errorf("%+v", rs)
	}
	if rs := ParseRoutes(answertest.Lines(`[{"type":"unreachable","dst":"192.0.2.9","dev":"lo"}] [{"dst":"192.0.2.8","dev":"a/b"}] [{"dst":"weg"}] [] [{"dst":"192.0.2.7","dev":"eth0"}] RTNETLINK answers: x [{"dst":"192.0.2.6","dev":"eth0"}]`)); len(rs) != 2 || rs[0].Kind != "unreachable" || rs[1].To.String() != "192.0.2.7" {
		t.Errorf("%+v", rs)
	}
	for _, bad := range []string{"", "Object \"-j\" is unknown", "null", "{}", "[[[[[[", strings.Join(answertest.Recorded(t, "route-bad.json"), "")} {
		if rs := ParseRoutes(answertest.Lines(bad)); len(rs) != 0 {
			t.Errorf("%q is %+v", bad, rs)
		}
	}
	if _, ok := Way(rs, netip.MustParseAddr("192.0.2.99")); ok {
		t.Error("an address that nobody asked for has a route")
	}
}

func TestBonds(t *testing.T) {
	for file, want := range map[string]string{
		"bond-lacp-1of2.txt": "no LACP partner answers; member eth0.2 is in aggregator 22, not in the active 21",
		"bond-ubuntu.txt":    "no LACP partner answers",
		"bond-rr.txt":        "",
		"bond-backup.txt":    `member ens1f1 is "down"`,
	} {
		bs := ParseBonds(answertest.Recorded(t, file))
		if len(bs) != 1 {
			t.Fatalf("%s: %+v", file, bs)
		}
		if got := strings.Join(bs[0].Problems(), "; "); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
	healthy := strings.Join(answertest.Recorded(t, "bond-rr.txt"), "\n")
	for name, in := range map[string]string{
		`is ""`: strings.Replace(healthy, "MII Status: up", "MII-Zustand: an", 1), "has no member": strings.Split(healthy, "Slave")[0], "no member is active": strings.Replace(healthy, "load balancing (round-robin)", "fault-tolerance (active-backup)", 1),
		`member eno2 is "going down"`: healthy[:strings.LastIndex(healthy, "MII Status: up")] + "MII Status: going down",
	} {
		if got := strings.Join(ParseBonds(answertest.Lines(in))[0].Problems(), "; "); !strings.Contains(got, name) {
			t.Errorf("%q lacks %q", got, name)
		}
	}
}

func FuzzParse(f *testing.F) {
	names, err := filepath.Glob("testdata/*.*")
	if err != nil || len(names) < 6 {
		f.Fatal(names, err)
	}
	for _, n := range names {
		f.Add(strings.Join(answertest.Recorded(f, filepath.Base(n)), "\n"))
	}
	f.Add("eth1|9000|up|1|400000|full|bond0|0000:1a:00.0|0\neth1 inet 192.0.2.11/24")
	f.Fuzz(func(t *testing.T, s string) {
		lines := answertest.Lines(s)
		links, bonds, addresses, routes := ParseLinks(lines), ParseBonds(lines), ParseAddresses(lines), ParseRoutes(lines)
		for _, b := range bonds {
			b.Problems()
		}
		for _, l := range links {
			if l.MTU < 0 || l.Mbps < 0 || l.Carrier < -1 || l.Carrier > 1 || l.Name == "" {
				t.Errorf("accepted %+v", l)
			}
		}
		for _, a := range Routable(addresses) {
			if !a.Net.IsValid() {
				t.Errorf("accepted %+v", a)
			}
		}
		for _, r := range routes {
			if !r.To.IsValid() {
				t.Errorf("accepted %+v", r)
			}
		}
		if text := fmt.Sprint(links, bonds, addresses, routes); strings.ContainsFunc(strings.ReplaceAll(text, "\t", ""), unicode.IsControl) {
			t.Errorf("control characters in %q", text)
		}
	})
}
