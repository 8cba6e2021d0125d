package discover

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// Judge checks each host alone and then what must be equal on all of them.
func (Gate) Judge(v gates.View) []record.Finding {
	var out []record.Finding
	digests := map[string]map[string]string{} // path → host → digest
	for _, id := range v.Fleet.WorkHosts() {
		b, err := v.Evidence(hostKey(id))
		if err != nil {
			continue // the runner reports missing evidence
		}
		o, err := Parse(b)
		if err != nil {
			out = append(out, record.Finding{Code: "host-unreadable", Host: id, Evidence: string(hostKey(id)), Message: fmt.Sprintf("host %s: %v", id, err),
				Hint: "the evidence holds what its shell printed; narwhal gate run --again A asks again"})
			continue
		}
		out = append(out, judgeHost(v, id, o)...)
		for _, f := range o.Files {
			if !slices.Contains(v.Fleet.Deploy.Hosts[id].Files, f.Path) {
				continue // nobody asked for it
			}
			if digests[f.Path] == nil {
				digests[f.Path] = map[string]string{}
			}
			digests[f.Path][id] = f.SHA256
		}
	}
	return append(out, judgeReplicas(v.Fleet.WorkHosts(), digests)...)
}

// machines maps uname -m to Go's names.
var machines = map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

func judgeHost(v gates.View, id string, o Observation) []record.Finding {
	var out []record.Finding
	at := string(hostKey(id))
	add := func(code, want, got, hint string) {
		out = append(out, record.Finding{Code: code, Host: id, Want: want, Got: got, Evidence: at, Hint: hint,
			Message: fmt.Sprintf("host %s: %s: got %s, want %s", id, code, got, want)})
	}
	if arch := v.Release.Arch; arch != "" {
		if got := osName(o.OS) + "/" + machines[o.Machine]; got != arch {
			add("host-architecture", arch, got, "give a narwhal binary for that machine: deploy.release.binary")
		}
	}
	d := v.Fleet.Deploy
	if min := int64(d.Policy.MinDiskFree); o.DiskFree < min {
		add("disk-space", d.Policy.MinDiskFree.String()+" free", size(o.DiskFree), "free space there or lower deploy.policy.min_disk_free")
	}
	if !o.Writable {
		add("root-not-writable", "a root folder that "+o.User+" may write", d.Hosts[id].Root, "create the folder and give it to "+o.User+", or set another root")
	}
	if off, ok := offset(v, id, o); ok && off > d.Policy.MaxClockOffset.D() && d.Policy.MaxClockOffset > 0 {
		add("clock-offset", "at most "+d.Policy.MaxClockOffset.String(), off.Round(time.Millisecond).String(), "let the host follow a time server, then run narwhal gate run --again A")
	}
	if i := d.Fabric.Interface; i != "" && !hasInterface(o, i) {
		add("fabric-interface", "interface "+i, "none of that name", "set deploy.fabric.interface to one of the host's interfaces")
	}
	hashed := map[string]bool{}
	for _, f := range o.Files {
		hashed[f.Path] = f.SHA256 != ""
	}
	for _, path := range d.Hosts[id].Files {
		if !hashed[path] {
			add("file-absent", path, "absent or unreadable", "copy the file to the host or drop it from its files")
		}
	}
	return out
}

func osName(uname string) string {
	switch uname {
	case "Linux":
		return "linux"
	case "Darwin":
		return "darwin"
	}
	return uname
}

// offset is how far the host's clock stood from the workstation's when its answer came:
// an upper bound, since the way of the answer counts in.
func offset(v gates.View, id string, o Observation) (time.Duration, bool) {
	when, ok := v.Taken(hostKey(id))
	if !ok {
		return 0, false
	}
	s := min(math.Abs(o.Clock-float64(when.UnixNano())/1e9), math.MaxInt32) // 68 years
	return time.Duration(s * float64(time.Second)), true
}

func hasInterface(o Observation, name string) bool {
	for _, i := range o.Interfaces {
		if i.Name == name {
			return true
		}
	}
	return false
}

// judgeReplicas names files that differ between hosts that both have them.
func judgeReplicas(hosts []string, digests map[string]map[string]string) []record.Finding {
	var out []record.Finding
	for _, path := range slices.Sorted(maps.Keys(digests)) {
		by := digests[path]
		first, digest := "", ""
		for _, h := range hosts {
			switch d := by[h]; {
			case d == "":
			case digest == "":
				first, digest = h, d
			case d != digest:
				out = append(out, record.Finding{Code: "replica-differs", Host: h, Want: digest, Got: d, Evidence: string(hostKey(h)),
					Message: fmt.Sprintf("%s differs between hosts %s and %s", path, first, h), Hint: "copy the same file to both hosts"})
			}
		}
	}
	return out
}

func size(n int64) string { return fleet.Size(n >> 20 << 20).String() }
