package fabric

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// telling are parts of counter names that tell of trouble or of its handling: errors, drops,
// pauses of priority flow control, congestion marks and notifications, retries.
var telling = []string{
	"err", "drop", "discard", "crc", "pause", "ecn", "cnp", "fifo", "missed", "out_of", "retr", "timeout", "nak", "symbol", "link_down", "carrier",
	"watermark", "wait", "overrun", "recovery", "integrity",
}

// damaging are parts of names that rise only when a link is damaged: a cable, a
// transceiver, a port.
var damaging = []string{"crc", "fcs", "symbol", "frame_err", "align", "carrier_err", "carrier_changes", "link_down", "link_error", "integrity", "icrc", "phy_err"}

const maxCounters = 256

// damaged reports whether a rise of the counter means a damaged link.
func damaged(name string) bool { return anyPart(name, damaging) }

func anyPart(name string, parts []string) bool {
	name = strings.ToLower(name)
	for _, p := range parts {
		if strings.Contains(name, p) {
			return true
		}
	}
	return false
}

// counters reads what an interface counts, and the RDMA device above it: the kernel's
// statistics, the driver's (as ethtool -S shows them) and those of InfiniBand ports. sys is
// the root of sysfs.
func counters(sys, iface string) map[string]int64 {
	out := map[string]int64{}
	if iface == "" || iface != filepath.Base(iface) {
		return out
	}
	base := filepath.Join(sys, "class/net", iface)
	folder(out, "", filepath.Join(base, "statistics"))
	keepCounter(out, "carrier_changes", readNumber(filepath.Join(base, "carrier_changes")))
	for name, v := range driverCounters(iface) {
		keepCounter(out, "driver/"+name, v)
	}
	ports, _ := filepath.Glob(filepath.Join(base, "device/infiniband/*/ports/*"))
	for _, p := range ports {
		at := filepath.Base(filepath.Dir(filepath.Dir(p))) + ":" + filepath.Base(p) + "/"
		folder(out, at, filepath.Join(p, "counters"))
		folder(out, at, filepath.Join(p, "hw_counters"))
	}
	return out
}

func folder(out map[string]int64, prefix, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		keepCounter(out, prefix+e.Name(), readNumber(filepath.Join(dir, e.Name())))
	}
}

func keepCounter(out map[string]int64, name string, v int64) {
	if v >= 0 && len(name) <= 96 && len(out) < maxCounters && anyPart(name, telling) {
		out[name] = v
	}
}

// readNumber is −1 for what is no number.
func readNumber(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return -1
	}
	return v
}

// rises are the counters that went up between two looks.
func rises(before, after map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for name, v := range after {
		if was, ok := before[name]; ok && v > was && len(out) < maxCounters {
			out[printable(name, 96)] = v - was
		}
	}
	return out
}
