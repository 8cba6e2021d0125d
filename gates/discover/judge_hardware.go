package discover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/discover/hardware"
	"github.com/narwhal-fleet/narwhal/gates/discover/nvidia"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// judgeHardware checks the GPUs that the fleet's engines use on the host. What is wrong
// with others, and on hosts for which the fleet declares none, is a note.
func (b *bench) judgeHardware(h Hardware) {
	b.key = hardwareKey(b.host)
	us, ds := uses(b.fleet, b.host), h.devices()
	declared := wanted(us)
	if len(us) == 0 {
		return // simulated engines use no device
	}
	if len(h.Trouble) > 0 {
		b.add("gpu-unreadable", "every tool answers and every GPU is known", strings.Join(h.Trouble, "; "), "run the tool on the host; a GPU that is lost needs a reset or a reboot").Note = declared == 0
	}
	if n := len(ds); n < declared {
		got := fmt.Sprint(n)
		if n == 0 && len(h.Absent) > 0 {
			got += ", as " + strings.Join(h.Absent, " and ") + " are absent"
		}
		b.add("gpu-missing", fmt.Sprintf("%d GPUs for %d engines", declared, len(us)), got, "install the driver, or place fewer engines on the host")
	}
	if pci := vendorCount(hardware.GPUs(h.PCI), "10de"); pci > len(h.NVIDIA.GPUs) && len(h.NVIDIA.GPUs) > 0 {
		b.add("gpu-unseen", fmt.Sprintf("all %d GPUs of the PCI bus", pci), fmt.Sprintf("%d in nvidia-smi", len(h.NVIDIA.GPUs)), "dmesg on the host names the GPU that fell off the bus (Xid 79)").Note = declared == 0
	}
	used := b.claims(h, us, ds, declared)
	for _, g := range h.NVIDIA.GPUs {
		whole, isUsed := used[g.UUID]
		b.judgeGPU(g, isUsed && declared > 0, whole, us)
	}
	b.judgeLinks(h, used, declared)
	b.judgeNodes(h, ds, used, declared)
}

func vendorCount(fs []hardware.Function, vendor string) int {
	n := 0
	for _, f := range fs {
		if f.Vendor == vendor {
			n++
		}
	}
	return n
}

// claims finds which GPU each engine uses, by UUID: true where one uses the whole of it.
func (b *bench) claims(h Hardware, us []use, ds []device, declared int) map[string]bool {
	used := map[string]bool{}
	owner := map[string]string{}
	for _, u := range us {
		claims, unknown := h.resolve(u, ds)
		if len(unknown) > 0 && len(ds) > 0 {
			b.add("gpu-absent", "the GPUs that engine "+u.iid+" names", "none called "+strings.Join(unknown, ", "), "nvidia-smi -L on the host lists them")
		}
		for _, c := range claims {
			d := ds[c.device]
			used[d.uuid] = used[d.uuid] || c.whole
			if was := owner[d.uuid]; was != "" && u.names != nil && u.shared == nil && c.whole {
				b.add("gpu-overlap", "one engine on GPU "+label(d), was+" and "+u.iid, "give each launch a device of its own, or declare shared_device")
			}
			if u.names != nil {
				owner[d.uuid] = u.iid
			}
			if want := b.fleet.Hardware; want != nil && !sameProduct(d.name, want.Accelerator) {
				b.add("gpu-product", want.Accelerator, fmt.Sprintf("GPU %s is %q", label(d), d.name), "place the engine on a host of that product, or change hardware.accelerator").Note = declared == 0
			}
		}
	}
	return used
}

func label(d device) string { return fmt.Sprintf("%d (%s)", d.index, cmp.Or(d.bus, d.uuid)) }

// sameProduct lets a declaration leave the vendor and what follows the product out.
func sameProduct(name, want string) bool {
	norm := func(s string) string {
		return strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(strings.Join(strings.Fields(s), " ")), "nvidia "), "amd ")
	}
	return name != "" && strings.Contains(norm(name), norm(want))
}

// judgeGPU checks the switches and counters of one GPU.
func (b *bench) judgeGPU(g nvidia.GPU, used, whole bool, us []use) {
	name := fmt.Sprintf("GPU %d (%s)", g.Index, cmp.Or(g.Bus, g.UUID))
	note := func(f *record.Finding) { f.Note = f.Note || !used }
	if len(g.Faults) > 0 {
		note(b.add("gpu-fault", name+" answers", "an error instead of "+strings.Join(g.Faults, ", "), "nvidia-smi -q -i "+g.UUID+" on the host says more; the GPU may need a reset"))
	}
	if unknown := g.Unknown(); len(unknown) > 0 && len(g.Faults) == 0 {
		note(b.add("gpu-unknown", name+" tells its state", "words that are not known for "+strings.Join(unknown, ", "), "look at the evidence; the driver may be too old or its words localized"))
	}
	if whole && g.MIG == nvidia.On {
		note(b.add("gpu-mig", name+" whole, MIG off", "MIG on", "nvidia-smi -i "+g.UUID+" -mig 0 and a reset, or name MIG devices in the launch"))
	}
	if g.MIG != g.MIGPending && g.MIGPending != nvidia.Unknown && g.MIG != nvidia.Unknown {
		note(b.add("gpu-mig-pending", name+" without a pending change of MIG", "MIG becomes "+string(g.MIGPending)+" at the next reset", "reset the GPU, or set the mode back"))
	}
	if g.Persistence == nvidia.Off {
		note(b.add("gpu-persistence", name+" with persistence mode", "off", "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1"))
	}
	shared := slices.ContainsFunc(us, func(u use) bool { return u.shared != nil && u.shared.GPUUUID == g.UUID })
	if g.Compute == "Prohibited" || shared && strings.HasPrefix(g.Compute, "Exclusive") {
		note(b.add("gpu-compute-mode", name+" open to its engines", g.Compute, "nvidia-smi -i "+g.UUID+" -c DEFAULT"))
	}
	if g.Uncorrected != nil && *g.Uncorrected > 0 {
		note(b.add("gpu-ecc", name+" without uncorrected memory errors", fmt.Sprintf("%d since the driver was loaded", *g.Uncorrected), "drain the host and reset the GPU; replace it if they come again"))
	}
	if g.ECC == nvidia.Off {
		b.add("gpu-ecc-off", name+" with ECC", "off", "nvidia-smi -i "+g.UUID+" -e 1 and a reset").Note = true
	}
	if g.Reasons != nil && len(nvidia.Slowdowns(*g.Reasons)) > 0 {
		note(b.add("gpu-slowdown", name+" at full clocks", strings.Join(nvidia.Slowdowns(*g.Reasons), ", "), "look at cooling and power of the host"))
	}
	if below(g.Width, g.WidthMax) {
		b.add("gpu-pcie-width", fmt.Sprintf("%s on %d PCIe lanes", name, *g.WidthMax), fmt.Sprint(*g.Width), "reseat the board; some GPUs give lanes up while idle").Note = true
	}
	if below(g.LimitW, g.DefaultW) {
		b.add("gpu-power-limit", fmt.Sprintf("%s with its own limit of %d W", name, *g.DefaultW), fmt.Sprintf("%d W", *g.LimitW), "nvidia-smi -i "+g.UUID+" -pl sets it; equal engines need equal limits").Note = true
	}
}

func below(a, b *int64) bool { return a != nil && b != nil && *a < *b }

// judgeLinks finds NVLinks that are down. A GPU without any is fine unless its engine spans
// several GPUs or its neighbours have them.
func (b *bench) judgeLinks(h Hardware, used map[string]bool, declared int) {
	any := slices.ContainsFunc(h.Links, func(l nvidia.Links) bool { return len(l.Active) > 0 })
	spans := b.fleet.Hardware != nil && b.fleet.Hardware.TensorParallel > 1
	for _, l := range h.Links {
		if len(l.Unknown) == 0 && (len(l.Inactive) == 0 || len(l.Active) == 0 && !any && !spans) {
			continue
		}
		got := fmt.Sprintf("links %v inactive", l.Inactive)
		if len(l.Unknown) > 0 {
			got = fmt.Sprintf("links %v in a state that is not known", l.Unknown)
		}
		_, isUsed := used[l.UUID]
		b.add("gpu-link", "every NVLink of "+l.UUID+" active", got, "nvidia-smi nvlink -e -i "+l.UUID+" counts its errors; nvidia-fabricmanager must run on hosts with NVSwitch").Note = !isUsed || declared == 0
	}
}

// judgeNodes checks that the user may open the device files. A container's runtime opens
// them itself.
func (b *bench) judgeNodes(h Hardware, ds []device, used map[string]bool, declared int) {
	if declared == 0 || len(b.fleet.Images(b.host)) > 0 {
		return
	}
	need := map[string]bool{}
	for _, d := range ds {
		if _, isUsed := used[d.uuid]; !isUsed {
			continue
		}
		if d.amd {
			need["/dev/kfd"], need[d.render] = true, true
		} else {
			need["/dev/nvidiactl"] = true
		}
	}
	for _, n := range h.Closed {
		need[n] = need[n] || strings.HasPrefix(n, "/dev/nvidia")
	}
	for _, path := range sortedTrue(need) {
		switch {
		case slices.Contains(h.Closed, path):
			b.add("gpu-node", path+" open to the SSH user", "closed", "add the user to the groups video and render")
		case !slices.Contains(h.Nodes, path):
			b.add("gpu-node", path, "absent", "load the driver's kernel module; nvidia-modprobe makes the file")
		}
	}
}

func sortedTrue(set map[string]bool) []string {
	var out []string
	for k, on := range set {
		if on {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// judgeAffinity tells of GPUs whose KV crosses from one NUMA node to another on its way to
// the fabric.
func (b *bench) judgeAffinity(s seen) {
	h, ok := s.hardware[b.host]
	us := uses(b.fleet, b.host)
	if !ok || len(us) == 0 || b.fleet.Deploy.Fabric.Interface == "" {
		return
	}
	b.key = hardwareKey(b.host)
	card, there := h.Function(s.network[b.host].bus(b.fleet.Deploy.Fabric.Interface))
	if !there {
		return
	}
	var far []string
	for _, d := range h.devices() {
		if f, ok := h.Function(d.bus); ok && hardware.Between(f, card) == hardware.OtherNode {
			far = append(far, label(d))
		}
	}
	if len(far) > 0 {
		b.add("gpu-affinity", "GPUs on the NUMA node of "+b.fleet.Deploy.Fabric.Interface, "on another node: "+strings.Join(far, ", "), "use a network card of each node, or expect less from gate D").Note = true
	}
}

// equalDevices compares drivers between hosts.
func (b *bench) equalDevices(s seen) {
	drivers := map[string]string{}
	for id, h := range s.hardware {
		if us := uses(b.fleet, id); wanted(us) > 0 && len(h.NVIDIA.GPUs) > 0 {
			drivers[id] = h.NVIDIA.GPUs[0].Driver
		}
	}
	b.equal(drivers, hardwareKey, func(first string) *record.Finding {
		f := b.add("gpu-driver", "", "", "install one driver on all hosts: engines of one fleet must compute alike")
		f.Message = fmt.Sprintf("hosts %s and %s have different GPU drivers", first, b.host)
		return f
	})
}
