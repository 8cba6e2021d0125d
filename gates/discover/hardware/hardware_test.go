package hardware

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/narwhal-fleet/narwhal/gates/discover/answer/answertest"
)

func TestPCI(t *testing.T) {
	fs := ParsePCI(answertest.Recorded(t, "pci-dgx.txt"))
	if len(fs) != 5 || fs[1].Vendor != "15b3" || fs[4].NUMA != -1 || fs[2].Width != 8 || fs[2].WidthMax != 16 || fs[0].Speed != "32.0 GT/s" {
		t.Fatalf("%+v", fs)
	}
	if g := GPUs(fs); len(g) != 2 || g[1].Address != "0000:2a:00.0" {
		t.Errorf("%+v", g)
	}
	for i, want := range []Apart{SameSwitch, OtherNode, SameNode, UnknownApart} {
		if got := Between(fs[0], fs[i+1]); got != want {
			t.Errorf("GPU and %s: %s, want %s", fs[i+1].Address, got, want)
		}
	}
	for _, bad := range []string{"", "x|y", "0000:18:00.0|0x03|x|||||||", "../../etc|0x030200|0x10de|0x2330|0|16|16|||", strings.Repeat("|", 9)} {
		if got := ParsePCI(answertest.Lines(bad)); len(got) != 0 {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	if n := ParseNodes([]string{"node0 0-31,64-95", "node1 ", "nodex 3", "node-1 4", "node2 $(x)"}); len(n) != 2 || n[0] != (Node{0, "0-31,64-95"}) {
		t.Errorf("%+v", n)
	}
}

func TestRDMA(t *testing.T) {
	r := ParseRDMA(answertest.Recorded(t, "rdma-roce.txt"))
	if len(r) != 2 || r[0].Firmware != "28.42.1000" || r[0].Bus != "0000:1a:00.0" || r[1].NUMA != 1 {
		t.Fatalf("%+v", r)
	}
	if p := r[0].Ports[0]; p.State != "ACTIVE" || p.Phys != "LinkUp" || p.Gbps != 400 || p.Layer != "Ethernet" || p.Net != "eth1" || len(p.GIDs) != 4 || !slices.Equal(p.RoCEv2(), []int{3}) || p.GIDs[3].Address != "192.0.2.11" {
		t.Errorf("%+v", p)
	}
	if p := r[1].Ports[0]; p.State != "DOWN" || p.RoCEv2() != nil {
		t.Errorf("%+v", p)
	}
	if i := ParseRDMA(answertest.Recorded(t, "rdma-ib.txt")); i[0].Ports[0].Layer != "InfiniBand" || i[0].Ports[0].Gbps != 200 {
		t.Errorf("%+v", i)
	}
	for _, bad := range []string{"", "port 1|4: ACTIVE|||Ethernet|", "gid 0|::1|x|", "device ../x|||||", "device a|b"} {
		if got := ParseRDMA(answertest.Lines(bad)); len(got) != 0 {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	if p := ParseRDMA(answertest.Lines("device a|||||\nport 1|aktiv|x|fast|Ethernet|\ngid x|::1||\ngid 1|weg||\ngid 2|0000:0000:0000:0000:0000:0000:0000:0000|RoCE v2|"))[0].Ports[0]; p.State != "" || p.Gbps != 0 || p.GIDs != nil {
		t.Errorf("%+v", p)
	}
}

func TestDevinfo(t *testing.T) {
	if d := ParseDevinfo(answertest.Recorded(t, "devinfo-rxe.txt")); len(d) != 1 || d[0].Ports[0].State != "ACTIVE" || d[0].Ports[0].Layer != "" {
		t.Errorf("%+v", d)
	}
	c := ParseDevinfo(answertest.Recorded(t, "devinfo-cx7.txt"))
	if len(c) != 2 || c[0].Firmware != "28.42.1000" || c[0].Board != "MT_0000000838" || c[0].Ports[0].Layer != "Ethernet" || c[1].Name != "mlx5_3" || c[1].Ports != nil {
		t.Errorf("%+v", c)
	}
	if d := ParseDevinfo(answertest.Recorded(t, "devinfo-down.txt")); d[0].Ports[0].State != "DOWN" {
		t.Errorf("%+v", d)
	}
	b := ParseDevinfo(answertest.Recorded(t, "devinfo-bnxt.txt"))
	if p := b[0].Ports[0]; len(p.GIDs) != 4 || !slices.Equal(p.RoCEv2(), []int{3}) || p.Phys != "LINK_UP" {
		t.Errorf("%+v", b)
	}
	if d := ParseDevinfo(answertest.Lines("No IB devices found")); d != nil {
		t.Errorf("%+v", d)
	}
	if got := Unseen(ParseRDMA(answertest.Recorded(t, "rdma-roce.txt")), c); !slices.Equal(got, []string{"mlx5_12"}) {
		t.Errorf("unseen %v", got)
	}
}

func FuzzParse(f *testing.F) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) < 7 {
		f.Fatal(names, err)
	}
	for _, n := range names {
		f.Add(strings.Join(answertest.Recorded(f, filepath.Base(n)), "\n"))
	}
	f.Fuzz(func(t *testing.T, s string) {
		lines := answertest.Lines(s)
		pci, nodes, rdma, info := ParsePCI(lines), ParseNodes(lines), ParseRDMA(lines), ParseDevinfo(lines)
		for i := range pci {
			if pci[i].NUMA < -1 || !addressRE.MatchString(pci[i].Address) || Between(pci[i], pci[0]) != Between(pci[0], pci[i]) {
				t.Errorf("accepted %+v", pci[i])
			}
		}
		for _, d := range append(slices.Clone(rdma), info...) {
			for _, p := range d.Ports {
				p.RoCEv2()
			}
		}
		Unseen(rdma, info)
		if text := fmt.Sprint(pci, nodes, rdma, info); strings.ContainsFunc(strings.ReplaceAll(text, "\t", ""), unicode.IsControl) {
			t.Errorf("control characters in %q", text)
		}
	})
}
