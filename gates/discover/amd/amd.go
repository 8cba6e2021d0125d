// Package amd reads rocminfo and the kernel's topology of compute nodes, and matches both
// with PCI addresses and render nodes.
//
// It promises to take any bytes and to match a GPU only by its PCI address. It refuses to
// pair what is ambiguous: two nodes of one address are a problem, not a choice.
package amd

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Agent is a GPU as rocminfo describes it.
type Agent struct {
	Node     int    `json:"node"` // of the kernel's topology
	Name     string `json:"name"` // gfx942
	Product  string `json:"product"`
	UUID     string `json:"uuid"`
	Location int64  `json:"location"` // bus, device and function in one number
	MiB      int64  `json:"memory_mib,omitempty"`
}

const maxAgents = 256

var sizeRE = regexp.MustCompile(`^(\d{1,15})\(0x[0-9a-f]+\) KB$`)

// ParseRocminfo reads the GPU agents. Agents of other types and those without a PCI
// address are left out.
func ParseRocminfo(lines []string) []Agent {
	var out []Agent
	var a Agent
	gpu := false
	flush := func() {
		if gpu && a.Location > 0 && len(out) < maxAgents {
			out = append(out, a)
		}
		a, gpu = Agent{}, false
	}
	for _, l := range lines {
		if strings.HasPrefix(l, "Agent ") {
			flush()
			continue
		}
		k, v, ok := strings.Cut(l, ":")
		if v = strings.TrimSpace(v); !ok || len(v) > 200 {
			continue
		}
		switch strings.TrimSpace(k) {
		case "Name":
			if a.Name == "" { // ISAs have names too
				a.Name = v
			}
		case "Marketing Name":
			a.Product = v
		case "Uuid":
			if strings.HasPrefix(v, "GPU-") && v != "GPU-XX" {
				a.UUID = v
			}
		case "Node":
			a.Node, _ = strconv.Atoi(v)
		case "Device Type":
			gpu = v == "GPU"
		case "BDFID":
			if n, err := strconv.ParseInt(v, 10, 32); err == nil && n > 0 {
				a.Location = n
			}
		case "Size":
			if m := sizeRE.FindStringSubmatch(v); m != nil {
				if n, err := strconv.ParseInt(m[1], 10, 64); err == nil && n>>10 > a.MiB {
					a.MiB = n >> 10
				}
			}
		}
	}
	flush()
	return out
}

// Node is a GPU as the kernel's topology describes it.
type Node struct {
	ID     int    `json:"id"`
	Bus    string `json:"bus"`    // 0000:63:00.0
	Render int    `json:"render"` // minor of /dev/dri/renderD
	Target int64  `json:"target"` // 90010 is gfx90a
	UUID   string `json:"uuid,omitempty"`
	loc    int64
}

// ParseKFD reads "node N" lines, each followed by that node's properties. CPUs have no
// SIMD units and are left out.
func ParseKFD(lines []string) []Node {
	var out []Node
	props := map[string]uint64{}
	id := -1
	flush := func() {
		if n, ok := node(id, props); ok && len(out) < maxAgents {
			out = append(out, n)
		}
		props = map[string]uint64{}
	}
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) != 2 {
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		switch {
		case err != nil:
		case f[0] == "node":
			flush()
			id = int(min(n, 1<<20))
		default:
			props[f[0]] = n
		}
	}
	flush()
	return out
}

func node(id int, p map[string]uint64) (Node, bool) {
	loc, domain := p["location_id"], p["domain"]
	if id < 0 || p["simd_count"] == 0 || loc == 0 || loc > 0xffff || domain > 0xffffffff {
		return Node{}, false
	}
	n := Node{ID: id, Bus: Address(domain, loc), Render: int(min(p["drm_render_minor"], 1<<20)), Target: int64(min(p["gfx_target_version"], 1<<40)), loc: int64(loc)}
	if u := p["unique_id"]; u != 0 {
		n.UUID = fmt.Sprintf("GPU-%016x", u)
	}
	return n, true
}

// Address writes domain, bus, device and function as sysfs does.
func Address(domain, location uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, location>>8&0xff, location>>3&0x1f, location&7)
}

// GPU is an agent with its node.
type GPU struct {
	Product string `json:"product"`
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	Bus     string `json:"bus"`
	Render  string `json:"render"` // /dev/dri/renderD128
	MiB     int64  `json:"memory_mib,omitempty"`
}

const firstRender = 128

// Match pairs agents with nodes by location, and by UUID where several domains share one.
// The problems say what has no partner or more than one.
func Match(agents []Agent, nodes []Node) (gpus []GPU, problems []string) {
	used := map[int]bool{}
	for _, a := range agents {
		var found []int
		for i, n := range nodes {
			if n.loc == a.Location && !used[i] && (a.UUID == "" || n.UUID == "" || a.UUID == n.UUID) {
				found = append(found, i)
			}
		}
		at := Address(0, uint64(a.Location))
		if len(found) != 1 {
			problems = append(problems, fmt.Sprintf("GPU %s of rocminfo has %d nodes in /sys/class/kfd", at, len(found)))
			continue
		}
		n := nodes[found[0]]
		used[found[0]] = true
		if n.Render < firstRender {
			problems = append(problems, fmt.Sprintf("GPU %s has no render node", n.Bus))
			continue
		}
		gpus = append(gpus, GPU{Product: a.Product, Name: a.Name, UUID: a.UUID, Bus: n.Bus, Render: fmt.Sprintf("/dev/dri/renderD%d", n.Render), MiB: a.MiB})
	}
	for i, n := range nodes {
		if !used[i] {
			problems = append(problems, fmt.Sprintf("node %d (%s) of /sys/class/kfd is no agent of rocminfo", n.ID, n.Bus))
		}
	}
	return gpus, problems
}
