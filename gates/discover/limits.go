package discover

import (
	"strconv"
	"strings"
)

// Unlimited is a limit that is none; Untold one that the host did not tell.
const (
	Unlimited int64 = -1
	Untold    int64 = -2
)

// Limits are what the user's processes may take on the host.
type Limits struct {
	Locked   int64   // hard limit of locked memory, bytes
	Files    int64   // hard limit of open files
	Tasks    int64   // hard limit of the user's processes and threads
	Memory   int64   // narrowest memory.max of the control groups, bytes
	CPUs     float64 // narrowest cpu.max, in CPUs; below 0 as the others
	GroupIDs int64   // narrowest pids.max
}

// HugePages are the reserved ones of the default size.
type HugePages struct {
	Total, Free int64
	Size        int64 // bytes
}

// noLimit is where a figure begins to mean none: version 1 of control groups has no word.
const noLimit = 1 << 60

func limits(ulimits, groups []string) Limits {
	l := Limits{Untold, Untold, Untold, Untold, float64(Untold), Untold}
	for _, s := range ulimits {
		name, v, _ := strings.Cut(s, " ")
		switch name {
		case "H-l":
			if l.Locked = limit(v); l.Locked > 0 {
				l.Locked = min(l.Locked, noLimit>>10) << 10
			}
		case "H-n":
			l.Files = limit(v)
		case "H-u":
			l.Tasks = limit(v)
		}
	}
	for _, s := range groups {
		f := strings.Fields(s)
		switch {
		case len(f) == 2 && f[0] == "memory.max":
			l.Memory = narrower(l.Memory, limit(f[1]))
		case len(f) == 2 && f[0] == "pids.max":
			l.GroupIDs = narrower(l.GroupIDs, limit(f[1]))
		case len(f) == 3 && f[0] == "cpu.max":
			quota, period := limit(f[1]), limit(f[2])
			v := float64(quota)
			if quota >= 0 && period > 0 {
				v = float64(quota) / float64(period)
			}
			if v != float64(Untold) && (l.CPUs < 0 || v >= 0 && v < l.CPUs) {
				l.CPUs = v
			}
		}
	}
	return l
}

func limit(s string) int64 {
	switch s {
	case "unlimited", "max", "-1", "infinity":
		return Unlimited
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return Untold
	}
	if n > noLimit {
		return Unlimited
	}
	return n
}

// narrower is the smaller of two limits.
func narrower(a, b int64) int64 {
	switch {
	case b == Untold:
		return a
	case a < 0, b >= 0 && b < a:
		return b
	}
	return a
}

// memory reads "MemTotal: 12" lines, in KiB but for counts of pages.
func (o *Observation) memory(lines []string) {
	for _, s := range lines {
		k, v, _ := strings.Cut(s, " ")
		switch k {
		case "MemTotal:":
			o.MemTotal = kib(v)
		case "MemAvailable:":
			o.MemFree = kib(v)
		case "HugePages_Total:":
			o.HugePages.Total = kib(v) >> 10
		case "HugePages_Free:":
			o.HugePages.Free = kib(v) >> 10
		case "Hugepagesize:":
			o.HugePages.Size = kib(v)
		}
	}
}
