package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/narwhal-fleet/narwhal/gates/discover/answer/answertest"
)

// recorded are the lines of a recorded answer, as a section holds them.
func val(p *int64) string {
	if p == nil {
		return "?"
	}
	return fmt.Sprint(*p)
}

func TestParseTable(t *testing.T) {
	h := ParseTable(answertest.Recorded(t, "query-h100.csv"))
	if len(h.GPUs) != 3 || len(h.Said) != 0 {
		t.Fatalf("%+v", h)
	}
	g := h.GPUs[0]
	if g.Index != 0 || g.Bus != "0000:18:00.0" || g.Name != "NVIDIA H100 80GB HBM3" || g.MemoryMiB != 81559 || g.Driver != "550.54.15" || g.Persistence != On || g.Compute != "Default" ||
		g.MIG != Off || g.ECC != On || val(g.Uncorrected) != "0" || val(g.PowerW) != "88" || val(g.LimitW) != "700" || val(g.Celsius) != "28" || *g.Reasons != 1 || g.Faults != nil {
		t.Errorf("%+v", g)
	}
	if g := h.GPUs[1]; g.Persistence != Off || g.MIG != On || val(g.Uncorrected) != "3" || val(g.Width) != "8" || !slices.Equal(Slowdowns(*g.Reasons), []string{"hardware thermal slowdown", "hardware slowdown"}) {
		t.Errorf("%+v", g)
	}
	if g := h.GPUs[2]; g.MIG != None || g.ECC != Unknown || g.Uncorrected != nil || g.Reasons != nil || len(g.Faults) != 3 {
		t.Errorf("%+v", g)
	}
	if o := ParseTable(answertest.Recorded(t, "query-466.csv")); len(o.GPUs) != 1 || o.GPUs[0].Persistence != Unknown || o.GPUs[0].MIG != Unknown || o.GPUs[0].Uncorrected != nil {
		t.Errorf("columns that were not asked for: %+v", o)
	}
}

func TestParseTableRefuses(t *testing.T) {
	good := strings.Join(answertest.Recorded(t, "query-h100.csv"), "\n")
	for name, c := range map[string]struct {
		in         string
		gpus, said int
	}{
		"nothing":                {"", 0, 0},
		"a message":              {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 0, 1},
		"an unknown field":       {`Field "clocks_event_reasons.active" is not a valid field to query.`, 0, 1},
		"no devices":             {"No devices were found", 0, 1},
		"a lost GPU before":      {strings.Join(answertest.Recorded(t, "lost.txt"), "\n") + "\n" + good, 3, 1},
		"no header":              {good[strings.Index(good, "\n")+1:], 0, 3},
		"another first column":   {strings.Join(answertest.Recorded(t, "query-471.csv"), "\n"), 0, 2},
		"no UUID":                {strings.Join(answertest.Recorded(t, "query-laptop.csv"), "\n"), 0, 1},
		"a cut row":              {good[:strings.LastIndex(good, ", [N/A]")], 2, 1},
		"a hostile index":        {strings.Replace(good, "\n0, GPU", "\n-1, GPU", 1), 2, 1},
		"a huge index":           {strings.Replace(good, "\n0, GPU", "\n99999999999999999999, GPU", 1), 2, 1},
		"a UUID with a command":  {strings.Replace(good, "GPU-6f1c1b1e-0000-4c5e-9d5e-000000000001", "GPU-$(reboot)", 1), 2, 1},
		"more rows than devices": {good + strings.Repeat("\n"+strings.Split(good, "\n")[1], 400), 256, maxSaid},
	} {
		got := ParseTable(answertest.Lines(c.in))
		if len(got.GPUs) != c.gpus || len(got.Said) != c.said {
			t.Errorf("%s: %d GPUs, said %q", name, len(got.GPUs), got.Said)
		}
	}
	// Words of another language are no state, whatever they mean.
	local := ParseTable(answertest.Lines(strings.ReplaceAll(good, "Enabled", "Aktiviert")))
	if g := local.GPUs[0]; g.Persistence != Unknown || g.ECC != Unknown {
		t.Errorf("%+v", g)
	}
}

func TestParseLinks(t *testing.T) {
	v := ParseLinks(answertest.Recorded(t, "nvlink-v100.txt"))
	if len(v) != 1 || len(v[0].Active) != 4 || !slices.Equal(v[0].Inactive, []int{3, 5}) || v[0].GBps != 25 {
		t.Errorf("%+v", v)
	}
	a, g := ParseLinks(answertest.Recorded(t, "nvlink-a100.txt")), ParseLinks(answertest.Recorded(t, "nvlink-gb200.txt"))
	if len(a) != 2 || len(a[0].Active) != 2 || a[0].GBps != 25 || len(g) != 2 || g[1].GBps != 53 || g[1].UUID != "GPU-39ac7bce-e3d6-b426-008e-fa47897c72d5" {
		t.Errorf("%+v %+v", a, g)
	}
	if got := ParseLinks(answertest.Lines("Link 0: 25 GB/s\n" + strings.Join(answertest.Recorded(t, "nvlink-a100.txt"), "\n") + "\nLink 7: en veille\nLink 8: 1 GB/s")); len(got[1].Unknown) != 1 || got[1].GBps != 1 {
		t.Errorf("%+v", got)
	}
}

func TestParseList(t *testing.T) {
	got := ParseList(answertest.Recorded(t, "list-535.txt"))
	if len(got) != 2 || got[1] != (Slice{"GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16", "1g.10gb", "MIG-a25704ba-3a06-5299-a795-fd7cf4d13973"}) {
		t.Errorf("%+v", got)
	}
	if got := ParseList(answertest.Recorded(t, "list-535.txt")[1:]); got != nil {
		t.Errorf("slices of no GPU: %+v", got)
	}
}

func TestParseTopology(t *testing.T) {
	h := ParseTopology(answertest.Recorded(t, "topo-h100.txt"))
	if len(h.Path) != 8 || h.Path["GPU0"]["GPU1"] != "NV6" || h.Path["GPU2"]["NIC2"] != "PIX" || h.Path["GPU2"]["NIC0"] != "SYS" || h.NIC["NIC1"] != "mlx5_1" || h.NUMA["GPU1"] != "1" || h.CPUs["GPU0"] != "6,14,22,30" {
		t.Errorf("%+v", h)
	}
	g := ParseTopology(answertest.Recorded(t, "topo-5090.txt"))
	if g.Path["GPU0"]["GPU1"] != "PHB" || g.NUMA["GPU1"] != "0" || len(g.Path) != 2 {
		t.Errorf("%+v", g)
	}
	m := ParseTopology(answertest.Recorded(t, "topo-mlx4.txt"))
	if m.Path["GPU1"]["mlx4_0"] != "PHB" || m.Path["GPU0"]["GPU7"] != "SYS" || m.CPUs["GPU0"] != "0-9,20-29" || len(m.NUMA) != 0 {
		t.Errorf("%+v", m)
	}
	for _, bad := range []string{"", "Failed to run topology matrix", "GPU0\tX\tSYS\n", "GPU0 GPU1\nGPU0 X\n", "GPU0 GPU1\nGPU0 X WEIT\n"} {
		if got := ParseTopology(answertest.Lines(bad)); len(got.Path) != 0 {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func TestBus(t *testing.T) {
	for in, want := range map[string]string{
		"00000000:18:00.0": "0000:18:00.0", "0000:C1:00.0": "0000:c1:00.0", "00010000:01:00.0": "10000:01:00.0", "0009:01:00.0": "0009:01:00.0", "18:00.0": "", "": "", "../../etc": "",
	} {
		if got := Bus(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	names, err := filepath.Glob("testdata/*.*")
	if err != nil || len(names) < 8 {
		f.Fatal(names, err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, s string) {
		lines := answertest.Lines(s)
		table := ParseTable(lines)
		if len(table.GPUs) > maxGPUs || len(table.Said) > maxSaid {
			t.Errorf("%d GPUs, %d messages", len(table.GPUs), len(table.Said))
		}
		for _, g := range table.GPUs {
			if !uuidRE.MatchString(g.UUID) || g.Index < 0 || g.Bus != "" && Bus(g.Bus) != g.Bus || len(g.Name) > 100 {
				t.Errorf("accepted %+v", g)
			}
		}
		links, slices, topo := ParseLinks(lines), ParseList(lines), ParseTopology(lines)
		if text := fmt.Sprint(table, links, slices, topo); strings.ContainsFunc(strings.ReplaceAll(text, "\t", ""), unicode.IsControl) {
			t.Errorf("control characters in %q", text)
		}
	})
}
