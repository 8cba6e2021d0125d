package discover

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/discover/answer"
)

// Observation is a host as its probe describes it.
type Observation struct {
	OS        string
	Kernel    string
	Machine   string // as uname -m says
	Hostname  string
	Distro    string
	BootID    string
	UID       int
	User      string
	CPUs      int
	CPUModel  string
	MemTotal  int64 // bytes
	MemFree   int64 // bytes available
	HugePages HugePages
	DiskFree  int64 // bytes at the root's file system
	Writable  bool
	Listeners []string // "address:port"
	Runtimes  []string
	Limits    Limits
	Files     []File
}

// File is one of the files named for the host.
type File struct {
	Path   string
	SHA256 string // "" = absent or not hashed
	Stat   string // "size mtime inode", "" = absent or not told
}

// Parse reads a probe's answer. It fails when the answer is cut or lacks what every
// host has.
func Parse(b []byte) (Observation, error) {
	s, err := answer.Read(b, "files")
	if err != nil {
		return Observation{}, err
	}
	o := Observation{
		OS: s.At("os", 0), Kernel: s.At("os", 1), Machine: s.At("os", 2), Hostname: s.At("os", 3), Distro: strings.Trim(s.At("os", 4), `"`),
		BootID: s.At("boot", 0), User: s.At("user", 1), CPUModel: s.At("cpu", 1), Runtimes: s["runtimes"],
	}
	if o.UID, err = strconv.Atoi(s.At("user", 0)); err != nil {
		return o, fmt.Errorf("read the probe's user id: %.40q is no number", s.At("user", 0))
	}
	if o.OS == "" || o.Machine == "" || o.BootID == "" {
		return o, fmt.Errorf("read the probe's answer: system, machine or boot id is missing")
	}
	o.CPUs = cpus(s.At("cpu", 0))
	o.memory(s["memory"])
	o.DiskFree, o.Writable = disk(s["disk"])
	for _, l := range s["listeners"] {
		if a := listener(l); a != "" {
			o.Listeners = append(o.Listeners, a)
		}
	}
	o.Limits = limits(s["limits"], s["cgroup"])
	o.Files = files(s["files"])
	return o, nil
}

// disk reads the available bytes of what df -Pk says: the column before the one in percent, since the file
// system's name may hold spaces. A line of its own says whether the root is writable.
func disk(lines []string) (free int64, writable bool) {
	for _, l := range lines {
		writable = writable || l == "writable"
		f := strings.Fields(l)
		for i := 2; i < len(f) && free == 0; i++ {
			if strings.HasSuffix(f[i], "%") {
				free = kib(f[i-1])
			}
		}
	}
	return free, writable
}

func kib(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<52 {
		return 0
	}
	return n << 10
}

// cpus reads a number of processors, or the kernel's list of those that are online: "online 0-3,8".
func cpus(l string) (n int) {
	list, ok := strings.CutPrefix(l, "online ")
	if !ok {
		n, _ = strconv.Atoi(l)
		return n
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 16)
		b, berr := strconv.ParseUint(last, 10, 16)
		if err != nil || berr != nil || b < a {
			return 0
		}
		n += int(b-a) + 1
	}
	return n
}

// listener reads a line of ss, "address:port", or the kernel's hexadecimal form.
func listener(l string) string {
	h, ok := strings.CutPrefix(l, "hex ")
	if !ok {
		if f := strings.Fields(l); len(f) > 3 {
			return f[3]
		}
		return l
	}
	addr, port, ok := strings.Cut(h, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	raw, herr := hex.DecodeString(addr)
	if !ok || err != nil || herr != nil || (len(raw) != 4 && len(raw) != 16) {
		return ""
	}
	for i := 0; i < len(raw); i += 4 { // words are little-endian
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)).String()
}

func files(lines []string) []File {
	var out []File
	for _, l := range lines {
		if p, ok := strings.CutPrefix(l, "absent "); ok {
			out = append(out, File{Path: p})
			continue
		}
		if f := strings.SplitN(l, " ", 5); len(f) == 5 {
			file := File{Path: f[4]}
			if digestRE.MatchString(f[0]) {
				file.SHA256 = f[0]
			}
			if !slices.Contains(f[1:4], "-") {
				file.Stat = strings.Join(f[1:4], " ")
			}
			out = append(out, file)
		}
	}
	return out
}

var digestRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

// filesFact is the same fact that the installed binary observes later.
func (o Observation) filesFact() string {
	if len(o.Files) == 0 {
		return "none"
	}
	var lines []string
	for _, f := range o.Files {
		if f.Stat == "" {
			lines = append(lines, f.Path+" absent")
		} else {
			lines = append(lines, f.Path+" "+f.Stat)
		}
	}
	return gates.FilesDigest(lines)
}
