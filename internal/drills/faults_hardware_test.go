package drills

import (
	"os"
	"path/filepath"
	"strings"
)

const (
	imageID = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	gpuRow  = "GPU-6f1c1b1e-0000-4c5e-9d5e-000000000001, 00000000:18:00.0, NVIDIA H100 80GB HBM3, 81559 MiB, 550.54.15, Enabled, Default, Disabled, Disabled, Enabled, 0, 0, 88.12 W, 700.00 W, 700.00 W, 28, 16, 16, 0x0000000000000001"
	smi     = `case "$*" in
*--query-gpu*) cat <<'EOF'
index, uuid, pci.bus_id, name, memory.total [MiB], driver_version, persistence_mode, compute_mode, mig.mode.current, mig.mode.pending, ecc.mode.current, ecc.errors.uncorrected.volatile.total, ecc.errors.uncorrected.aggregate.total, power.draw [W], power.limit [W], power.default_limit [W], temperature.gpu, pcie.link.width.current, pcie.link.width.max, clocks_event_reasons.active
0, ` + gpuRow + `
EOF
;;
-L) echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-6f1c1b1e-0000-4c5e-9d5e-000000000001)";;
nvlink*) printf 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-6f1c1b1e-0000-4c5e-9d5e-000000000001)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n';;
topo*) printf '\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-31\t0\t\tN/A\n';;
esac`
	docker = `case "$*" in *inspect*) echo '` + imageID + ` []';; esac`
)

// containers gives the fleet engines in containers with a GPU each, on hosts whose tools
// answer as healthy ones do.
func containers(s *scene) {
	s.deploy("launch")["real"] = object{"kind": "container", "image": imageID, "runtime": "docker", "argv": []any{"vllm", "serve", "m", "--port", "{port}"},
		"env": object{"CUDA_VISIBLE_DEVICES": "0"}, "ready_within": "30s"}
	s.deploy("defaults")["launch"] = "real"
	s.doc["hardware"] = object{"accelerator": "NVIDIA H100", "accelerators_per_engine": 1, "tensor_parallel": 1}
	for i := range s.hosts {
		tool(i, "nvidia-smi", smi)(s)
		tool(i, "docker", docker)(s)
	}
}

// gpu changes what nvidia-smi answers on host-2.
func gpu(old, new string) func(*scene) {
	return func(s *scene) {
		if !strings.Contains(smi, old) {
			s.t.Fatalf("nothing to change: %q", old)
		}
		tool(1, "nvidia-smi", strings.ReplaceAll(smi, old, new))(s)
	}
}

func hw(changes ...func(*scene)) func(*scene) {
	return both(append([]func(*scene){containers}, changes...)...)
}

// rdma lists a healthy RDMA device on both hosts, changed on host-2 by a sed script.
func rdma(script string) func(*scene) {
	const device = `awk '{print} /^== rdma$/{print "device mlx5_0|28.42.1000|MT_0000000838|a088:c203:007e:1dba|0000:1a:00.0|0"; print "port 1|4: ACTIVE|5: LinkUp|400 Gb/sec (4X NDR)|Ethernet|lo"; print "gid 3|0000:0000:0000:0000:0000:ffff:c000:020b|RoCE v2|lo"} /^== devinfo$/{print "hca_id: mlx5_0"}' | sed 's/^-- status 127$/-- status 0/'`
	return hw(set("rdma", "deploy", "fabric", "transport"), set("mlx5_0:1", "deploy", "fabric", "device"), limits(0, "ulimit -l unlimited"), limits(1, "ulimit -l unlimited"),
		filter(0, device), filter(1, device+" | sed '"+script+"'"))
}

// hardwareFaults are what gate A sees of GPUs, RDMA devices, limits and images.
var hardwareFaults = []fault{
	{id: "gpu-tool-absent", where: "file on host", how: "nvidia-smi is not installed", do: hw(func(s *scene) { must(s.t, os.Remove(filepath.Join(s.hosts[1].Home, "tools", "nvidia-smi"))) }), code: "gpu-missing", exit: 1, hint: "driver", quick: true},
	{id: "gpu-tool-fails", where: "host tool output", how: "nvidia-smi cannot reach the driver", do: hw(tool(1, "nvidia-smi", `echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9`)), code: "gpu-unreadable", exit: 1, hint: "reset"},
	{id: "gpu-tool-hangs", where: "host tool output", how: "nvidia-smi hangs, as on a lost GPU", do: hw(tool(1, "nvidia-smi", `exec sleep 300`)), code: "gpu-unreadable", exit: 1, hint: "reset"},
	{id: "gpu-tool-silent", where: "host tool output", how: "nvidia-smi succeeds and prints nothing", do: hw(tool(1, "nvidia-smi", `exit 0`)), code: "gpu-missing", exit: 1},
	{id: "gpu-tool-cut", where: "host tool output", how: "the table ends within its header", do: hw(tool(1, "nvidia-smi", `( `+smi+` ) | head -c 60`)), code: "gpu-missing", exit: 1},
	{id: "gpu-tool-gigantic", where: "host tool output", how: "nvidia-smi prints a million lines", do: hw(tool(1, "nvidia-smi", `yes "0, GPU-x, garbage" | head -n 1000000`)), code: "gpu-unreadable", exit: 1},
	{id: "gpu-tool-binary", where: "host tool output", how: "nvidia-smi prints bytes that are no text", do: hw(tool(1, "nvidia-smi", `head -c 20000 /dev/urandom`)), code: "gpu-unreadable", exit: 1},
	{id: "gpu-tool-coloured", where: "host tool output", how: "nvidia-smi colours a switch's word", do: hw(gpu("550.54.15, Enabled", "550.54.15, \033[31mDisabled\033[0m")), code: "gpu-persistence", exit: 1, hint: "persistenced"},
	{id: "gpu-tool-localized", where: "host tool output", how: "nvidia-smi answers in another language", do: hw(gpu("550.54.15, Enabled", "550.54.15, Aktiviert")), code: "gpu-unknown", exit: 1, hint: "localized"},
	{id: "gpu-lost", where: "host tool output", how: "a GPU is lost and every cell is an error", do: hw(gpu("Enabled, Default, Disabled, Disabled, Enabled, 0, 0", "[GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]")), code: "gpu-fault", exit: 1, hint: "reset"},
	{id: "gpu-reset-needed", where: "host tool output", how: "a GPU requires a reset", do: hw(gpu("Enabled, 0, 0, 88.12 W", "Enabled, [GPU requires reset], [GPU requires reset], 88.12 W")), code: "gpu-fault", exit: 1, hint: "reset"},
	{id: "gpu-too-few", where: "fleet file", how: "engines need two GPUs and the host has one", do: hw(set(2, "hardware", "accelerators_per_engine"), set(2, "hardware", "tensor_parallel")), code: "gpu-missing", exit: 1, hint: "fewer engines"},
	{id: "gpu-index", where: "fleet file", how: "a launch names a GPU that is not there", do: hw(set("7", "deploy", "launch", "real", "env", "CUDA_VISIBLE_DEVICES")), code: "gpu-absent", exit: 1, hint: "nvidia-smi -L"},
	{id: "gpu-product", where: "host tool output", how: "the host has another product", do: hw(gpu("NVIDIA H100 80GB HBM3", "NVIDIA L4")), code: "gpu-product", exit: 1, hint: "hardware.accelerator"},
	{id: "gpu-mig", where: "host tool output", how: "MIG is on for a whole GPU", do: hw(gpu("Default, Disabled, Disabled, Enabled", "Default, Enabled, Enabled, Enabled")), code: "gpu-mig", exit: 1, hint: "-mig 0"},
	{id: "gpu-mig-pending", where: "host tool output", how: "MIG comes on at the next reset", do: hw(gpu("Default, Disabled, Disabled, Enabled", "Default, Disabled, Enabled, Enabled")), code: "gpu-mig-pending", exit: 1, hint: "reset"},
	{id: "gpu-persistence", where: "host tool output", how: "persistence mode is off", do: hw(gpu("550.54.15, Enabled", "550.54.15, Disabled")), code: "gpu-persistence", exit: 1, hint: "persistenced"},
	{id: "gpu-prohibited", where: "host tool output", how: "the GPU refuses processes", do: hw(gpu("Enabled, Default", "Enabled, Prohibited")), code: "gpu-compute-mode", exit: 1, hint: "DEFAULT"},
	{id: "gpu-ecc", where: "host tool output", how: "three uncorrected memory errors", do: hw(gpu("Enabled, 0, 0", "Enabled, 3, 9")), code: "gpu-ecc", exit: 1, hint: "reset"},
	{id: "gpu-hot", where: "host tool output", how: "heat lowers the clocks", do: hw(gpu("0x0000000000000001", "0x0000000000000040")), code: "gpu-slowdown", exit: 1, hint: "cooling"},
	{id: "gpu-power-brake", where: "host tool output", how: "the power brake lowers the clocks", do: hw(gpu("0x0000000000000001", "0x0000000000000080")), code: "gpu-slowdown", exit: 1, hint: "power"},
	{id: "gpu-link-down", where: "host tool output", how: "an NVLink is inactive", do: hw(gpu("Link 1: 26.562 GB/s", "Link 1: <inactive>")), code: "gpu-link", exit: 1},
	{id: "gpu-driver", where: "host tool output", how: "two hosts have different drivers", do: hw(gpu("550.54.15", "535.129.03")), code: "gpu-driver", exit: 1, hint: "one driver"},
	{id: "gpu-fell-off", where: "host tool output", how: "the PCI bus has a GPU that nvidia-smi does not list", do: hw(filter(1, `sed 's,^== pci$,&\n0000:18:00.0|0x030200|0x10de|0x2330|0|16|16|32.0 GT/s PCIe|32.0 GT/s PCIe|/sys/a\n0000:2a:00.0|0x030200|0x10de|0x2330|0|16|16|32.0 GT/s PCIe|32.0 GT/s PCIe|/sys/b,'`)), code: "gpu-unseen", exit: 1, hint: "Xid"},
	{id: "gpu-node", where: "file on host", how: "there is no device file for the GPU", do: hw(set("process", "deploy", "launch", "real", "kind"), func(s *scene) {
		delete(s.deploy("launch", "real"), "image")
		delete(s.deploy("launch", "real"), "runtime")
	}), code: "gpu-node", exit: 1, hint: "module"},
	{id: "amd-tool-fails", where: "host tool output", how: "rocminfo cannot open the kernel's driver", do: hw(tool(1, "rocminfo", `echo "ROCk module is NOT loaded, possibly no GPU devices"; exit 1`)), code: "gpu-unreadable", exit: 1},
	{id: "open-files", where: "host limits", how: "sessions may open 1024 files", do: hw(limits(1, "ulimit -n 1024")), code: "open-files", exit: 1, hint: "nofile"},
	{id: "memlock", where: "host limits", how: "locked memory is limited on an RDMA fabric", do: both(rdma(""), limits(1, "ulimit -l 64")), code: "locked-memory", exit: 1, hint: "memlock"},
	{id: "rdma-absent", where: "host tool output", how: "no RDMA device on an RDMA fabric", do: rdma("/^device/d;/^port 1/d;/^gid/d"), code: "rdma-absent", exit: 1, hint: "tcp"},
	{id: "rdma-port-down", where: "host tool output", how: "the RDMA port is down", do: rdma("s/4: ACTIVE|5: LinkUp/1: DOWN|3: Disabled/"), code: "rdma-port", exit: 1, hint: "cable"},
	{id: "rdma-gid", where: "host tool output", how: "no routable RoCE v2 address", do: rdma("/^gid 3/d"), code: "rdma-gid", exit: 1, hint: "IP address"},
	{id: "rdma-unopened", where: "host tool output", how: "ibv_devinfo does not list the device", do: rdma("/^hca_id/d"), code: "rdma-unopened", exit: 1, hint: "rdma-core"},
	{id: "rdma-rate", where: "host tool output", how: "one host's port negotiated a lower rate", do: rdma("s/400 Gb/200 Gb/"), code: "rdma-rate", exit: 1, hint: "slower end"},
	{id: "image-absent", where: "host tool output", how: "the runtime does not have the image", do: hw(tool(1, "docker", `echo "Error: No such image" >&2; exit 1`)), code: "image-absent", exit: 1, hint: "pull", quick: true},
	{id: "image-other", where: "host tool output", how: "the image has another id", do: hw(tool(1, "docker", `echo 'sha256:`+strings.Repeat("b", 64)+` []'`)), code: "image-differs", exit: 1, hint: "digest"},
	{id: "image-denied", where: "host tool output", how: "the user may not reach the runtime", do: hw(tool(1, "docker", `echo "permission denied while trying to connect to the Docker daemon socket" >&2; exit 1`)), code: "image-absent", exit: 1, hint: "reach the runtime"},
	{id: "image-no-runtime", where: "file on host", how: "the container runtime is not installed", do: hw(func(s *scene) { must(s.t, os.Remove(filepath.Join(s.hosts[1].Home, "tools", "docker"))) }), code: "image-absent", exit: 1, hint: "pull"},
	{id: "image-words", where: "host tool output", how: "the runtime answers in words", do: hw(tool(1, "docker", `echo "Using default tag: latest"`)), code: "image-absent", exit: 1},
}

// checkpoint gives both engines a launch whose model folder is one path, under which each
// host has files of its own.
func checkpoint(argv ...any) func(*scene) {
	return func(s *scene) {
		if os.Getuid() != 0 {
			s.t.Skip("needs root: hosts of one machine get file systems of their own")
		}
		common := filepath.Join(s.w.dir, "model")
		must(s.t, os.MkdirAll(common, 0o755))
		for i, h := range s.hosts {
			dir := filepath.Join(h.Home, "model")
			s.heal(func() { _ = os.RemoveAll(dir) })
			for name, text := range map[string]string{"config.json": `{"architectures":["LlamaForCausalLM"],"model_type":"llama","torch_dtype":"bfloat16","max_position_embeddings":8192}`,
				"model-00001-of-00002.safetensors": "weights one", "model-00002-of-00002.safetensors": "weights two", "tokenizer.json": "{}"} {
				must(s.t, os.MkdirAll(dir, 0o755))
				must(s.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
			limits(i, `if [ -z "$OWN_FILES" ] && [ -d "`+dir+`" ]; then OWN_FILES=1; export OWN_FILES
exec unshare -m -- /bin/sh -c 'mount --bind "`+dir+`" "`+common+`" && exec /bin/sh "$@"' sh "$@"; fi`)(s)
		}
		s.deploy("launch")["real"] = object{"kind": "process", "argv": append([]any{"vllm", "serve", common, "--port", "{port}"}, argv...), "model_dir": common}
		s.deploy("defaults")["launch"] = "real"
	}
}

// inModel changes the checkpoint of host-2.
func inModel(change func(s *scene, dir string)) func(*scene) {
	return both(checkpoint(), func(s *scene) { change(s, filepath.Join(s.hosts[1].Home, "model")) })
}

func put(s *scene, content string, path ...string) {
	must(s.t, os.WriteFile(filepath.Join(path...), []byte(content), 0o644))
}

// modelFaults are in checkpoints.
var modelFaults = []fault{
	{id: "model-absent", where: "file on host", how: "the checkpoint is not there", do: both(checkpoint(), set("/no/such/model", "deploy", "launch", "real", "model_dir")), code: "model-absent", exit: 1, hint: "copy"},
	{id: "model-empty", where: "file on host", how: "the checkpoint's folder is empty", do: inModel(func(s *scene, dir string) {
		must(s.t, os.RemoveAll(dir))
		must(s.t, os.Mkdir(dir, 0o755))
	}), code: "model-absent", exit: 1, hint: "copy"},
	{id: "model-bit", where: "file on host", how: "one byte of a shard is another, size and time are not", do: inModel(func(s *scene, dir string) { put(s, "weights TWO", dir, "model-00002-of-00002.safetensors") }), code: "model-differs", exit: 1, hint: "copy", says: "model-00002-of-00002.safetensors", quick: true},
	{id: "model-shard-missing", where: "file on host", how: "a shard is missing", do: inModel(func(s *scene, dir string) {
		must(s.t, os.Remove(filepath.Join(dir, "model-00001-of-00002.safetensors")))
	}), code: "model-differs", exit: 1, hint: "copy", says: "model-00001"},
	{id: "model-shard-cut", where: "file on host", how: "a shard is shorter", do: inModel(func(s *scene, dir string) { put(s, "weights", dir, "model-00001-of-00002.safetensors") }), code: "model-differs", exit: 1, hint: "copy", says: "model-00001"},
	{id: "model-file-extra", where: "file on host", how: "a file is there that the other host lacks", do: inModel(func(s *scene, dir string) { put(s, "{}", dir, "adapter_config.json") }), code: "model-differs", exit: 1, hint: "copy", says: "adapter_config.json"},
	{id: "model-tokenizer", where: "file on host", how: "the tokenizer is another", do: inModel(func(s *scene, dir string) { put(s, `{"v":2}`, dir, "tokenizer.json") }), code: "model-differs", exit: 1, hint: "copy", says: "tokenizer.json"},
	{id: "model-link-dead", where: "file on host", how: "a shard is a link that leads nowhere", do: inModel(func(s *scene, dir string) {
		must(s.t, os.Symlink("/no/such/blob", filepath.Join(dir, "x.safetensors")))
	}), code: "model-entry", exit: 1, hint: "links"},
	{id: "model-pipe", where: "file on host", how: "the folder holds a pipe", do: inModel(func(s *scene, dir string) { must(s.t, mkfifo(filepath.Join(dir, "pipe"))) }), code: "model-entry", exit: 1, hint: "neither"},
	{id: "model-unread", where: "host tool output", how: "a shard gives an I/O error", do: both(checkpoint(), tool(1, "openssl", `case "$*" in *00002-of*) echo "read error" >&2; exit 1;; esac; exec /usr/bin/openssl "$@"`)), code: "model-unread", exit: 1, hint: "read"},
	{id: "model-no-config", where: "file on host", how: "config.json is missing on all hosts", do: both(checkpoint(), func(s *scene) {
		for _, h := range s.hosts {
			must(s.t, os.Remove(filepath.Join(h.Home, "model", "config.json")))
		}
	}), code: "model-config", exit: 1, hint: "source"},
	{id: "model-config-cut", where: "file on host", how: "config.json ends in the middle", do: inModel(func(s *scene, dir string) { put(s, `{"architectures":[`, dir, "config.json") }), code: "model-config", exit: 1, hint: "source"},
	{id: "model-code", where: "file on host", how: "the model brings program text and nobody trusts it", do: inModel(func(s *scene, dir string) {
		put(s, `{"architectures":["X"],"auto_map":{"AutoModelForCausalLM":"modeling_x.X"},"torch_dtype":"bfloat16","max_position_embeddings":8192}`, dir, "config.json")
	}), code: "model-code", exit: 1, hint: "read the files"},
	{id: "model-context", where: "fleet file", how: "the launch's context is longer than the model's", do: checkpoint("--max-model-len", "32768"), code: "model-context", exit: 1, hint: "max-model-len"},
	{id: "model-layout", where: "file on host", how: "layers keep a convolutional state and no layout is fixed", do: inModel(func(s *scene, dir string) {
		put(s, `{"architectures":["MambaForCausalLM"],"model_type":"mamba2","torch_dtype":"bfloat16","max_position_embeddings":8192,"conv_kernel":4,"layer_types":["mamba"],"mamba_d_conv":4,"ssm_cfg":{}}`, dir, "config.json")
	}), code: "model-layout", exit: 1, hint: "env"},
}
