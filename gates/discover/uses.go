package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// device is one GPU of a host, of any vendor.
type device struct {
	index           int // as the vendor's tools count
	uuid, bus, name string
	amd             bool
	render          string
}

func (h Hardware) devices() []device {
	var out []device
	for _, g := range h.NVIDIA.GPUs {
		out = append(out, device{index: g.Index, uuid: g.UUID, bus: g.Bus, name: g.Name})
	}
	for i, g := range h.AMD {
		out = append(out, device{index: i, uuid: g.UUID, bus: g.Bus, name: g.Product, amd: true, render: g.Render})
	}
	return out
}

// visibility are the variables by which a launch names its GPUs.
var visibility = []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}

// use is what one engine asks of a host's GPUs.
type use struct {
	iid    string
	names  []string // nil = all
	count  int      // declared; 0 = not told
	shared *fleet.SharedDevice
}

// uses lists what the ranks of a host ask for, as their launches are built; simulated ones ask for nothing.
func uses(f fleet.Fleet, host string) []use {
	var out []use
	for _, e := range f.Engines {
		ranks := 1 + f.Workers(e.IID)
		for rank := range ranks {
			r, err := f.ResolveRank(e.IID, rank)
			if err != nil || r.Host != host || r.Kind == fleet.LaunchSimulated {
				continue
			}
			u := use{iid: e.IID, shared: e.SharedDevice}
			var none bool
			if u.names, none = named(r); none {
				continue
			}
			if e.SharedDevice != nil && u.names == nil {
				u.names = []string{e.SharedDevice.GPUUUID}
			}
			u.count = len(u.names)
			if f.Hardware != nil {
				u.count = (f.Hardware.AcceleratorsPerEngine + ranks - 1) / ranks
			}
			out = append(out, u)
		}
	}
	return out
}

// named are the GPUs that a rank's launch names, nil for any; none is true when it sees none.
func named(r fleet.Resolved) (names []string, none bool) {
	for _, v := range visibility {
		switch s, ok := r.Env[v]; strings.TrimSpace(s) {
		case "all":
		case "", "-1", "none", "void":
			if ok {
				return nil, true
			}
		default:
			return strings.Split(s, ","), false
		}
	}
	return r.GPUs, false
}

// wanted counts the GPUs that the fleet declares for a host: those of engines that share
// one count once.
func wanted(us []use) int {
	n := 0
	groups := map[string]bool{}
	for _, u := range us {
		if u.shared != nil {
			if groups[u.shared.Group] {
				continue
			}
			groups[u.shared.Group] = true
		}
		n += u.count
	}
	return n
}

// claim is one GPU that an engine uses: the whole of it, or a slice.
type claim struct {
	device int // of devices
	whole  bool
}

// resolve finds the GPUs that a launch names. Indices and leading parts of a UUID count, as
// they do for CUDA.
func (h Hardware) resolve(u use, ds []device) (claims []claim, unknown []string) {
	if u.names == nil {
		for i := range ds {
			claims = append(claims, claim{i, true})
		}
		return claims, nil
	}
	for _, name := range u.names {
		name = strings.TrimSpace(name)
		whole := true
		i := slices.IndexFunc(ds, func(d device) bool {
			n, err := strconv.Atoi(name)
			return err == nil && d.index == n || strings.HasPrefix(name, "GPU-") && len(name) > 4 && strings.HasPrefix(d.uuid, name)
		})
		if strings.HasPrefix(name, "MIG-") {
			whole = false
			for _, s := range h.Slices {
				if s.UUID == name {
					i = slices.IndexFunc(ds, func(d device) bool { return d.uuid == s.GPU })
				}
			}
		}
		if i < 0 {
			unknown = append(unknown, fmt.Sprintf("%.60q", name))
			continue
		}
		claims = append(claims, claim{i, whole})
	}
	return claims, unknown
}
