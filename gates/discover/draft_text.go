package discover

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/discover/network"
)

// mark asks the operator for a decision: the text gets the comment, the list its line.
func (d *draft) mark(indent, what string) {
	d.fill = append(d.fill, what)
	d.line("%s// FILL %s", indent, what)
}

func (d *draft) line(format string, args ...any) { fmt.Fprintf(d.w, format+"\n", args...) }

// cue is a CUE literal of plain data.
func cue(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("marshal %T: %v", v, err)) // plain data always marshals
	}
	return strings.TrimSpace(b.String())
}

func (d *draft) heading(run string) {
	d.line("// %s: drafted from what gate A found on %d hosts with %d GPUs, run %s.", oneLine(d.fleet.Deploy.Name), len(d.fleet.EngineHosts()), d.count(), oneLine(run))
	d.line("//")
	d.line("// Lines with FILL hold a placeholder or a guess that no probe can settle: %d in all.", len(d.fill))
	faults := 0
	for _, f := range d.findings {
		if !f.Note {
			faults++
		}
	}
	if faults > 0 {
		d.line("// Gate A found %d faults; they stand in the way of a run:", faults)
		for _, f := range d.findings {
			if !f.Note {
				d.line("//   %s", oneLine(f.Message))
			}
		}
	}
	d.line("package fleet")
	d.line("")
}

func (d *draft) count() int {
	n := 0
	for _, g := range d.gpus {
		n += len(g)
	}
	return n
}

// oneLine is foreign text in a comment.
func oneLine(s string) string {
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "")
	}
	return strings.Join(strings.Fields(s), " ")
}

func (d *draft) top() {
	d.line("schema:         \"narwhal.fleet\"")
	d.line("schema_version: 2")
	d.mark("", "the name under which clients ask for the model")
	d.line("model: %s", cue(d.fleet.Model))
	d.line("")
	d.mark("", "the latency that users are promised, in seconds")
	d.line("slo: {ttft_s: %s, tpot_s: %s}", cue(d.fleet.SLO.TTFTS), cue(d.fleet.SLO.TPOTS))
	switch {
	case d.product != "":
		d.mark("", "GPUs of one engine: more than one when the model does not fit into one")
		d.line("hardware: {accelerator: %s, accelerators_per_engine: 1, tensor_parallel: 1}", cue(d.product))
	case d.count() > 0:
		d.line("// Hosts have GPUs of different products, so hardware is not declared: engines of one fleet need one.")
	}
	d.line("")
	d.mark("", "which engines begin with prefill; the controller moves roles later")
	d.line("engines: [")
	for _, e := range d.engines {
		http, sidecar := d.port(8100+e.n), d.port(8150+e.n)
		d.line("\t{iid: %s, url: %s, attestation_url: %s, role: %s},", cue(e.iid), cue("http://"+net.JoinHostPort(e.address, http)),
			cue("http://"+net.JoinHostPort(e.address, sidecar)+"/v1/attestation"), cue(e.role))
	}
	d.line("]")
	d.line("")
}

// port is the first of a number's successors on which no host listens.
func (d *draft) port(n int) string {
	taken := func(p string) bool {
		for _, o := range d.seen.host {
			for _, l := range o.Listeners {
				if strings.HasSuffix(l, ":"+p) {
					return true
				}
			}
		}
		return false
	}
	for ; taken(fmt.Sprint(n)) && n < 65000; n += 100 {
	}
	return fmt.Sprint(n)
}

func (d *draft) deploy() {
	d.line("deploy: {")
	d.line("\tname: %s", cue(d.fleet.Deploy.Name))
	d.line("\thosts: {")
	for _, id := range sortedKeysOf(d.fleet.Deploy.Hosts) {
		d.host(id)
	}
	d.line("\t}")
	d.line("\tengines: {")
	for _, e := range d.engines {
		d.line("\t\t%s: {host: %s, launch: %s}", cue(e.iid), cue(e.host), cue(e.launch))
	}
	d.line("\t}")
	d.launches()
	d.line("\trouter: {host: %s, listen: %s}", cue(d.hosts[0]), cue("127.0.0.1:"+d.port(8000)))
	d.fabric()
	d.mark("\t", "the traffic of the trial: requests/s, prompt and answer lengths")
	d.line("\ttrial: {rates: [0.5, 1], requests: 200}")
	d.line("}")
}

// host keeps how a host is reached and tells in comments what it is.
func (d *draft) host(id string) {
	for _, l := range d.describe(id) {
		d.line("\t\t// %s", oneLine(l))
	}
	h := d.fleet.Deploy.Hosts[id]
	fields := []string{"address: " + cue(cmp.Or(h.Address, id))}
	for _, f := range []struct{ name, value string }{{"user", h.User}, {"jump", h.Jump}, {"known_hosts", h.KnownHosts}, {"identity", h.Identity}, {"passphrase", string(h.Passphrase)}, {"password", string(h.Password)}, {"root", h.Root}} {
		if f.value != "" {
			fields = append(fields, f.name+": "+cue(f.value))
		}
	}
	if h.Port != 0 {
		fields = append(fields, fmt.Sprintf("port: %d", h.Port))
	}
	if h.FabricPort != 0 {
		fields = append(fields, fmt.Sprintf("fabric_port: %d", h.FabricPort))
	}
	if len(h.HostKeys) > 0 {
		fields = append(fields, "host_keys: "+cue(h.HostKeys))
	}
	if len(h.Files) > 0 {
		fields = append(fields, "files: "+cue(h.Files))
	}
	if !h.SSHConfig {
		fields = append(fields, "ssh_config: false")
	}
	d.line("\t\t%s: {%s}", cue(id), strings.Join(fields, ", "))
}

func (d *draft) describe(id string) []string {
	var out []string
	if slices.Contains(d.fleet.EngineHosts(), id) && !slices.Contains(d.hosts, id) {
		out = append(out, "no engine is drafted here: no GPU was found")
	}
	if o, ok := d.seen.host[id]; ok {
		out = append(out, fmt.Sprintf("%s, %s %s, %d CPUs (%s), %s of memory, %s free at the root", o.Hostname, o.Distro, o.Kernel, o.CPUs, o.CPUModel, size(o.MemTotal), size(o.DiskFree)))
	}
	h := d.seen.hardware[id]
	for _, g := range h.devices() {
		f, known := h.Function(g.bus)
		node := ""
		if known && f.NUMA >= 0 {
			node = fmt.Sprintf(", NUMA node %d", f.NUMA)
		}
		out = append(out, fmt.Sprintf("GPU %s %s%s", label(g), g.name, node))
	}
	if len(h.NVIDIA.GPUs) > 0 {
		out = append(out, "driver "+h.NVIDIA.GPUs[0].Driver)
	}
	n := d.seen.network[id]
	for _, l := range n.Links {
		var held []string
		for _, a := range network.Routable(n.Addresses) {
			if a.Link == l.Name {
				held = append(held, a.Net.String())
			}
		}
		if len(held) > 0 {
			out = append(out, fmt.Sprintf("%s %s, %d Mbit/s, MTU %d: %s", l.Name, l.State, l.Mbps, l.MTU, strings.Join(held, ", ")))
		}
	}
	for _, r := range h.RDMA {
		out = append(out, fmt.Sprintf("RDMA %s, firmware %s: %s", r.Name, r.Firmware, states(h.RDMA)))
	}
	if c, ok := d.seen.clock[id]; ok {
		out = append(out, fmt.Sprintf("clock %s from the workstation's, known to ± %s", span(c.Offset), span(c.Error)))
	}
	return out
}

// launches are one for each GPU of the host with the most, alike but for device and ports;
// a simulated one where no host has a GPU.
func (d *draft) launches() {
	most := 0
	for _, id := range d.hosts {
		most = max(most, len(d.gpus[id]))
	}
	d.line("\tlaunch: {")
	if most == 0 {
		d.mark("\t\t", "how engines start: no host has a GPU, and simulated engines answer with made-up text")
		d.line("\t\tsim: {kind: \"simulated\"}")
	}
	for n := range most {
		variable := "CUDA_VISIBLE_DEVICES"
		if slices.ContainsFunc(d.hosts, func(id string) bool { return n < len(d.gpus[id]) && d.gpus[id][n].amd }) {
			variable = "HIP_VISIBLE_DEVICES"
		}
		d.line("\t\tgpu%d: _vllm & {env: %s: \"%d\", ports: {side_channel: %s, ucx: \"%d-%d\"}}", n, variable, n, d.port(5600+n), 45000+50*n, 45049+50*n)
	}
	d.line("\t}")
	if most == 0 {
		return
	}
	dir := slices.Concat(d.fleet.ModelDirs(d.hosts[0]), []string{"/models/model-name"})[0]
	tls, devices := "tcp,sm,self,cuda_copy", d.link
	if d.transport == "rdma" {
		tls, devices = "rc,sm,self,cuda_copy,cuda_ipc", ""
	}
	d.line("\t_vllm: {")
	d.line("\t\tkind: \"process\"")
	d.mark("\t\t", "the path of vllm, and dtype, context and memory that fit the model")
	d.line("\t\targv: [\"vllm\", \"serve\", model_dir, \"--served-model-name\", \"{model}\", \"--host\", \"{listen}\", \"--port\", \"{port}\", \"--block-size\", \"128\",")
	d.line("\t\t\t\"--kv-transfer-config\", #\"{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\",\"kv_load_failure_policy\":\"fail\"}\"#]")
	d.line("\t\tenv: {UCX_TLS: %s, UCX_TCP_PORT_RANGE: \"{ucx}\", VLLM_NIXL_SIDE_CHANNEL_HOST: \"{listen}\", VLLM_NIXL_SIDE_CHANNEL_PORT: \"{side_channel}\", ...}", cue(tls))
	if devices != "" {
		d.line("\t\tenv: UCX_NET_DEVICES: %s", cue(devices))
	}
	d.mark("\t\t", "the folder of the checkpoint, the same on every host")
	d.line("\t\tmodel_dir: %s", cue(dir))
	d.line("\t\tready_within: \"15m\"")
	d.line("\t\t...")
	d.line("\t}")
}

func (d *draft) fabric() {
	if d.link == "" {
		d.line("\t// No interface of one name is up with an address on every engine host.")
	}
	d.mark("\t", "what the transfer network must carry: prompt length and handoffs/s")
	d.line("\tfabric: {%stransport: %s, prompt_tokens: 8192, handoffs_per_s: 1}", map[bool]string{true: "interface: " + cue(d.link) + ", "}[d.link != ""], cue(d.transport))
}
