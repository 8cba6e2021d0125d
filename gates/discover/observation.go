package discover

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/narwhal-fleet/narwhal/gates"
)

// Observation is a host as its probe describes it.
type Observation struct {
	Clock      float64 // seconds since the epoch on the host
	OS         string
	Kernel     string
	Machine    string // as uname -m says
	Hostname   string
	Distro     string
	BootID     string
	UID        int
	User       string
	CPUs       int
	CPUModel   string
	MemTotal   int64 // bytes
	MemFree    int64 // bytes available
	DiskFree   int64 // bytes at the root's file system
	Writable   bool
	Interfaces []Interface
	Addresses  []string // "interface family address/bits"
	Listeners  []string // "address:port"
	GPUs       []string
	Runtimes   []string
	Files      []File
}

// Interface is one network interface.
type Interface struct {
	Name  string
	MTU   int // bytes
	State string
}

// File is one of the files named for the host.
type File struct {
	Path   string
	SHA256 string // "" = absent or not hashed
	Stat   string // "size mtime inode", "" = absent or not told
}

const maxLines = 20000

// Parse reads a probe's answer. It fails when the answer is cut or lacks what every
// host has.
func Parse(b []byte) (Observation, error) {
	s, err := sections(b)
	if err != nil {
		return Observation{}, err
	}
	o := Observation{
		OS: at(s["os"], 0), Kernel: at(s["os"], 1), Machine: at(s["os"], 2), Hostname: at(s["os"], 3), Distro: strings.Trim(at(s["os"], 4), `"`),
		BootID: at(s["boot"], 0), User: at(s["user"], 1), CPUModel: at(s["cpu"], 1),
		Addresses: s["addresses"], GPUs: s["gpus"], Runtimes: s["runtimes"],
	}
	if o.Clock, err = clock(at(s["clock"], 0)); err != nil {
		return o, err
	}
	if o.UID, err = strconv.Atoi(at(s["user"], 0)); err != nil {
		return o, fmt.Errorf("read the probe's user id: %.40q is no number", at(s["user"], 0))
	}
	if o.OS == "" || o.Machine == "" || o.BootID == "" {
		return o, fmt.Errorf("read the probe's answer: system, machine or boot id is missing")
	}
	o.CPUs, _ = strconv.Atoi(at(s["cpu"], 0))
	o.MemTotal, o.MemFree = kib(at(s["memory"], 0)), kib(at(s["memory"], 1))
	o.DiskFree = diskFree(at(s["disk"], 0))
	o.Writable = at(s["disk"], 1) == "writable"
	for _, l := range s["interfaces"] {
		if f := strings.Fields(l); len(f) >= 2 {
			mtu, _ := strconv.Atoi(f[1])
			o.Interfaces = append(o.Interfaces, Interface{Name: f[0], MTU: mtu, State: strings.Join(f[2:], " ")})
		}
	}
	for _, l := range s["listeners"] {
		if a := listener(l); a != "" {
			o.Listeners = append(o.Listeners, a)
		}
	}
	o.Files = files(s["files"])
	return o, nil
}

func sections(b []byte) (map[string][]string, error) {
	out := map[string][]string{}
	name, lines := "", 0
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if lines++; lines > maxLines {
			return nil, fmt.Errorf("read the probe's answer: more than %d lines", maxLines)
		}
		if n, ok := strings.CutPrefix(sc.Text(), "== "); ok {
			if _, twice := out[n]; twice {
				return nil, fmt.Errorf("read the probe's answer: section %.40q stands twice", n)
			}
			name = n
			out[name] = []string{}
		} else if name == "files" { // paths stay as they are
			out[name] = append(out[name], sc.Text())
		} else if name != "" {
			out[name] = append(out[name], strings.TrimSpace(printable(sc.Text())))
		}
	}
	if sc.Err() != nil {
		return nil, fmt.Errorf("read the probe's answer: %w", sc.Err())
	}
	if name != "end" {
		return nil, fmt.Errorf("read the probe's answer: it was cut off")
	}
	return out, nil
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// printable drops what could steer a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// clock reads seconds since the epoch. What stands behind the point counts only as digits:
// a date without %N leaves it out or prints it as it is.
func clock(s string) (float64, error) {
	whole, part, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 40)
	if err != nil {
		return 0, fmt.Errorf("read the probe's clock: %.40q is no number", s)
	}
	frac, err := strconv.ParseUint(part, 10, 63)
	if err != nil {
		return float64(n), nil
	}
	return float64(n) + float64(frac)/math.Pow10(len(part)), nil
}

// diskFree reads the available bytes of a line of df -Pk: the column before the one in
// percent, since the file system's name may hold spaces.
func diskFree(line string) int64 {
	f := strings.Fields(line)
	for i := 2; i < len(f); i++ {
		if strings.HasSuffix(f[i], "%") {
			return kib(f[i-1])
		}
	}
	return 0
}

func kib(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<52 {
		return 0
	}
	return n << 10
}

// listener reads "address:port" as ss prints it, or the kernel's hexadecimal form.
func listener(l string) string {
	h, ok := strings.CutPrefix(l, "hex ")
	if !ok {
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
