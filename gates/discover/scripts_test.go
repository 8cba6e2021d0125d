package discover

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/gates/discover/network"
)

// runHere runs a script on this machine, with folders in front of its search path. What it
// says on standard error is a fault.
func runHere(t *testing.T, shell []string, script string, path ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell[0], append(shell[1:], "-c", script)...)
	cmd.Env = []string{"PATH=" + strings.Join(append(path, os.Getenv("PATH")), ":"), "HOME=" + t.TempDir()}
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		t.Fatalf("%v: %s\n%s", err, complaints.String(), out.String())
	}
	return out.Bytes()
}

// tools writes programs of recorded answers into a folder: by name, shell text.
func tools(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func fixture(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return "'" + abs + "'"
}

// smi answers as a driver that knows the named field and none of the other names for it.
func smi(t *testing.T, knows string) string {
	return `case "$*" in
*--query-gpu=*) case "$*" in
  *` + knows + `*) cat ` + fixture(t, "nvidia/testdata/query-h100.csv") + `;;
  *) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;; esac;;
-L) cat ` + fixture(t, "nvidia/testdata/list-535.txt") + `;;
"nvlink -s") cat ` + fixture(t, "nvidia/testdata/nvlink-a100.txt") + `;;
"topo -m") cat ` + fixture(t, "nvidia/testdata/topo-5090.txt") + `;;
*) exit 9;; esac
`
}

func TestHardwareProbe(t *testing.T) {
	for name, shell := range shells() {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHardware(runHere(t, shell, HardwareProbe()))
			if err != nil || !slices.Equal(h.Absent, []string{"nvidia-smi", "rocminfo"}) || len(h.Trouble) > 0 || len(h.devices()) > 0 {
				t.Errorf("a host without GPUs: %+v, %v", h, err)
			}
			for _, knows := range []string{"clocks_event_reasons", "clocks_throttle_reasons", "mig.mode.current", "compute_mode"} {
				h, err := ParseHardware(runHere(t, shell, HardwareProbe(), tools(t, map[string]string{"nvidia-smi": smi(t, knows)})))
				if err != nil || len(h.NVIDIA.GPUs) != 3 || len(h.Slices) != 2 || len(h.Links) != 2 || h.Topology.Path["GPU0"]["GPU1"] != "PHB" || len(h.Trouble) > 0 {
					t.Errorf("a driver that knows %s: %+v, %v", knows, h, err)
				}
			}
			for text, want := range map[string]string{
				"echo NVIDIA-SMI has failed; exit 9":          "status 9",
				"yes overflow | head -n 9000":                 "says: overflow",
				"exec yes overflow":                           "did not stop printing",
				"printf '\\033[31mFehler\\033[0m\\n'; exit 1": "says: Fehler",
				"head -c 300000 /dev/zero | tr '\\0' x":       "says: xxx",
			} {
				h, err := ParseHardware(runHere(t, shell, HardwareProbe(), tools(t, map[string]string{"nvidia-smi": text})))
				if err != nil || !strings.Contains(strings.Join(h.Trouble, "; "), want) || len(h.devices()) > 0 {
					t.Errorf("%s: %+v, %v", text, h.Trouble, err)
				}
			}
			// One that only KILL ends is a fault of its own, beside what the other tools say.
			deaf := tools(t, map[string]string{"nvidia-smi": "trap '' TERM; while :; do sleep 1; done", "rocminfo": "cat " + fixture(t, "amd/testdata/rocminfo-mi300x.txt")})
			h, err = ParseHardware(runHere(t, shell, hardwareScript(1), deaf))
			if err != nil || !slices.Contains(h.Trouble, "nvidia-smi did not answer in time") || !strings.Contains(strings.Join(h.Trouble, "; "), "has 0 nodes") {
				t.Errorf("one that is deaf: %+v, %v", h.Trouble, err)
			}
			h, err = ParseHardware(runHere(t, shell, HardwareProbe(), tools(t, map[string]string{"rocminfo": "cat " + fixture(t, "amd/testdata/rocminfo-mi300x.txt")})))
			if err != nil || len(h.Trouble) != 2 || !strings.Contains(h.Trouble[0], "has 0 nodes") {
				t.Errorf("agents without nodes: %+v, %v", h.Trouble, err)
			}
		})
	}
}

func TestNetworkProbe(t *testing.T) {
	for name, shell := range shells() {
		t.Run(name, func(t *testing.T) {
			loop := netip.MustParseAddr("127.0.0.1")
			n, err := ParseNetwork(runHere(t, shell, NetworkProbe([]netip.Addr{loop, netip.MustParseAddr("127.0.0.9")})))
			if err != nil {
				t.Fatal(err)
			}
			l, ok := network.Find(n.Links, "lo")
			i, ierr := net.InterfaceByName("lo")
			if !ok || ierr != nil || !l.Up() || l.MTU != i.MTU {
				t.Errorf("loopback %+v of %+v", l, n.Links)
			}
			if _, err := exec.LookPath("ip"); err != nil {
				return
			}
			if r, ok := network.Way(n.Routes, loop); !ok || r.Kind != "local" || network.Holder(n.Addresses, loop) != "lo" {
				t.Errorf("routes %+v, addresses %+v", n.Routes, n.Addresses)
			}
		})
	}
}

func TestImagesProbe(t *testing.T) {
	id, other := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	dir := tools(t, map[string]string{"docker": `case "$*" in *` + id + `) echo '` + id + ` ["r.example/vllm@` + other + `"]';; *) echo 'Error: No such image' >&2; exit 1;; esac`})
	images := []string{"docker " + id, "docker r.example/none@" + other, "podman " + id}
	for name, shell := range shells() {
		got, err := ParseImages(runHere(t, shell, imagesScript(images), dir), images)
		if err != nil || len(got) != 3 || !got[0].Is(id) || !got[0].Is("r.example/vllm@"+other) || got[0].Is(other) || got[1].ID != "" || !strings.Contains(got[1].Why, "No such image") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := exec.LookPath("podman"); err != nil && got[2].Why != "podman is absent" {
			t.Errorf("%s: %+v", name, got[2])
		}
	}
	for _, bad := range []string{"", "== image-0\n" + id + " [\n-- status 0\n== end\n", "== image-0\n" + id + " []\n== end\n", "== end\n"} {
		if got, err := ParseImages([]byte(bad), images[:1]); err == nil && got[0].ID != "" {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}
