package nvidia

import (
	"regexp"
	"strconv"
	"strings"
)

// Links are the NVLinks of one GPU.
type Links struct {
	UUID   string `json:"uuid"`
	Active []int  `json:"active,omitempty"`
	// Inactive are links that the GPU has and that do not carry data.
	Inactive []int `json:"inactive,omitempty"`
	Unknown  []int `json:"unknown,omitempty"`
	GBps     int64 `json:"gbps,omitempty"` // gigabytes/s of the slowest active link, rounded down
}

var (
	deviceRE = regexp.MustCompile(`^GPU (\d{1,3}): (.{1,100}) \(UUID: (GPU-[0-9a-fA-F-]{8,40})\)$`)
	linkRE   = regexp.MustCompile(`^Link (\d{1,3}): (.+)$`)
	rateRE   = regexp.MustCompile(`^(\d{1,4})(\.\d+)? GB/s$`)
	migRE    = regexp.MustCompile(`^MIG (\S{1,40})\s+Device\s+(\d{1,3}): \(UUID: (MIG-[0-9A-Za-z/-]{4,80})\)$`)
)

const maxLinks = 64

// ParseLinks reads "nvidia-smi nvlink -s".
func ParseLinks(lines []string) []Links {
	var out []Links
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if m := deviceRE.FindStringSubmatch(l); m != nil && len(out) < maxGPUs {
			out = append(out, Links{UUID: m[3]})
			continue
		}
		m := linkRE.FindStringSubmatch(l)
		if m == nil || len(out) == 0 {
			continue
		}
		g := &out[len(out)-1]
		n, _ := strconv.Atoi(m[1])
		if len(g.Active)+len(g.Inactive)+len(g.Unknown) == maxLinks {
			continue
		}
		rate := rateRE.FindStringSubmatch(m[2])
		switch {
		case rate != nil:
			r, _ := strconv.ParseInt(rate[1], 10, 64)
			if g.Active = append(g.Active, n); len(g.Active) == 1 || r < g.GBps {
				g.GBps = r
			}
		case strings.EqualFold(strings.Trim(m[2], "<>"), "inactive"):
			g.Inactive = append(g.Inactive, n)
		default:
			g.Unknown = append(g.Unknown, n)
		}
	}
	return out
}

// Slice is one MIG device.
type Slice struct {
	GPU     string `json:"gpu"` // UUID
	Profile string `json:"profile"`
	UUID    string `json:"uuid"`
}

// ParseList reads "nvidia-smi -L": the MIG devices of each GPU.
func ParseList(lines []string) []Slice {
	var out []Slice
	gpu := ""
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if m := deviceRE.FindStringSubmatch(l); m != nil {
			gpu = m[3]
		} else if m := migRE.FindStringSubmatch(l); m != nil && gpu != "" && len(out) < 8*maxGPUs {
			out = append(out, Slice{GPU: gpu, Profile: m[1], UUID: m[3]})
		}
	}
	return out
}
