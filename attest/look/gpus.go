package look

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	nvidiaDevice = regexp.MustCompile(`^/dev/nvidia([0-9]+)$`)
	renderNode   = regexp.MustCompile(`^/dev/dri/(renderD[0-9]+)$`)
	migDevice    = regexp.MustCompile(`^/dev/nvidia-caps/`)
)

// gpus lists the UUIDs of the devices that a family has open.
func (r roots) gpus(family []int) Seen {
	var out []string
	minors, nodes, kfd, mig := map[string]bool{}, map[string]bool{}, false, false
	for _, pid := range family {
		open, err := r.descriptors(pid)
		if err != nil {
			return unknown("read open files: %s", why(err))
		}
		for _, to := range open {
			if m := nvidiaDevice.FindStringSubmatch(to); m != nil {
				minors[m[1]] = true
			} else if m := renderNode.FindStringSubmatch(to); m != nil {
				nodes[m[1]] = true
			}
			kfd = kfd || to == "/dev/kfd"
			mig = mig || migDevice.MatchString(to)
		}
	}
	uuids, err := r.nvidia()
	if len(minors) > 0 && err != nil {
		return unknown("read the NVIDIA driver's files: %s", why(err))
	}
	for m := range minors {
		if uuids[m] == "" {
			return unknown("the driver names no device with minor %s", m)
		}
		out = append(out, uuids[m])
	}
	for n := range nodes {
		if !kfd {
			continue // a display, not a compute device
		}
		id, err := r.amd(n)
		if err != nil {
			return unknown("read %s: %s", n, why(err))
		}
		out = append(out, id)
	}
	if mig {
		out = append(out, r.instances(family)...)
	}
	return seen(out...)
}

// nvidia maps device minors to UUIDs.
func (r roots) nvidia() (map[string]string, error) {
	dir := filepath.Join(r.proc, "driver/nvidia/gpus")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range entries {
		b, err := read(filepath.Join(dir, e.Name(), "information"))
		if err != nil {
			return nil, err
		}
		minor, uuid := nvidiaIn(string(b))
		if minor != "" && strings.HasPrefix(uuid, "GPU-") && !strings.Contains(uuid, "?") {
			out[minor] = uuid
		}
	}
	return out, nil
}

// nvidiaIn reads a device's minor and UUID from its page.
func nvidiaIn(page string) (minor, uuid string) {
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "GPU UUID":
			uuid = strings.TrimSpace(value)
		case "Device Minor":
			minor = strings.TrimSpace(value)
		}
	}
	return minor, uuid
}

// amd names a render node's device by its unique id, else by its PCI address.
func (r roots) amd(node string) (string, error) {
	device := filepath.Join(r.sys, "class/drm", node, "device")
	if b, err := read(filepath.Join(device, "unique_id")); err == nil {
		if id := strings.TrimSpace(string(b)); id != "" && id != "0" {
			return "GPU-" + id, nil
		}
	}
	to, err := os.Readlink(device)
	if err != nil {
		return "", err
	}
	return "pci:" + filepath.Base(to), nil
}

// instances are MIG UUIDs that the environment makes visible.
func (r roots) instances(family []int) []string {
	var out []string
	for _, pid := range family {
		env, err := read(r.of(pid, "environ"))
		if err != nil {
			continue
		}
		for _, e := range split(env) {
			name, value, _ := strings.Cut(e, "=")
			if name != "CUDA_VISIBLE_DEVICES" && name != "NVIDIA_VISIBLE_DEVICES" {
				continue
			}
			for id := range strings.SplitSeq(value, ",") {
				if strings.HasPrefix(id, "MIG-") {
					out = append(out, id)
				}
			}
		}
	}
	return out
}
