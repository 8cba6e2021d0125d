// Package hardware reads where devices sit in a host: PCI functions, NUMA nodes and RDMA
// devices, as the kernel's /sys lists them and as ibv_devinfo does.
//
// It promises to take any bytes and to say how far two PCI functions are apart only when
// both are known. It refuses to fill in what the kernel did not tell.
package hardware

import (
	"regexp"
	"strconv"
	"strings"
)

// Function is one PCI function that carries data: a GPU, an accelerator or a network card.
type Function struct {
	Address  string `json:"address"` // 0000:18:00.0
	Class    string `json:"class"`   // six hexadecimal digits
	Vendor   string `json:"vendor"`  // four
	Device   string `json:"device"`
	NUMA     int    `json:"numa"` // -1 = not told
	Width    int    `json:"width,omitempty"`
	WidthMax int    `json:"width_max,omitempty"`
	Speed    string `json:"speed,omitempty"` // "32.0 GT/s PCIe"
	SpeedMax string `json:"speed_max,omitempty"`
	Path     string `json:"path,omitempty"` // below /sys/devices
}

var (
	addressRE = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	hexRE     = regexp.MustCompile(`^0x[0-9a-f]{4,6}$`)
	pciPathRE = regexp.MustCompile(`^/sys/devices/[0-9A-Za-z:._/-]{1,400}$`)
)

const maxFunctions = 4096

// ParsePCI reads lines "address|class|vendor|device|numa|width|widest|speed|fastest|path".
func ParsePCI(lines []string) []Function {
	var out []Function
	for _, l := range lines {
		f := strings.Split(l, "|")
		if len(f) != 10 || !addressRE.MatchString(f[0]) || !hexRE.MatchString(f[1]) || !hexRE.MatchString(f[2]) || len(out) == maxFunctions {
			continue
		}
		x := Function{Address: f[0], Class: f[1][2:], Vendor: f[2][2:], Device: strings.TrimPrefix(f[3], "0x"), NUMA: -1, Width: small(f[5]), WidthMax: small(f[6]), Speed: speed(f[7]), SpeedMax: speed(f[8])}
		if n, err := strconv.Atoi(f[4]); err == nil && n >= 0 && n < 4096 {
			x.NUMA = n
		}
		if pciPathRE.MatchString(f[9]) {
			x.Path = f[9]
		}
		out = append(out, x)
	}
	return out
}

func small(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n
}

var speedRE = regexp.MustCompile(`^\d{1,3}(\.\d)? GT/s`)

func speed(s string) string { return speedRE.FindString(s) }

// GPUs counts the functions that may compute: display and accelerator classes of NVIDIA and
// AMD, boards' management chips left out.
func GPUs(fs []Function) []Function {
	var out []Function
	for _, f := range fs {
		if (strings.HasPrefix(f.Class, "03") || strings.HasPrefix(f.Class, "12")) && (f.Vendor == "10de" || f.Vendor == "1002") {
			out = append(out, f)
		}
	}
	return out
}

// Apart says how far two functions are from each other.
type Apart int

// From near to far.
const (
	UnknownApart Apart = iota
	SameSwitch         // below one PCI bridge
	SameNode           // one NUMA node
	OtherNode
)

func (a Apart) String() string {
	return [...]string{"unknown", "the same PCI switch", "the same NUMA node", "another NUMA node"}[a]
}

// Between compares paths and NUMA nodes.
func Between(a, b Function) Apart {
	switch {
	case a.Path != "" && b.Path != "" && bridges(a.Path, b.Path) > 0:
		return SameSwitch
	case a.NUMA < 0 || b.NUMA < 0:
		return UnknownApart
	case a.NUMA == b.NUMA:
		return SameNode
	}
	return OtherNode
}

// bridges counts the PCI functions that both paths pass through.
func bridges(a, b string) int {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for i := 0; i < len(as)-1 && i < len(bs)-1 && as[i] == bs[i]; i++ {
		if addressRE.MatchString(as[i]) {
			n++
		}
	}
	return n
}

// Node is a NUMA node with its CPUs.
type Node struct {
	ID   int    `json:"id"`
	CPUs string `json:"cpus"`
}

var cpusRE = regexp.MustCompile(`^[0-9,-]{0,1000}$`)

// ParseNodes reads lines "node0 0-31,64-95".
func ParseNodes(lines []string) []Node {
	var out []Node
	for _, l := range lines {
		name, cpus, _ := strings.Cut(l, " ")
		n, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err == nil && n >= 0 && strings.HasPrefix(name, "node") && cpusRE.MatchString(cpus) && len(out) < 1024 {
			out = append(out, Node{n, cpus})
		}
	}
	return out
}
