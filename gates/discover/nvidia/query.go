// Package nvidia reads what nvidia-smi prints: the queried table, the list of devices, the
// NVLink states and the topology matrix.
//
// It promises to take any bytes, to name columns by the table's own header, and to keep a
// value that it does not know as unknown. It refuses to read an error text as a GPU.
package nvidia

import (
	"regexp"
	"strconv"
	"strings"
)

// State is a switch of a GPU.
type State string

// States. Unknown is also what an error text in the cell means.
const (
	Unknown State = ""
	On      State = "on"
	Off     State = "off"
	None    State = "none" // the GPU has no such switch
)

// GPU is one row of the table. Numbers that are not told are nil.
type GPU struct {
	Index       int     `json:"index"`
	UUID        string  `json:"uuid"`
	Bus         string  `json:"bus"` // as sysfs writes it: 0000:18:00.0
	Name        string  `json:"name"`
	MemoryMiB   int64   `json:"memory_mib"`
	Driver      string  `json:"driver"`
	Persistence State   `json:"persistence"`
	Compute     string  `json:"compute_mode"`
	MIG         State   `json:"mig"`
	MIGPending  State   `json:"mig_pending"`
	ECC         State   `json:"ecc"`
	Uncorrected *int64  `json:"uncorrected,omitempty"` // since the driver was loaded
	Aggregate   *int64  `json:"uncorrected_ever,omitempty"`
	Reasons     *uint64 `json:"clock_reasons,omitempty"` // bits of nvml.h
	PowerW      *int64  `json:"power_w,omitempty"`
	LimitW      *int64  `json:"power_limit_w,omitempty"`
	DefaultW    *int64  `json:"power_default_w,omitempty"`
	Celsius     *int64  `json:"celsius,omitempty"`
	Width       *int64  `json:"pcie_width,omitempty"`
	WidthMax    *int64  `json:"pcie_width_max,omitempty"`
	// Faults are columns whose cell holds an error text, as "[GPU requires reset]".
	Faults []string `json:"faults,omitempty"`
}

// Table is the answer to one query.
type Table struct {
	GPUs []GPU `json:"gpus"`
	// Said are lines that are no row: messages, which name GPUs that are lost.
	Said []string `json:"said,omitempty"`
}

// Fields are asked for, the last ones dropped where a driver does not know them. The name
// of the reasons for low clocks changed with driver 535.
const (
	Fields = "index,uuid,pci.bus_id,name,memory.total,driver_version,persistence_mode,compute_mode"
	More   = Fields + ",mig.mode.current,mig.mode.pending,ecc.mode.current,ecc.errors.uncorrected.volatile.total,ecc.errors.uncorrected.aggregate.total," +
		"power.draw,power.limit,power.default_limit,temperature.gpu,pcie.link.width.current,pcie.link.width.max"
	Events   = More + ",clocks_event_reasons.active"
	Throttle = More + ",clocks_throttle_reasons.active"
)

const maxGPUs = 256

// ParseTable reads "nvidia-smi --query-gpu=… --format=csv", header included.
func ParseTable(lines []string) Table {
	var t Table
	var header []string
	for _, l := range lines {
		cells := strings.Split(l, ",")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case l == "":
		case header == nil && cells[0] == "index" && len(cells) > 1:
			for _, c := range cells {
				name, _, _ := strings.Cut(c, " [")
				header = append(header, name)
			}
		case header == nil || len(cells) != len(header) || len(t.GPUs) == maxGPUs:
			t.said(l)
		default:
			g, ok := row(header, cells)
			if !ok {
				t.said(l)
				continue
			}
			t.GPUs = append(t.GPUs, g)
		}
	}
	return t
}

const maxSaid = 32

func (t *Table) said(l string) {
	if len(t.Said) < maxSaid {
		if len(l) > 200 {
			l = strings.ToValidUTF8(l[:200], "")
		}
		t.Said = append(t.Said, l)
	}
}

var uuidRE = regexp.MustCompile(`^GPU-[0-9a-fA-F-]{8,40}$`)

// row reads one GPU; false when its index, UUID or address cannot be.
func row(header, cells []string) (GPU, bool) {
	var g GPU
	at := map[string]string{}
	for i, h := range header {
		c := cells[i]
		if isFault(c) {
			g.Faults = append(g.Faults, h)
			c = ""
		}
		at[h] = c
	}
	n, err := strconv.Atoi(at["index"])
	g.Index, g.UUID, g.Bus = n, at["uuid"], Bus(at["pci.bus_id"])
	if err != nil || n < 0 || n >= maxGPUs || !uuidRE.MatchString(g.UUID) {
		return g, false
	}
	g.Name, g.Driver, g.Compute = told(at["name"]), told(at["driver_version"]), told(at["compute_mode"])
	if m := number(at["memory.total"]); m != nil {
		g.MemoryMiB = *m
	}
	g.Persistence, g.ECC = state(at["persistence_mode"]), state(at["ecc.mode.current"])
	g.MIG, g.MIGPending = state(at["mig.mode.current"]), state(at["mig.mode.pending"])
	g.Uncorrected, g.Aggregate = number(at["ecc.errors.uncorrected.volatile.total"]), number(at["ecc.errors.uncorrected.aggregate.total"])
	g.PowerW, g.LimitW, g.DefaultW = number(at["power.draw"]), number(at["power.limit"]), number(at["power.default_limit"])
	g.Celsius, g.Width, g.WidthMax = number(at["temperature.gpu"]), number(at["pcie.link.width.current"]), number(at["pcie.link.width.max"])
	for _, h := range []string{"clocks_event_reasons.active", "clocks_throttle_reasons.active"} {
		if bits, err := strconv.ParseUint(strings.TrimPrefix(at[h], "0x"), 16, 64); err == nil && strings.HasPrefix(at[h], "0x") {
			g.Reasons = &bits
		}
	}
	return g, true
}

// isFault tells an error in a cell from a value that the GPU does not have.
func isFault(c string) bool {
	inner := strings.ToLower(strings.Trim(c, "[]"))
	return strings.Contains(inner, "error") || strings.Contains(inner, "requires reset") || strings.Contains(inner, "is lost") || strings.Contains(inner, "err!") ||
		strings.Contains(inner, "insufficient permissions")
}

func told(c string) string {
	if isNone(c) || strings.HasPrefix(c, "[") {
		return ""
	}
	if len(c) > 100 {
		c = strings.ToValidUTF8(c[:100], "")
	}
	return c
}

func isNone(c string) bool {
	switch strings.ToLower(strings.Trim(c, "[]")) {
	case "n/a", "not supported":
		return true
	}
	return false
}

func state(c string) State {
	switch {
	case c == "Enabled" || c == "On":
		return On
	case c == "Disabled" || c == "Off":
		return Off
	case isNone(c):
		return None
	}
	return Unknown
}

// number reads the whole part of a figure, its unit left off: "87.40 W".
func number(c string) *int64 {
	c, _, _ = strings.Cut(c, " ")
	c, _, _ = strings.Cut(c, ".")
	n, err := strconv.ParseInt(c, 10, 64)
	if err != nil || n < 0 || n > 1<<48 {
		return nil
	}
	return &n
}

var busRE = regexp.MustCompile(`^([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// Bus writes a PCI address as sysfs does, "" when it is none: nvidia-smi pads the domain to
// eight digits.
func Bus(s string) string {
	m := busRE.FindStringSubmatch(strings.ToLower(s))
	if m == nil {
		return ""
	}
	domain := strings.TrimLeft(m[1], "0")
	for len(domain) < 4 {
		domain = "0" + domain
	}
	return domain + ":" + m[2]
}

// Bits of the reasons for low clocks that mean that the hardware protects itself.
const (
	HWSlowdown   = 0x08
	HWThermal    = 0x40
	HWPowerBrake = 0x80
)

// Slowdowns names the hardware's own reasons among the active ones.
func Slowdowns(bits uint64) []string {
	var out []string
	for _, r := range []struct {
		bit  uint64
		name string
	}{{HWThermal, "thermal slowdown"}, {HWPowerBrake, "power brake"}, {HWSlowdown, "slowdown"}} {
		if bits&r.bit != 0 {
			out = append(out, "hardware "+r.name)
		}
	}
	return out
}

// Unknown lists the switches whose state the table did not tell in known words.
func (g GPU) Unknown() []string {
	var out []string
	for _, s := range []struct {
		name  string
		state State
	}{{"persistence_mode", g.Persistence}, {"mig.mode.current", g.MIG}, {"ecc.mode.current", g.ECC}} {
		if s.state == Unknown {
			out = append(out, s.name)
		}
	}
	return out
}
