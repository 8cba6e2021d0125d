package discover

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/discover/model"
	"github.com/narwhal-fleet/narwhal/gates/gatestest"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// clockTaken is when the recorded answers were taken.
var clockTaken = time.Unix(1764442262, 200e6)

const pin = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// testFleet has one engine with one GPU on each of two hosts.
func testFleet() fleet.Fleet {
	return fleet.Fleet{
		Engines:  []fleet.Engine{{IID: "p0", URL: "http://192.0.2.11:8100"}, {IID: "d0", URL: "http://192.0.2.12:8100"}},
		Hardware: &fleet.Hardware{Accelerator: "NVIDIA H100", AcceleratorsPerEngine: 1, TensorParallel: 1},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h1": {Root: "/opt/n"}, "h2": {Root: "/opt/n"}, "jump": {}},
			Engines: map[string]fleet.Place{"p0": {Host: "h1"}, "d0": {Host: "h2"}}, Router: fleet.Router{Host: "h1"},
			Defaults: fleet.Defaults{Launch: "l"}, Launch: map[string]fleet.Launch{"l": {Kind: fleet.LaunchProcess, Argv: []string{"serve"}, ModelDir: "/models/m", Env: map[string]string{"CUDA_VISIBLE_DEVICES": "0"}}},
			Policy: fleet.Policy{MaxClockOffset: fleet.Duration(500 * time.Millisecond), MinDiskFree: 1 << 30},
			Fabric: fleet.Fabric{Interface: "eth1", Transport: "tcp"},
		},
	}
}

func (w *world) launch(change func(*fleet.Launch)) {
	l := w.fleet.Deploy.Launch["l"]
	l.Env = map[string]string{"CUDA_VISIBLE_DEVICES": l.Env["CUDA_VISIBLE_DEVICES"]}
	change(&l)
	w.fleet.Deploy.Launch["l"] = l
}

func testTree() Tree {
	sum := strings.Repeat("a", 64)
	return Tree{Dir: "/models/m", Model: model.NewManifest([]model.File{{Path: "config.json", Size: 2, SHA256: sum}, {Path: "w.safetensors", Size: 9, SHA256: sum}}),
		Config: model.Config{Dtype: "bfloat16", Context: 8192}}
}

// world is what both hosts answer; a test changes the answers of h1.
type world struct {
	t                       *testing.T
	fleet                   fleet.Fleet
	host, hardware, network map[string]string
	clock                   map[string]Clock
	tree                    map[string]Tree
	images                  map[string]string
}

func healthy(t *testing.T) *world {
	w := &world{t: t, fleet: testFleet(), host: map[string]string{}, hardware: map[string]string{}, network: map[string]string{}, clock: map[string]Clock{}, tree: map[string]Tree{}, images: map[string]string{}}
	for _, h := range []string{"h1", "h2"} {
		w.host[h], w.hardware[h], w.network[h] = string(recorded(t, "debian")), string(recorded(t, "hardware")), string(recorded(t, "network"))
		w.clock[h] = Clock{Offset: 0.02, Error: 0.004, Samples: []Sample{{RoundTrip: 0.008, Offset: 0.02}}}
		w.tree[h] = testTree()
		w.images[h] = "== image-0\n" + pin + " []\n-- status 0\n== end\n"
		// The recorded limits are those of a slice; most tests are about others.
		w.swap(w.host, h, "memory.max 274877906944\ncpu.max 3200000 100000\n", "")
	}
	w.swap(w.network, "h2", "192.0.2.11/24", "192.0.2.99/24")
	w.swap(w.network, "h2", `"dst":"192.0.2.12"`, `"dst":"192.0.2.98"`)
	w.network["h2"] = strings.NewReplacer("192.0.2.99", "192.0.2.12", "192.0.2.98", "192.0.2.11", `"prefsrc":"192.0.2.11"`, `"prefsrc":"192.0.2.12"`).Replace(w.network["h2"])
	return w
}

// swap changes an answer and demands that there was something to change.
func (w *world) swap(in map[string]string, host, old, new string) {
	w.t.Helper()
	if !strings.Contains(in[host], old) {
		w.t.Fatalf("nothing to change: %q", old)
	}
	in[host] = strings.Replace(in[host], old, new, 1)
}

func (w *world) view() gates.View {
	all := map[record.Key]any{}
	for _, h := range w.fleet.WorkHosts() {
		all[hostKey(h)], all[hardwareKey(h)], all[networkKey(h)] = []byte(w.host[h]), []byte(w.hardware[h]), []byte(w.network[h])
		all[clockKey(h)], all[modelKey(h)], all[imagesKey(h)] = w.clock[h], Checkpoints{[]Tree{w.tree[h]}}, []byte(w.images[h])
	}
	return gatestest.View(w.t, w.fleet, gates.Release{Arch: "linux/amd64"}, clockTaken, all)
}

// found names findings as code@host, notes with a question mark.
func found(fs []record.Finding) []string {
	var out []string
	for _, f := range fs {
		s := f.Code + "@" + f.Host
		if f.Note {
			s += "?"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

const first, second = "GPU-6f1c1b1e-0000-4c5e-9d5e-000000000001", "GPU-6f1c1b1e-0000-4c5e-9d5e-000000000002"

// TestJudge holds one test for each finding in which it is made, and for each healthy
// variant one in which none is.
func TestJudge(t *testing.T) {
	host := func(old, new string) func(*world) { return func(w *world) { w.swap(w.host, "h1", old, new) } }
	dev := func(old, new string) func(*world) { return func(w *world) { w.swap(w.hardware, "h1", old, new) } }
	net := func(old, new string) func(*world) { return func(w *world) { w.swap(w.network, "h1", old, new) } }
	off := func(s, e float64) func(*world) {
		return func(w *world) { w.clock["h1"] = Clock{Offset: s, Error: e, Samples: make([]Sample, 1)} }
	}
	rdma := func(old, new string) func(*world) {
		return func(w *world) {
			w.fleet.Deploy.Fabric.Transport = "rdma"
			w.swap(w.hardware, "h1", old, new)
		}
	}
	tree := func(change func(*Tree)) func(*world) {
		return func(w *world) { t := w.tree["h1"]; change(&t); w.tree["h1"] = t }
	}
	files := func(change func([]model.File) []model.File) func(*world) {
		return tree(func(t *Tree) { t.Model = model.NewManifest(change(slices.Clone(t.Model.Files))) })
	}
	launch := func(change func(*fleet.Launch)) func(*world) { return func(w *world) { w.launch(change) } }
	both := func(a, b func(*world)) func(*world) { return func(w *world) { a(w); b(w) } }
	// gpus places engines on them, with launches that are built.
	gpus := func(names ...string) func(*world) {
		return func(w *world) {
			w.launch(func(l *fleet.Launch) {
				delete(l.Env, "CUDA_VISIBLE_DEVICES")
				l.Serve = &fleet.Serve{TensorParallel: 1}
			})
			for iid, p := range w.fleet.Deploy.Engines {
				p.GPUs = names
				w.fleet.Deploy.Engines[iid] = p
			}
		}
	}
	convolution := tree(func(t *Tree) { t.Config.Convolution = true })
	bond := func(state string) string {
		return "== bonds\nbond eth1\nBonding Mode: fault-tolerance (active-backup)\nCurrently Active Slave: a\nMII Status: up\nSlave Interface: a\nMII Status: up\nSlave Interface: b\nMII Status: " + state
	}
	for name, c := range map[string]struct {
		change func(*world)
		want   string
	}{
		"two good hosts":        {nil, ""},
		"a cut answer":          {func(w *world) { w.host["h1"] = w.host["h1"][:300] }, "host-unreadable@h1"},
		"a cut list of devices": {func(w *world) { w.hardware["h1"] = w.hardware["h1"][:900] }, "host-unreadable@h1"},
		"a cut list of links":   {func(w *world) { w.network["h1"] = "" }, "host-unreadable@h1"},
		"no links at all":       {func(w *world) { w.network["h1"] = "== links\n== end\n" }, "host-unreadable@h1"},

		"another machine":      {host("x86_64", "aarch64"), "host-architecture@h1"},
		"another system":       {host("Linux\n", "Plan9\n"), "host-architecture@h1"},
		"a full disk":          {host("1421287108", "1048575"), "disk-space@h1"},
		"just enough disk":     {host("1421287108", "1048576"), ""},
		"an unknown disk":      {host("23%", "23"), "disk-space@h1"},
		"no rights":            {host("writable", "read-only"), "root-not-writable@h1"},
		"few open files":       {host("H-n 1048576", "H-n 1024"), "open-files@h1"},
		"some open files":      {host("H-n 1048576", "H-n 8192"), "open-files@h1?"},
		"a narrow slice":       {host("memory.max max\n", "memory.max 1073741824\n"), "group-memory@h1?"},
		"few CPUs":             {host("cpu.max max 100000", "cpu.max 150000 100000"), "group-cpus@h1?"},
		"few tasks":            {host("pids.max 33000", "pids.max 100"), "few-tasks@h1?"},
		"locked memory, TCP":   {host("H-l unlimited", "H-l 64"), ""},
		"locked memory":        {both(rdma("28.42", "28.42"), host("H-l unlimited", "H-l 65536")), "locked-memory@h1"},
		"untold locked memory": {both(rdma("28.42", "28.42"), host("H-l unlimited", "H-l ?")), "locked-memory@h1"},

		"a clock ahead":    {off(0.8, 0.001), "clock-offset@h1"},
		"a clock behind":   {off(-0.8, 0.001), "clock-offset@h1"},
		"a clock unsure":   {off(0.4, 0.3), "clock-offset@h1"},
		"a clock within":   {off(-0.4, 0.05), ""},
		"a clock far away": {off(-1e300, 0), "clock-offset@h1"},
		"no look at all":   {func(w *world) { w.clock["h1"] = Clock{} }, "clock-offset@h1"},
		"no limit on clocks": {func(w *world) {
			off(99, 0)(w)
			w.fleet.Deploy.Policy.MaxClockOffset = 0
		}, ""},

		"no GPU":            {func(w *world) { w.hardware["h1"] = "== nvidia\n-- status 127\n== rocminfo\n-- status 127\n== end\n" }, "gpu-missing@h1"},
		"every GPU":         {launch(func(l *fleet.Launch) { delete(l.Env, "CUDA_VISIBLE_DEVICES") }), ""},
		"more declared":     {func(w *world) { w.fleet.Hardware.AcceleratorsPerEngine = 3 }, "gpu-missing@h1 gpu-missing@h2"},
		"a driver gone":     {dev("1, "+second, "NVIDIA-SMI has failed because"), "gpu-unreadable@h1 gpu-unseen@h1"},
		"a tool that hung":  {dev("-- status 0", "-- status 124"), "gpu-unreadable@h1"},
		"a GPU off the bus": {dev("1, "+second+", 00000000:2A:00.0, NVIDIA H100 80GB HBM3, 81559 MiB, 550.54.15, Enabled, Default, Disabled, Disabled, Enabled, 0, 0, 83.02 W, 700.00 W, 700.00 W, 31, 16, 16, 0x0000000000000001\n", ""), "gpu-unseen@h1"},
		"another product":   {dev("00.0, NVIDIA H100 80GB HBM3", "00.0, NVIDIA A100-SXM4-80GB"), "gpu-product@h1"},
		"an index too far":  {launch(func(l *fleet.Launch) { l.Env["CUDA_VISIBLE_DEVICES"] = "0,7" }), "gpu-absent@h1 gpu-absent@h2"},
		"by UUID":           {launch(func(l *fleet.Launch) { l.Env["CUDA_VISIBLE_DEVICES"] = second[:12] }), ""},
		"another's UUID":    {launch(func(l *fleet.Launch) { l.Env["CUDA_VISIBLE_DEVICES"] = "GPU-99" }), "gpu-absent@h1 gpu-absent@h2"},
		"one GPU for two": {func(w *world) {
			w.fleet.Engines = append(w.fleet.Engines, fleet.Engine{IID: "d1", URL: "http://192.0.2.11:8101"})
			w.fleet.Deploy.Engines["d1"] = fleet.Place{Host: "h1"}
		}, "gpu-overlap@h1"},
		"placed GPUs too far":    {gpus("7"), "gpu-absent@h1 gpu-absent@h2"},
		"placed GPUs that exist": {gpus("0"), ""},
		"placed GPUs of a worker": {both(gpus("0"), func(w *world) {
			p := w.fleet.Deploy.Engines["p0"]
			p.Workers = []string{"h2"}
			w.fleet.Deploy.Engines["p0"] = p
		}), "gpu-overlap@h2"},
		"no GPU for an engine": {launch(func(l *fleet.Launch) { l.Env["CUDA_VISIBLE_DEVICES"] = "-1" }), ""},
		"one placed GPU for two": {both(gpus("0"), func(w *world) {
			w.fleet.Engines = append(w.fleet.Engines, fleet.Engine{IID: "d1", URL: "http://192.0.2.11:8101"})
			w.fleet.Deploy.Engines["d1"] = fleet.Place{Host: "h1", GPUs: []string{"0"}}
		}), "gpu-overlap@h1"},
		"MIG":         {dev("Default, Disabled, Disabled", "Default, Enabled, Enabled"), "gpu-mig@h1"},
		"MIG pending": {dev("Default, Disabled, Disabled", "Default, Disabled, Enabled"), "gpu-mig-pending@h1"},
		"a slice named": {both(dev("Default, Disabled, Disabled", "Default, Enabled, Enabled"), func(w *world) {
			for _, h := range []string{"h1", "h2"} {
				w.swap(w.hardware, h, "GPU 1: NVIDIA", "MIG 1g.10gb Device 0: (UUID: MIG-aaaa)\nGPU 1: NVIDIA")
			}
			w.launch(func(l *fleet.Launch) { l.Env["CUDA_VISIBLE_DEVICES"] = "MIG-aaaa" })
		}), ""},
		"no persistence":   {dev("550.54.15, Enabled", "550.54.15, Disabled"), "gpu-persistence@h1"},
		"another GPU":      {dev("550.54.15, Enabled, Default, Disabled, Disabled, Enabled, 0, 0, 83.02", "550.54.15, Disabled, Default, Disabled, Disabled, Enabled, 4, 4, 83.02"), "gpu-ecc@h1? gpu-persistence@h1?"},
		"prohibited":       {dev("Enabled, Default", "Enabled, Prohibited"), "gpu-compute-mode@h1"},
		"ECC errors":       {dev("Disabled, Enabled, 0", "Disabled, Enabled, 2"), "gpu-ecc@h1"},
		"no ECC":           {dev("Disabled, Enabled, 0, 0", "Disabled, Disabled, [N/A], [N/A]"), "gpu-ecc-off@h1?"},
		"slowed down":      {dev("0x0000000000000001", "0x0000000000000040"), "gpu-slowdown@h1"},
		"capped":           {dev("0x0000000000000001", "0x0000000000000004"), ""},
		"few lanes":        {dev("28, 16, 16", "28, 8, 16"), "gpu-pcie-width@h1?"},
		"a power limit":    {dev("700.00 W, 700.00 W", "500.00 W, 700.00 W"), "gpu-power-limit@h1?"},
		"a fault":          {dev("550.54.15, Enabled", "550.54.15, [Unknown Error]"), "gpu-fault@h1"},
		"another language": {dev("550.54.15, Enabled", "550.54.15, Aktiviert"), "gpu-unknown@h1"},
		"coloured":         {dev("550.54.15, Enabled", "550.54.15, \x1b[32mEnabled\x1b[0m"), ""},
		"a link down":      {dev("Link 1: 26.562 GB/s", "Link 1: <inactive>"), "gpu-link@h1"},
		"a link unknown":   {dev("Link 1: 26.562 GB/s", "Link 1: inaktiv"), "gpu-link@h1"},
		"no links on PCIe boards": {func(w *world) {
			for range 4 {
				w.hardware["h1"] = strings.Replace(w.hardware["h1"], "26.562 GB/s", "<inactive>", 1)
			}
		}, ""},
		"no links across GPUs": {func(w *world) {
			for range 4 {
				w.hardware["h1"] = strings.Replace(w.hardware["h1"], "26.562 GB/s", "<inactive>", 1)
			}
			w.fleet.Hardware = &fleet.Hardware{Accelerator: "H100", AcceleratorsPerEngine: 2, TensorParallel: 2}
			w.launch(func(l *fleet.Launch) { l.Env["CUDA_VISIBLE_DEVICES"] = "0,1" })
		}, "gpu-link@h1 gpu-link@h1"},
		"a closed device":   {dev("/dev/nvidia0\n", "/dev/nvidia0 closed\n"), "gpu-node@h1"},
		"an absent device":  {dev("/dev/nvidiactl\n", ""), "gpu-node@h1"},
		"another driver":    {func(w *world) { w.hardware["h1"] = strings.ReplaceAll(w.hardware["h1"], "550.54.15", "560.35.03") }, "gpu-driver@h2"},
		"far from the card": {dev("0x2330|0|16|16|32.0 GT/s PCIe|32.0 GT/s PCIe|/sys/devices/pci0000:27", "0x2330|1|16|16|32.0 GT/s PCIe|32.0 GT/s PCIe|/sys/devices/pci0000:27"), "gpu-affinity@h1?"},
		"AMD": {func(w *world) {
			w.hardware["h1"], w.hardware["h2"] = string(recorded(t, "amd")), string(recorded(t, "amd"))
			w.fleet.Hardware.Accelerator = "MI300X"
		}, ""},
		"AMD without a node": {func(w *world) {
			w.hardware["h1"], w.hardware["h2"] = string(recorded(t, "amd")), string(recorded(t, "amd"))
			w.fleet.Hardware.Accelerator = "MI300X"
			w.swap(w.hardware, "h1", "drm_render_minor 128", "drm_render_minor 0")
		}, "gpu-missing@h1 gpu-unreadable@h1"},
		"AMD closed": {func(w *world) {
			w.hardware["h1"], w.hardware["h2"] = string(recorded(t, "amd")), string(recorded(t, "amd"))
			w.fleet.Hardware.Accelerator = "MI300X"
			w.swap(w.hardware, "h1", "renderD128\n", "renderD128 closed\n")
		}, "gpu-node@h1"},
		"nothing declared": {func(w *world) {
			w.fleet.Hardware = nil
			w.launch(func(l *fleet.Launch) { l.Env = nil })
			w.swap(w.hardware, "h1", "550.54.15, Enabled", "550.54.15, Disabled")
			w.hardware["h2"] = "== nvidia\n-- status 127\n== rocminfo\n-- status 127\n== end\n"
		}, "gpu-persistence@h1?"},
		"simulated": {func(w *world) {
			w.fleet.Deploy.Launch["l"] = fleet.Launch{Kind: fleet.LaunchSimulated, ModelDir: "/models/m"}
			w.hardware["h1"] = "== nvidia\n-- status 9\n== rocminfo\n-- status 127\n== end\n"
			w.swap(w.host, "h1", "H-n 1048576", "H-n 12")
		}, ""},

		"no fabric interface": {net("eth1|9000|up|1|400000|full||0000:1a:00.0|0\n", ""), "fabric-interface@h1"},
		"its link down":       {net("eth1|9000|up|1", "eth1|9000|down|0"), "fabric-down@h1"},
		"half duplex":         {net("400000|full", "400000|half"), "fabric-duplex@h1"},
		"a whole bond":        {net("== bonds", bond("up")), ""},
		"a bond with less":    {net("== bonds", bond("down")), "fabric-bond@h1"},
		"another MTU":         {net("eth1|9000", "eth1|1500"), "fabric-mtu@h2"},
		"another speed":       {net("400000", "100000"), "fabric-speed@h2"},
		"no such address":     {net("eth1 inet 192.0.2.11/24", "eth1 inet 192.0.2.77/24"), "fabric-address@h1"},
		"on another link":     {net("eth1 inet 192.0.2.11/24", "eth0 inet 192.0.2.11/24"), "fabric-address@h1"},
		"another way":         {net(`"dev":"eth1"`, `"dev":"eth0"`), "fabric-route@h1"},
		"no way":              {net(`[{"dst"`, `[{"type":"unreachable","dst"`), "fabric-route@h1"},
		"from another":        {net(`"prefsrc":"192.0.2.11"`, `"prefsrc":"198.51.100.11"`), "fabric-source@h1"},
		"from another, any": {func(w *world) {
			w.fleet.Deploy.Fabric.Interface = ""
			w.swap(w.network, "h1", `"prefsrc":"192.0.2.11"`, `"prefsrc":"198.51.100.11"`)
		}, "fabric-source@h1?"},
		"a way untold":  {net(`[{"dst"`, `[{"destination"`), "route-unknown@h1?"},
		"any interface": {func(w *world) { w.fleet.Deploy.Fabric.Interface = "" }, ""},

		"RDMA":               {rdma("28.42", "28.42"), ""},
		"no RDMA":            {rdma("device mlx5_0|28.42.1000|MT_0000000838|a088:c203:007e:1dba|0000:1a:00.0|0\n", ""), "rdma-absent@h1"},
		"its port down":      {rdma("4: ACTIVE", "1: DOWN"), "rdma-port@h1"},
		"of another link":    {rdma("Ethernet|eth1", "Ethernet|eth7"), "rdma-port@h1"},
		"no RoCE v2 address": {rdma("gid 3|0000:0000:0000:0000:0000:ffff:c000:020b|RoCE v2|eth1\n", ""), "rdma-gid@h1"},
		"no provider":        {rdma("hca_id: mlx5_0", "No IB devices found"), "rdma-unopened@h1"},
		"another rate":       {rdma("400 Gb/sec", "200 Gb/sec"), "rdma-rate@h2"},
		"another firmware":   {rdma("28.42.1000", "28.39.1002"), "rdma-firmware@h2?"},

		"no checkpoint":      {tree(func(t *Tree) { *t = Tree{Dir: t.Dir, Absent: true} }), "model-absent@h1"},
		"an empty folder":    {tree(func(t *Tree) { t.Model = model.NewManifest(nil) }), "model-absent@h1"},
		"a socket in it":     {tree(func(t *Tree) { t.Odd = []string{"x"} }), "model-entry@h1"},
		"a closed file":      {tree(func(t *Tree) { t.Unread = []string{"config.json"} }), "model-unread@h1"},
		"still copied":       {tree(func(t *Tree) { t.Moved = []string{"a", "b", "c", "d"} }), "model-changing@h1"},
		"a made-up manifest": {tree(func(t *Tree) { t.Model.Root = strings.Repeat("0", 64) }), "model-manifest@h1"},
		"no configuration":   {tree(func(t *Tree) { t.NoConfig = "read config.json: EOF" }), "model-config@h1"},
		"another shard":      {files(func(f []model.File) []model.File { f[1].SHA256 = strings.Repeat("b", 64); return f }), "model-differs@h2"},
		"a shard less":       {files(func(f []model.File) []model.File { return f[:1] }), "model-differs@h2"},
		"its own program":    {tree(func(t *Tree) { t.Config.Code = []string{"AutoModel = m.A"} }), "model-code@h1"},
		"a trusted program":  {both(tree(func(t *Tree) { t.Config.Code = []string{"AutoModel = m.A"} }), launch(func(l *fleet.Launch) { l.Argv = []string{"serve", "--trust-remote-code"} })), "model-code@h1?"},
		"too long a context": {launch(func(l *fleet.Launch) { l.Argv = []string{"serve", "--max-model-len", "16384"} }), "model-context@h1 model-context@h2"},
		"its whole context":  {launch(func(l *fleet.Launch) { l.Argv = []string{"serve", "--max-model-len=8192"} }), ""},
		"another dtype":      {launch(func(l *fleet.Launch) { l.Argv = []string{"serve", "--dtype", "half"} }), "model-dtype@h1? model-dtype@h2?"},
		"the same dtype":     {launch(func(l *fleet.Launch) { l.Argv = []string{"serve", "--dtype", "bf16"} }), ""},
		"state-space layers": {convolution, "model-layout@h1"},
		"their layout":       {both(convolution, launch(func(l *fleet.Launch) { l.Env["VLLM_SSM_CONV_STATE_LAYOUT"] = "DS" })), ""},
		"another layout":     {both(convolution, launch(func(l *fleet.Launch) { l.Env["VLLM_SSM_CONV_STATE_LAYOUT"] = "SD" })), "model-layout@h1"},
		"SGLang":             {both(convolution, func(w *world) { w.fleet.Engine.Backend = "sglang" }), "model-layout@h1"},
		"SGLang told": {both(convolution, func(w *world) {
			w.fleet.Engine.Backend = "sglang"
			w.launch(func(l *fleet.Launch) { l.Argv = []string{"--mamba-radix-cache-strategy", "no_buffer"} })
		}), ""},

		"an image":      {launch(container), ""},
		"no image":      {both(launch(container), func(w *world) { w.images["h1"] = "== image-0\nError: No such image\n-- status 1\n== end\n" }), "image-absent@h1"},
		"another image": {both(launch(container), func(w *world) { w.images["h1"] = strings.ReplaceAll(w.images["h1"], "aaaa", "bbbb") }), "image-differs@h1"},
	} {
		w := healthy(t)
		if c.change != nil {
			c.change(w)
		}
		got := Gate{}.Judge(w.view())
		if strings.Join(found(got), " ") != c.want {
			t.Errorf("%s: found %v, want %s", name, found(got), c.want)
			for _, f := range got {
				t.Log(f.Message)
			}
		}
		for _, x := range got {
			if x.Message == "" || x.Evidence == "" || x.Hint == "" || x.Want == x.Got {
				t.Errorf("%s: finding %+v says too little", name, x)
			}
		}
	}
}

func container(l *fleet.Launch) { l.Kind, l.Image = fleet.LaunchContainer, pin }

func TestJudgeFiles(t *testing.T) {
	const file = "/models/m"
	sum := strings.Repeat("a", 64)
	line := func(digest string) string { return "== files\n" + digest + " 1 2 3 " + file + "\n" }
	for name, c := range map[string]struct {
		h1, h2 string
		named  []string
		want   string
	}{
		"a file on both":                    {line(sum), line(sum), []string{"h1", "h2"}, ""},
		"two kinds of a file":               {line(sum), line(strings.Repeat("b", 64)), []string{"h1", "h2"}, "replica-differs@h2"},
		"an absent file":                    {"== files\nabsent " + file + "\n", "", []string{"h1"}, "file-absent@h1"},
		"a file that could not be hashed":   {line("-"), "", []string{"h1"}, "file-absent@h1"},
		"a file that the answer leaves out": {"", "", []string{"h1"}, "file-absent@h1"},
		"files that nobody named":           {line(sum), line(strings.Repeat("b", 64)), nil, ""},
	} {
		w := healthy(t)
		for h, l := range map[string]string{"h1": c.h1, "h2": c.h2} {
			if l != "" {
				w.swap(w.host, h, "== files\n", l)
			}
		}
		for _, h := range c.named {
			x := w.fleet.Deploy.Hosts[h]
			x.Files = []string{file}
			w.fleet.Deploy.Hosts[h] = x
		}
		if got := found(Gate{}.Judge(w.view())); strings.Join(got, " ") != c.want {
			t.Errorf("%s: found %v, want %s", name, got, c.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	w := healthy(t)
	w.swap(w.hardware, "h1", "28, 16, 16", "28, 8, 16")
	state, fs := gates.Verdict(Gate{}, w.view(), nil)
	if state != record.VerdictPassed || len(fs) != 1 || !fs[0].Note {
		t.Errorf("a note alone: %s, %v", state, fs)
	}
	v := gatestest.View(t, w.fleet, gates.Release{}, clockTaken, map[record.Key]any{hostKey("h1"): []byte(w.host["h1"])})
	if got := (Gate{}).Judge(v); len(got) != 0 {
		t.Errorf("found %v without evidence", got)
	}
	if state, missing := gates.Verdict(Gate{}, v, nil); state != record.VerdictInconclusive || len(missing) != 9 {
		t.Errorf("verdict %s, %v", state, missing)
	}
}

func TestExpect(t *testing.T) {
	f := testFleet()
	want := "A/inputs A/host/h1 A/clock/h1 A/network/h1 A/hardware/h1 A/model/h1 A/host/h2 A/clock/h2 A/network/h2 A/hardware/h2 A/model/h2"
	var got []string
	for _, k := range (Gate{}).Expect(f) {
		got = append(got, string(k))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
	f.Deploy.Launch["l"] = fleet.Launch{Kind: fleet.LaunchContainer, Image: pin}
	f.Deploy.Router.Host = "jump"
	if keys := (Gate{}).Expect(f); !slices.Contains(keys, imagesKey("h1")) || slices.Contains(keys, modelKey("h1")) || !slices.Contains(keys, hostKey("jump")) || slices.Contains(keys, hardwareKey("jump")) {
		t.Errorf("got %v", keys)
	}
}

func TestFacts(t *testing.T) {
	got := Gate{}.Facts(hostKey("h1"), recorded(t, "alpine"))
	if got["host/h1/boot"] != "7d6b4f5c-2a8f-43b9-9a1e-1f9c2f1d0a77" || got["host/h1/files"] != "none" || got["host/h1/machine"] != "linux/arm64" || len(got) != 3 {
		t.Errorf("facts %v", got)
	}
	for k, b := range map[record.Key]string{hostKey("h1"): "garbage", inputsKey: "{}", modelKey("h1"): "garbage", hardwareKey("h1"): "== end"} {
		if got := (Gate{}).Facts(k, []byte(b)); got != nil {
			t.Errorf("facts of %s: %v", k, got)
		}
	}
	b, err := json.Marshal(Checkpoints{[]Tree{testTree()}})
	if err != nil {
		t.Fatal(err)
	}
	if got := (Gate{}).Facts(modelKey("h1"), b); len(got["host/h1/trees"]) != 64 {
		t.Errorf("facts %v", got)
	}
}

// TestPlan makes one step for each piece of evidence, and only for what is wanted.
func TestPlan(t *testing.T) {
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := testFleet()
	run := &gates.Runner{Gates: []gates.Gate{Gate{}}, Fleet: f, Record: r, Progress: gates.Quiet{}}
	forecast, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, s := range forecast.Gates[0].Plan.Steps {
		if ids = append(ids, s.ID); s.Effect != gates.Observe || s.Limit <= 0 || s.Host == "" && s.ID != "A/inputs" || string(s.Yields) != s.ID {
			t.Errorf("step %+v", s)
		}
		if s.Local != nil && s.Host != "" && len(s.Local.Runs[s.Host]) == 0 {
			t.Errorf("step %s hides what it runs", s.ID)
		}
	}
	if len(ids) != 11 {
		t.Errorf("steps %v", ids)
	}
}
