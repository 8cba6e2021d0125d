package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Serve describes the command of an engine by what matters to the fleet. The backend is the
// fleet's engine.backend, the model that of model_dir.
type Serve struct {
	// Program is the command before its arguments; nil = the backend's module by python3.
	Program []string `json:"program"`
	Dtype   string   `json:"dtype"`
	// KVCacheDtype is "auto" or a type.
	KVCacheDtype string `json:"kv_cache_dtype"`
	// BlockSize in tokens; SGLang pages hold one.
	BlockSize int `json:"block_size"`
	// TensorParallel counts the ranks over all hosts of the engine.
	TensorParallel int `json:"tensor_parallel"`
	// LeaseS is how long a handoff stays pinned, in seconds.
	LeaseS int `json:"kv_lease_s"`
	// Transport is "tcp" or "rdma"; NetDevices are interfaces, or HCA:port.
	Transport  string `json:"transport"`
	NetDevices string `json:"net_devices"`
	// GPUTLS is UCX's way to the GPU's memory: "cuda", "cuda_copy", "rocm", "" for none.
	GPUTLS string `json:"gpu_tls"`
	// Visibility is the variable that says which GPUs the engine sees.
	Visibility string `json:"visibility"`
	// Args are further arguments, of those that ServeArguments allows.
	Args []string `json:"args"`
}

// Backends.
const (
	BackendVLLM   = "vllm"
	BackendSGLang = "sglang"
)

// serve fills argv, environment and secrets of a rank. What the launch itself sets stands.
func (r *Resolved) serve(f Fleet, s Serve, listen, port, head string) {
	var built map[string]string
	r.Built = true
	if f.Engine.Backend == BackendSGLang {
		r.Argv, built = s.sglang(f, *r, listen, port, head)
	} else {
		r.Argv, built = s.vllm(f, *r, listen, port, head)
		r.demandKey(f)
	}
	if len(r.GPUs) > 0 {
		built[cmp.Or(s.Visibility, "CUDA_VISIBLE_DEVICES")] = strings.Join(r.GPUs, ",")
	}
	maps.Copy(built, r.Env)
	r.Env = built
	r.Argv = append(r.Argv, s.Args...)
}

// EngineKeyVariable is where vLLM, and the simulated engine of either dialect, find the key that
// they demand.
const EngineKeyVariable = "VLLM_API_KEY"

// demandKey gives the engine the key that the fleet's clients send.
func (r *Resolved) demandKey(f Fleet) {
	if name := f.Engine.EngineAPIKeyEnv; name != "" && r.Secrets[EngineKeyVariable] == "" {
		secrets := maps.Clone(r.Secrets)
		if secrets == nil {
			secrets = map[string]SecretRef{}
		}
		secrets[EngineKeyVariable] = SecretRef("env:" + name)
		r.Secrets = secrets
	}
}

// kvTransfer is vLLM's --kv-transfer-config; the order of its members is that of the text.
type kvTransfer struct {
	Connector string `json:"kv_connector"`
	Role      string `json:"kv_role"`
	Policy    string `json:"kv_load_failure_policy"`
	Extra     struct {
		Backends []string `json:"backends"`
		Enforce  bool     `json:"enforce_handshake_compat"`
		Lease    int      `json:"kv_lease_duration"`
	} `json:"kv_connector_extra_config"`
}

func (s Serve) vllm(f Fleet, r Resolved, listen, port, head string) ([]string, map[string]string) {
	argv := slices.Clone(s.Program)
	if len(argv) == 0 {
		argv = []string{"python3", "-m", "vllm.entrypoints.openai.api_server"}
	}
	kv := kvTransfer{Connector: "NixlConnector", Role: "kv_both", Policy: "fail"}
	kv.Extra.Backends, kv.Extra.Enforce, kv.Extra.Lease = []string{"UCX"}, true, cmp.Or(s.LeaseS, 30)
	b, err := json.Marshal(kv)
	if err != nil {
		panic(fmt.Sprintf("marshal transfer configuration: %v", err)) // plain data always marshals
	}
	argv = append(argv, "--model", r.ModelDir, "--served-model-name", f.Model, "--host", listen, "--port", port,
		"--tensor-parallel-size", strconv.Itoa(max(s.TensorParallel, 1)), "--dtype", s.Dtype, "--kv-cache-dtype", cmp.Or(s.KVCacheDtype, "auto"),
		"--block-size", strconv.Itoa(s.BlockSize), "--kv-transfer-config", string(b))
	if n := len(r.Workers); n > 0 {
		argv = append(argv, "--nnodes", strconv.Itoa(n+1), "--node-rank", strconv.Itoa(r.Rank), "--master-addr", head, "--master-port", strconv.Itoa(r.Meet))
		if r.Rank > 0 {
			argv = append(argv, "--headless")
		}
	}
	env := s.ucx(r)
	env["VLLM_NIXL_SIDE_CHANNEL_HOST"], env["VLLM_NIXL_SIDE_CHANNEL_PORT"] = listen, strconv.Itoa(r.Side)
	env["NIXL_HOST_IP"] = listen
	return argv, env
}

// ucx are the variables of the transfer library.
func (s Serve) ucx(r Resolved) map[string]string {
	first := "tcp"
	if s.Transport == "rdma" {
		first = "rc"
	}
	env := map[string]string{"UCX_TLS": first + ",sm,self"}
	if s.GPUTLS != "" {
		env["UCX_TLS"] += "," + s.GPUTLS
	}
	if s.NetDevices != "" {
		env["UCX_NET_DEVICES"] = s.NetDevices
	}
	if r.UCX != "" {
		env["UCX_TCP_PORT_RANGE"] = r.UCX
	}
	return env
}

func (s Serve) sglang(f Fleet, r Resolved, listen, port, head string) ([]string, map[string]string) {
	argv := slices.Clone(s.Program)
	if len(argv) == 0 {
		argv = []string{"python3", "-m", "sglang.launch_server"}
	}
	argv = append(argv, "--model-path", r.ModelDir, "--served-model-name", f.Model, "--host", listen, "--port", port,
		"--tp-size", strconv.Itoa(max(s.TensorParallel, 1)), "--dtype", s.Dtype, "--kv-cache-dtype", cmp.Or(s.KVCacheDtype, "auto"),
		"--page-size", "1", "--attention-backend", "triton", "--stream-interval", "1", "--enable-metrics", "--enable-cache-report",
		"--disaggregation-mode", "prefill", "--disaggregation-transfer-backend", "mooncake", "--enable-pd-role-switch",
		"--disaggregation-bootstrap-port", strconv.Itoa(r.Side))
	if !slices.ContainsFunc(s.Args, func(a string) bool { return strings.HasPrefix(a, "--max-running-requests") }) {
		argv = append(argv, "--max-running-requests", "256")
	}
	if s.Transport == "rdma" && s.NetDevices != "" {
		argv = append(argv, "--disaggregation-ib-device", s.NetDevices)
	}
	if n := len(r.Workers); n > 0 {
		argv = append(argv, "--nnodes", strconv.Itoa(n+1), "--node-rank", strconv.Itoa(r.Rank), "--dist-init-addr", joinPort(head, r.Meet))
	}
	env := map[string]string{"SGLANG_HOST_IP": listen, "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "30"}
	if s.Transport != "rdma" {
		env["MOONCAKE_PROTOCOL"] = "tcp"
	}
	return argv, env
}

func joinPort(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}
