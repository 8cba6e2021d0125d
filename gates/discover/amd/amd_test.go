package amd

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/narwhal-fleet/narwhal/gates/discover/answer/answertest"
)

func TestParse(t *testing.T) {
	agents := ParseRocminfo(answertest.Recorded(t, "rocminfo-mi300x.txt"))
	if len(agents) != 2 || agents[0] != (Agent{2, "gfx942", "AMD Instinct MI300X", "GPU-4aea18fa6b8cc436", 6912, 196592}) {
		t.Errorf("%+v", agents)
	}
	if n := ParseKFD(answertest.Recorded(t, "kfd-mi210.txt")); len(n) != 1 || n[0].Bus != "0000:63:00.0" || n[0].Render != 128 || n[0].UUID != "GPU-1901ead3a2ecd4a6" {
		t.Errorf("%+v", n)
	}
	if n := ParseKFD(answertest.Recorded(t, "kfd-mi100.txt")); len(n) != 1 || n[0].Bus != "0000:23:00.0" || n[0].ID != 0 || n[0].Target != 90008 {
		t.Errorf("%+v", n)
	}
	for _, bad := range []string{"", "node", "node x", "node -1\nsimd_count 4\nlocation_id 9", "simd_count 4\nlocation_id 9", "node 1\nsimd_count 4\nlocation_id 99999999999999999999999", "node 1\nsimd_count 4\nlocation_id 65536"} {
		if n := ParseKFD(answertest.Lines(bad)); len(n) != 0 {
			t.Errorf("%q is %+v", bad, n)
		}
	}
	for _, bad := range []string{"", "ROCk module is NOT loaded, possibly no GPU devices", "Agent 1\nDevice Type: GPU", "Agent 1\nBDFID: 9", "Agent 1\nDevice Type: GPU\nBDFID: -3"} {
		if a := ParseRocminfo(answertest.Lines(bad)); len(a) != 0 {
			t.Errorf("%q is %+v", bad, a)
		}
	}
}

func TestMatch(t *testing.T) {
	agents := ParseRocminfo(answertest.Recorded(t, "rocminfo-mi300x.txt"))
	kfd := strings.Join(answertest.Recorded(t, "kfd-mi300x.txt"), "\n")
	for name, c := range map[string]struct {
		agents []Agent
		kfd    string
		gpus   int
		says   string
	}{
		"both":                   {agents, kfd, 2, ""},
		"a node less":            {agents, strings.Split(kfd, "node 3")[0], 1, "has 0 nodes"},
		"an agent less":          {agents[:1], kfd, 1, "node 3 (0000:3d:00.0) of /sys/class/kfd is no agent"},
		"no render node":         {agents, strings.Replace(kfd, "drm_render_minor 136", "drm_render_minor 0", 1), 1, "has no render node"},
		"another card":           {agents, strings.Replace(kfd, "unique_id 5398154567182238774", "unique_id 7", 1), 1, "has 0 nodes"},
		"two nodes of a place":   {agents, strings.Replace(strings.ReplaceAll(kfd, "unique_id", "x"), "15616", "6912", 1), 0, "has 2 nodes"},
		"told apart by identity": {agents[:1], strings.Replace(kfd, "15616", "6912", 1), 1, "node 3"},
	} {
		gpus, problems := Match(c.agents, ParseKFD(answertest.Lines(c.kfd)))
		if len(gpus) != c.gpus || (c.says == "") != (len(problems) == 0) || !strings.Contains(strings.Join(problems, "; "), c.says) {
			t.Errorf("%s: %+v, %q", name, gpus, problems)
		}
	}
	gpus, _ := Match(agents, ParseKFD(answertest.Lines(kfd)))
	if gpus[1] != (GPU{"AMD Instinct MI300X", "gfx942", "GPU-4433d1eb3b9cb502", "0000:3d:00.0", "/dev/dri/renderD136", 196592}) {
		t.Errorf("%+v", gpus[1])
	}
}

func FuzzParse(f *testing.F) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) < 4 {
		f.Fatal(names, err)
	}
	for _, n := range names {
		f.Add(strings.Join(answertest.Recorded(f, filepath.Base(n)), "\n"))
	}
	f.Fuzz(func(t *testing.T, s string) {
		agents, nodes := ParseRocminfo(answertest.Lines(s)), ParseKFD(answertest.Lines(s))
		gpus, problems := Match(agents, nodes)
		if len(gpus) > len(agents) || len(gpus) > len(nodes) || len(problems) > len(agents)+len(nodes) {
			t.Errorf("%d agents, %d nodes, %d GPUs", len(agents), len(nodes), len(gpus))
		}
		if text := fmt.Sprint(agents, nodes, gpus, problems); strings.ContainsFunc(strings.ReplaceAll(text, "\t", ""), unicode.IsControl) {
			t.Errorf("control characters in %q", text)
		}
	})
}
