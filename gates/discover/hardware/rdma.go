package hardware

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// RDMA is one RDMA device.
type RDMA struct {
	Name     string `json:"name"`
	Firmware string `json:"firmware,omitempty"`
	Board    string `json:"board,omitempty"`
	GUID     string `json:"guid,omitempty"`
	Bus      string `json:"bus,omitempty"`
	NUMA     int    `json:"numa"` // -1 = not told
	Ports    []Port `json:"ports,omitempty"`
}

// Port is one port of an RDMA device.
type Port struct {
	Number int    `json:"number"`
	State  string `json:"state"` // ACTIVE, DOWN, INIT, ARMED
	Phys   string `json:"physical,omitempty"`
	Gbps   int    `json:"gbps,omitempty"` // 0 = not told
	Layer  string `json:"layer,omitempty"`
	Net    string `json:"net,omitempty"` // the network interface of a RoCE port
	GIDs   []GID  `json:"gids,omitempty"`
}

// GID is one row of a port's address table.
type GID struct {
	Index   int    `json:"index"`
	Address string `json:"address"`
	Type    string `json:"type"` // "IB/RoCE v1", "RoCE v2"
	Net     string `json:"net,omitempty"`
}

var (
	rdmaNameRE = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,62}$`)
	stateRE    = regexp.MustCompile(`^\d: ?([A-Za-z_]{2,20})$`)
	gbpsRE     = regexp.MustCompile(`^(\d{1,4})(\.\d)? Gb/sec`)
	wordRE     = regexp.MustCompile(`^[0-9A-Za-z:._ /()-]{0,64}$`)
)

const (
	maxRDMA  = 256
	maxPorts = 256 // a switch of some platforms has that many
	maxGIDs  = 1024
)

// ParseRDMA reads lines from /sys/class/infiniband: "device name|firmware|board|guid|bus|numa",
// below it "port n|state|physical|rate|layer|interface", below that "gid n|address|type|interface".
func ParseRDMA(lines []string) []RDMA {
	var out []RDMA
	for _, l := range lines {
		kind, rest, _ := strings.Cut(l, " ")
		f := strings.Split(rest, "|")
		switch {
		case kind == "device" && len(f) == 6 && rdmaNameRE.MatchString(f[0]) && len(out) < maxRDMA:
			d := RDMA{Name: f[0], Firmware: word(f[1]), Board: word(f[2]), GUID: word(f[3]), NUMA: -1}
			if addressRE.MatchString(f[4]) {
				d.Bus = f[4]
			}
			if n, err := strconv.Atoi(f[5]); err == nil && n >= 0 && n < 4096 {
				d.NUMA = n
			}
			out = append(out, d)
		case len(out) == 0:
		case kind == "port" && len(f) == 6:
			d := &out[len(out)-1]
			if n, err := strconv.Atoi(f[0]); err == nil && n > 0 && len(d.Ports) < maxPorts {
				p := Port{Number: n, State: after(f[1]), Phys: after(f[2]), Layer: word(f[4]), Net: word(f[5])}
				if m := gbpsRE.FindStringSubmatch(f[3]); m != nil {
					p.Gbps, _ = strconv.Atoi(m[1])
				}
				d.Ports = append(d.Ports, p)
			}
		case kind == "gid" && len(f) == 4:
			d := &out[len(out)-1]
			if len(d.Ports) == 0 {
				continue
			}
			p := &d.Ports[len(d.Ports)-1]
			n, err := strconv.Atoi(f[0])
			a, aerr := netip.ParseAddr(f[1])
			if err == nil && aerr == nil && n >= 0 && a.Is6() && a.Zone() == "" && !a.IsUnspecified() && len(p.GIDs) < maxGIDs {
				p.GIDs = append(p.GIDs, GID{Index: n, Address: a.Unmap().String(), Type: word(f[2]), Net: word(f[3])})
			}
		}
	}
	return out
}

func word(s string) string {
	if !wordRE.MatchString(s) {
		return ""
	}
	return strings.TrimSpace(s)
}

// after reads "4: ACTIVE".
func after(s string) string {
	if m := stateRE.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

// RoCEv2 returns the indices of a port's addresses that routed RDMA can use.
func (p Port) RoCEv2() []int {
	var out []int
	for _, g := range p.GIDs {
		a, err := netip.ParseAddr(g.Address)
		if g.Type == "RoCE v2" && err == nil && !a.IsLinkLocalUnicast() {
			out = append(out, g.Index)
		}
	}
	return out
}

var (
	hcaRE = regexp.MustCompile(`^hca_id:\s+(\S{1,63})$`)
	gidRE = regexp.MustCompile(`^GID\[\s*(\d{1,4})\]:\s+([0-9a-fA-F:.]{2,45})(?:, (.{1,20}))?$`)
)

// ParseDevinfo reads "ibv_devinfo -v": what user space can open. Old versions print no type
// of a GID.
func ParseDevinfo(lines []string) []RDMA {
	var out []RDMA
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if m := hcaRE.FindStringSubmatch(l); m != nil {
			if rdmaNameRE.MatchString(m[1]) && len(out) < maxRDMA {
				out = append(out, RDMA{Name: m[1], NUMA: -1})
			}
			continue
		}
		if len(out) == 0 {
			continue
		}
		d := &out[len(out)-1]
		if m := gidRE.FindStringSubmatch(l); m != nil && len(d.Ports) > 0 {
			p := &d.Ports[len(d.Ports)-1]
			if a, err := netip.ParseAddr(m[2]); err == nil && len(p.GIDs) < maxGIDs {
				n, _ := strconv.Atoi(m[1])
				p.GIDs = append(p.GIDs, GID{Index: n, Address: a.Unmap().String(), Type: word(m[3])})
			}
			continue
		}
		k, v, ok := strings.Cut(l, ":")
		v = word(strings.TrimSpace(v))
		if !ok {
			continue
		}
		if len(d.Ports) == 0 || k == "port" {
			d.attribute(k, v)
			continue
		}
		d.Ports[len(d.Ports)-1].attribute(k, v)
	}
	return out
}

func (d *RDMA) attribute(k, v string) {
	switch k {
	case "fw_ver":
		d.Firmware = v
	case "node_guid":
		d.GUID = v
	case "board_id":
		d.Board = v
	case "port":
		if n, err := strconv.Atoi(v); err == nil && n > 0 && len(d.Ports) < maxPorts {
			d.Ports = append(d.Ports, Port{Number: n})
		}
	}
}

func (p *Port) attribute(k, v string) {
	first, _, _ := strings.Cut(v, " ")
	switch k {
	case "state":
		p.State = strings.TrimPrefix(first, "PORT_")
	case "phys_state":
		p.Phys = first
	case "link_layer":
		p.Layer = v
	}
}

// Unseen lists the devices of the kernel that user space does not open.
func Unseen(kernel, user []RDMA) []string {
	var out []string
	for _, k := range kernel {
		if !slices.ContainsFunc(user, func(u RDMA) bool { return u.Name == k.Name }) {
			out = append(out, k.Name)
		}
	}
	return out
}
