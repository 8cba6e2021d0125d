package nvidia

import (
	"regexp"
	"strings"
)

// Topology says how two devices of the host reach each other, and where they are.
type Topology struct {
	// Path is by row and column, "GPU0" and "GPU1" or "NIC0": NV18, PIX, PXB, PHB, NODE, SYS.
	Path map[string]map[string]string `json:"path,omitempty"`
	// NIC names the RDMA device behind a column.
	NIC map[string]string `json:"nic,omitempty"`
	// NUMA and CPUs are by GPU; absent when not told.
	NUMA map[string]string `json:"numa,omitempty"`
	CPUs map[string]string `json:"cpus,omitempty"`
}

var (
	nodeRE = regexp.MustCompile(`^(GPU\d{1,3}|NIC\d{1,3}|[a-z][a-z0-9_]{1,30})$`)
	pathRE = regexp.MustCompile(`^(X|SYS|NODE|PHB|PXB|PIX|NV\d{1,3})$`)
	nicRE  = regexp.MustCompile(`^(NIC\d{1,3}): (\S{1,40})$`)
	listRE = regexp.MustCompile(`^[0-9][0-9,-]{0,200}$`)
)

// ParseTopology reads "nvidia-smi topo -m". Columns are separated by tabs or, where the
// output was pasted, by spaces.
func ParseTopology(lines []string) Topology {
	t := Topology{Path: map[string]map[string]string{}, NIC: map[string]string{}, NUMA: map[string]string{}, CPUs: map[string]string{}}
	var columns []string
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if m := nicRE.FindStringSubmatch(l); m != nil {
			t.NIC[m[1]] = m[2]
			continue
		}
		cells := strings.Fields(l)
		switch {
		case len(cells) == 0:
		case columns == nil && cells[0] == "GPU0" && len(cells) > 1 && !pathRE.MatchString(cells[1]):
			for _, c := range cells {
				if !nodeRE.MatchString(c) || len(columns) == maxGPUs {
					break // "CPU Affinity" and what follows
				}
				columns = append(columns, c)
			}
		case columns == nil || !nodeRE.MatchString(cells[0]) || len(t.Path) == maxGPUs:
		default:
			t.row(columns, cells[0], cells[1:])
		}
	}
	return t
}

func (t *Topology) row(columns []string, name string, cells []string) {
	if len(cells) < len(columns) {
		return
	}
	paths := map[string]string{}
	for i, c := range columns {
		if !pathRE.MatchString(cells[i]) {
			return // a line of the legend, or a matrix that is not understood
		}
		if c != name {
			paths[c] = cells[i]
		}
	}
	if _, twice := t.Path[name]; twice {
		return
	}
	t.Path[name] = paths
	rest := cells[len(columns):]
	if len(rest) > 0 && listRE.MatchString(rest[0]) {
		t.CPUs[name] = rest[0]
	}
	if len(rest) > 1 && listRE.MatchString(rest[1]) {
		t.NUMA[name] = rest[1]
	}
}
