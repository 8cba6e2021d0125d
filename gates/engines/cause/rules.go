package cause

import "strings"

// Cause is one reason why an engine does not start.
type Cause struct {
	Code string
	// Says is the cause in words, for the finding.
	Says string
	Hint string
}

// Causes are all that a log can tell, in the order of docs/gates/C.md.
var Causes = []Cause{
	{"gpu-memory", "the GPU has too little free memory", "nvidia-smi on the host shows who holds it; lower --gpu-memory-utilization or --mem-fraction-static, or raise tensor parallelism"},
	{"cache-room", "what the weights leave holds too little KV cache", "lower --max-model-len or --context-length, raise --gpu-memory-utilization or --mem-fraction-static, or raise tensor parallelism"},
	{"host-memory", "the host has too little memory", "free -h and dmesg | grep -i oom on the host; raise the memory limit of its cgroup or container, or start fewer engines there"},
	{"shared-memory", "/dev/shm is too small for the ranks of the engine", "set shm_size (or ipc: host) under deploy.launch.…container; df -h /dev/shm shows it"},
	{"bad-argument", "the engine refuses an argument of its launch", "compare deploy.launch.…argv with the engine's --help in the version that is installed"},
	{"program-missing", "the launch's program is not on the host", "install the engine there, name the program by its absolute path, or set env PATH in the launch"},
	{"driver-missing", "no GPU driver is visible to the engine", "nvidia-smi or rocminfo on the host; in a container set gpus and devices and install the vendor's container toolkit"},
	{"driver-mismatch", "GPU driver and the engine's CUDA or ROCm do not fit together", "install a driver for that CUDA version, or an engine built for the driver; after an update of the driver reboot the host"},
	{"gpu-missing", "a GPU of the launch does not exist or is not visible", "compare CUDA_VISIBLE_DEVICES and tensor parallelism with nvidia-smi -L on the host"},
	{"gpu-unsupported", "the GPU is of a kind that the engine was not built for", "use a build of the engine for this compute capability, or another host"},
	{"dtype-unsupported", "the GPU does not support a data type of the launch", "set --dtype and --kv-cache-dtype to types that every GPU of the fleet has, alike on all engines"},
	{"port-in-use", "a port of the engine is held by another process", "ss -ltnp on the host shows who; stop it or give the engine other ports"},
	{"address-foreign", "the engine was told to listen on an address that its host does not have", "ip addr on the host; correct the engine's url, or the side channel's host in the launch"},
	{"model-missing", "the checkpoint is not where the launch says, or not whole", "ls the model's folder on the host; narwhal gate run A hashes it and names what differs"},
	{"model-unsupported", "this version of the engine does not know the model's architecture", "use a version that does, on all engines alike"},
	{"model-damaged", "a file of the checkpoint cannot be read as weights", "compare the checkpoint's digests of gate A and copy the file again"},
	{"remote-code", "the model brings code of its own, which the launch does not allow", "review the code and add --trust-remote-code, or use another model"},
	{"tokenizer-missing", "the tokenizer cannot be loaded", "put tokenizer.json and tokenizer_config.json beside the checkpoint, or name them with --tokenizer or --tokenizer-path"},
	{"repository-gated", "the model repository refuses access", "accept the model's licence and pass a token by secrets: {HF_TOKEN: \"env:NAME\"}, or use a local folder"},
	{"repository-unreachable", "the model repository cannot be reached", "use a local folder as model_dir, or open the way to the repository"},
	{"transfer-missing", "the library that moves KV is not installed for the engine", "install nixl (vLLM) or mooncake-transfer-engine (SGLang) in the engine's environment or image"},
	{"transfer-failed", "the library that moves KV does not start", "check UCX_TLS, UCX_NET_DEVICES, the RDMA devices and memlock of the launch; UCX_LOG_LEVEL=info tells more"},
	{"handshake-refused", "two engines refuse to exchange KV", "launch all engines of the fleet with the same version, model path, dtype, block size and attention backend"},
	{"collective-failed", "the ranks of the engine do not reach each other", "NCCL_DEBUG=INFO tells more; check NCCL_SOCKET_IFNAME, the head's address and firewalls between the hosts"},
	{"image-missing", "the container image is not on the host", "pull or load the image by its digest on the host: docker pull NAME@sha256:…"},
	{"runtime-refused", "the container runtime does not start the container", "run the runtime's info command as the SSH user; the line names what it refuses"},
	{"disk-full", "a disk of the host is full", "df -h on the host; caches of compiled kernels and models are below HOME"},
	{"permission", "the engine may not read or open something", "check owner and mode of what the line names, for the SSH user or the container's user"},
	{"file-missing", "a file that the launch names is not there", "check the paths of the launch on the host"},
	{"core-died", "a process of the engine ended without saying why", "dmesg on the host shows kills and faults; the engine's log has what came before"},
}

// ByCode returns a cause; false when there is none.
func ByCode(code string) (Cause, bool) {
	for _, c := range Causes {
		if c.Code == code {
			return c, true
		}
	}
	return Cause{}, false
}

// rule tells a line's cause. all and any are lower case; every text of all, one of any and
// none of not must be in the line.
type rule struct {
	code string
	sure bool
	all  []string
	any  []string
	not  []string
}

func (r rule) matches(low string) bool {
	for _, s := range r.all {
		if !strings.Contains(low, s) {
			return false
		}
	}
	for _, s := range r.not {
		if strings.Contains(low, s) {
			return false
		}
	}
	if len(r.any) == 0 {
		return true
	}
	for _, s := range r.any {
		if strings.Contains(low, s) {
			return true
		}
	}
	return false
}

// rules are tried in order: the special one stands before the general one.
var rules = []rule{
	// Memory. An autotuner that skips a kernel says so in the same line.
	{code: "shared-memory", sure: true, any: []string{"error while creating shared memory segment", "insufficient shared memory", "unable to open shared memory object", "/dev/shm/nccl"}, not: []string{"nccl info"}},
	{code: "cache-room", sure: true, any: []string{"no available memory for the cache blocks", "kv cache is needed, which is larger than the available", "maximum number of tokens that can be stored in kv cache", "not enough memory. please try to increase --mem-fraction-static", "not enough memory. please try increasing --mem-fraction-static", "maximum number of tokens that can be stored in the kv cache"}},
	{code: "gpu-memory", sure: true, any: []string{"outofmemoryerror", "cuda out of memory", "hip out of memory", "cuda error: out of memory", "cudaerrormemoryallocation", "cuda_error_out_of_memory", "is less than desired gpu memory utilization"}, not: []string{"ignoring this choice"}},
	{code: "gpu-memory", all: []string{"capture cuda graph failed"}},
	{code: "host-memory", sure: true, any: []string{"defaultcpuallocator: can't allocate memory", "defaultcpuallocator: not enough memory", "memoryerror", "[errno 12] cannot allocate memory", "std::bad_alloc", "oom-kill", "oomkilled", "killed by the oom killer"}},
	{code: "host-memory", any: []string{"was terminated by signal sigkill", "exit code: -9", "exited with code -9", "exitcode: -9", "exitcode=-9", "(exit code 137)"}},

	// Container runtimes.
	{code: "driver-missing", sure: true, any: []string{"could not select device driver", "nvidia-container-cli: initialization error: load library failed", "failed to initialize nvml: no supported gpus", "unresolvable cdi devices"}},
	{code: "driver-mismatch", sure: true, any: []string{"driver/library version mismatch", "nvidia driver on your system is too old", "driver version is insufficient for cuda runtime version", "requirement error: unsatisfied condition: cuda", "cudaerrorinsufficientdriver", "unsupported display driver / cuda driver combination"}},
	{code: "image-missing", sure: true, any: []string{"unable to find image", "no such image", "manifest unknown", "image not known", "pull access denied", "repository does not exist or may require"}},
	{code: "runtime-refused", sure: true, any: []string{"cannot connect to the docker daemon", "error response from daemon", "oci runtime", "oci permission denied", "error gathering device information", "cannot connect to podman", "runc create failed", "crun:"}, not: []string{"executable file not found"}},

	// Devices and builds.
	{code: "driver-missing", sure: true, any: []string{"found no nvidia driver on your system", "failed to infer device type", "no hip gpus are available", "failed to initialize nvml", "nvml shared library not found", "driver not loaded"}},
	{code: "driver-missing", any: []string{"libcuda.so.1: cannot open shared object", "libnvidia-ml.so.1: cannot open shared object"}},
	{code: "driver-mismatch", any: []string{"libcudart.so", "libamdhip64.so"}},
	{code: "gpu-missing", sure: true, any: []string{"no cuda gpus are available", "invalid device ordinal", "no cuda-capable device is detected", "exceeds the total number of available gpus", "is larger than the number of available gpus"}},
	{code: "gpu-unsupported", sure: true, any: []string{"no kernel image is available for execution on the device", "is not compatible with the current pytorch installation", "gpus with compute capability below", "invalid device function"}},
	{code: "dtype-unsupported", sure: true, any: []string{"is only supported on gpus with compute capability", "data type is not supported on cuda arch", "torch.bfloat16 is not supported", "is not supported for the current gpu. minimum capability", "not supported for your current gpu", "unsupported kv cache dtype", "kv cache dtype is not supported"}},

	// Transfer.
	{code: "handshake-refused", sure: true, any: []string{"nixl compatibility hash mismatch", "incompatible nixl handshake", "handshake payload is incompatible"}},
	{code: "handshake-refused", all: []string{"nixl transfer failure", "handshake"}},
	{code: "transfer-missing", sure: true, any: []string{"runtimeerror: nixl is not available", "no module named 'nixl", "please install nixl by following", "please install mooncake by following", "no module named 'mooncake", "please install mooncake-transfer-engine"}},
	{code: "transfer-missing", any: []string{"nixl is not available"}},
	{code: "transfer-failed", sure: true, any: []string{"nixl_err_", "nixlbackenderror", "mooncake transfer engine initialization failed", "unsupported connector type", "ucx_err", "no available devices for ucx"}},
	// NIXL names each plugin whose libraries are missing and goes on with the others.
	{code: "transfer-failed", any: []string{"failed to load plugin from", "no usable transports/devices"}},

	// Sockets.
	{code: "port-in-use", sure: true, any: []string{"address already in use", "eaddrinuse", "only one usage of each socket address"}},
	{code: "address-foreign", sure: true, any: []string{"cannot assign requested address", "eaddrnotavail"}},

	// Model and tokenizer.
	{code: "repository-gated", sure: true, any: []string{"you are trying to access a gated repo", "cannot access gated repo", "gatedrepoerror", "is restricted. you must have access", "401 client error", "403 client error", "invalid user token"}},
	{code: "repository-unreachable", sure: true, any: []string{"we couldn't connect to 'https://huggingface.co'", "outgoing traffic has been disabled", "localentrynotfounderror", "nameresolutionerror"}},
	{code: "tokenizer-missing", sure: true, any: []string{"can't load tokenizer for", "couldn't instantiate the backend tokenizer", "failed to load the tokenizer", "unable to load vocabulary from file", "does not appear to have a file named tokenizer"}},
	{code: "remote-code", sure: true, any: []string{"contains custom code which must be executed", "please pass the argument `trust_remote_code=true`", "requires you to execute the configuration file"}},
	{code: "model-unsupported", sure: true, any: []string{"are not supported for now", "does not recognize this architecture", "has no vllm implementation", "failed to be inspected", "unsupported architectures"}},
	{code: "model-damaged", sure: true, any: []string{"error while deserializing header", "headertoolarge", "metadataincompletebuffer", "pytorchstreamreader failed", "invalid load key"}},
	{code: "model-missing", sure: true, any: []string{"does not appear to have a file named", "repo id must be in the form", "incorrect path_or_model_id", "invalid repository id or local directory specified", "cannot find any model weights with", "is not a local folder and is not a valid model identifier", "repositorynotfounderror", "404 client error"}},
	{code: "model-missing", sure: true, all: []string{"no such file or directory"}, any: []string{".safetensors", "config.json", "model.safetensors.index"}},

	// Ranks.
	{code: "collective-failed", sure: true, any: []string{"nccl error", "ncclsystemerror", "ncclinternalerror", "ncclremoteerror", "ncclunhandledcudaerror", "distbackenderror", "timed out waiting for clients", "diststoreerror", "gloo connectfullmesh failed"}},

	// Command line and files.
	{code: "bad-argument", sure: true, any: []string{"error: unrecognized arguments", ": error: argument ", "error: the following arguments are required", "error: ambiguous option", "error: invalid choice", "invalid json string", "validation error for "}},
	{code: "bad-argument", any: []string{"must be divisible by", "is greater than the derived max_model_len", "pydantic_core._pydantic_core.validationerror", "extra inputs are not permitted"}},
	{code: "program-missing", sure: true, any: []string{"executable file not found", "no module named 'vllm'", "no module named vllm", "no module named 'sglang'", "no module named sglang", "no module named 'torch'"}},
	{code: "program-missing", sure: true, all: []string{"become ", "no such file or directory"}},
	{code: "program-missing", any: []string{"command not found", "modulenotfounderror: no module named"}},
	{code: "disk-full", sure: true, any: []string{"no space left on device", "disk quota exceeded"}},
	{code: "permission", any: []string{"permission denied", "operation not permitted"}},
	{code: "file-missing", any: []string{"no such file or directory"}},
	{code: "core-died", any: []string{"engine core initialization failed", "enginecore failed to start", "died unexpectedly", "received sigquit from a child process", "segmentation fault", "fatal python error", "core dumped"}},
}
