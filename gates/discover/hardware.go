package discover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/discover/amd"
	"github.com/narwhal-fleet/narwhal/gates/discover/answer"
	"github.com/narwhal-fleet/narwhal/gates/discover/hardware"
	"github.com/narwhal-fleet/narwhal/gates/discover/network"
	"github.com/narwhal-fleet/narwhal/gates/discover/nvidia"
)

// Hardware is what a host's probe found of devices.
type Hardware struct {
	NVIDIA   nvidia.Table
	Slices   []nvidia.Slice
	Links    []nvidia.Links
	Topology nvidia.Topology
	AMD      []amd.GPU
	// Trouble says which tool did not answer and which device has no partner.
	Trouble []string
	// Tools that the host lacks.
	Absent []string
	// Nodes are device files that the user may open; Closed ones he may not.
	Nodes, Closed []string
	NUMA          []hardware.Node
	PCI           []hardware.Function
	RDMA          []hardware.RDMA
	// Unopened are RDMA devices that user space does not see.
	Unopened []string
}

// absent is a shell's exit status for a program that is not there.
const absent = 127

// ParseHardware reads the answer of HardwareProbe.
func ParseHardware(b []byte) (Hardware, error) {
	s, err := answer.Read(b)
	if err != nil {
		return Hardware{}, err
	}
	var h Hardware
	h.NVIDIA = nvidia.ParseTable(h.tool(s, "nvidia", "nvidia-smi"))
	if !slices.Contains(h.Absent, "nvidia-smi") {
		h.Slices = nvidia.ParseList(h.tool(s, "nvidia-list", "nvidia-smi -L"))
		h.Links = nvidia.ParseLinks(optional(s, "nvidia-links"))
		h.Topology = nvidia.ParseTopology(optional(s, "nvidia-topology"))
		for _, said := range h.NVIDIA.Said {
			h.trouble("nvidia-smi says: " + said)
		}
	}
	nodes := amd.ParseKFD(s["kfd"])
	agents := amd.ParseRocminfo(h.tool(s, "rocminfo", "rocminfo"))
	if len(nodes) > 0 && slices.Contains(h.Absent, "rocminfo") {
		h.trouble(fmt.Sprintf("the kernel has %d AMD GPUs and rocminfo is absent", len(nodes)))
	} else {
		var problems []string
		h.AMD, problems = amd.Match(agents, nodes)
		for _, p := range problems {
			h.trouble(p)
		}
	}
	for _, n := range s["nodes"] {
		if path, closed := strings.CutSuffix(n, " closed"); closed {
			h.Closed = append(h.Closed, path)
		} else {
			h.Nodes = append(h.Nodes, n)
		}
	}
	h.NUMA, h.PCI, h.RDMA = hardware.ParseNodes(s["numa"]), hardware.ParsePCI(s["pci"]), hardware.ParseRDMA(s["rdma"])
	if info, status := answer.Exit(s["devinfo"]); len(h.RDMA) > 0 && status != absent {
		h.Unopened = hardware.Unseen(h.RDMA, hardware.ParseDevinfo(info))
	}
	return h, nil
}

// tool returns the lines of a tool that answered, and notes one that did not.
func (h *Hardware) tool(s answer.Sections, section, name string) []string {
	lines, status := answer.Exit(s[section])
	switch {
	case status == absent:
		h.Absent = append(h.Absent, name)
		return nil
	case status == 124 || status == 137:
		h.trouble(name + " did not answer in time")
	case status == 141:
		h.trouble(name + " did not stop printing")
	case status != 0:
		h.trouble(fmt.Sprintf("%s ended with status %d", name, status))
	}
	return lines
}

// optional is a tool that some machines do not support: its failure is no trouble.
func optional(s answer.Sections, section string) []string {
	lines, _ := answer.Exit(s[section])
	return lines
}

const maxTrouble = 40

func (h *Hardware) trouble(s string) {
	if len(h.Trouble) < maxTrouble {
		h.Trouble = append(h.Trouble, s)
	}
}

// Function returns the PCI function of an address.
func (h Hardware) Function(bus string) (hardware.Function, bool) {
	for _, f := range h.PCI {
		if f.Address == bus && bus != "" {
			return f, true
		}
	}
	return hardware.Function{}, false
}

// Network is what a host's probe found of interfaces and routes.
type Network struct {
	Links     []network.Link
	Bonds     []network.Bond
	Addresses []network.Address
	Routes    []network.Route
}

// ParseNetwork reads the answer of NetworkProbe.
func ParseNetwork(b []byte) (Network, error) {
	s, err := answer.Read(b)
	if err != nil {
		return Network{}, err
	}
	n := Network{
		Links: network.ParseLinks(s["links"]), Bonds: network.ParseBonds(s["bonds"]), Addresses: network.ParseAddresses(s["addresses"]), Routes: network.ParseRoutes(s["routes"]),
	}
	if len(n.Links) == 0 {
		return n, fmt.Errorf("read the probe's answer: it lists no interface")
	}
	return n, nil
}
