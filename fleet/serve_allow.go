package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// ServeArguments are the further arguments that a built command may have: with a value, and
// without one. What shapes the KV or the transfer is set by fields of Serve and by no argument.
var ServeArguments = map[string]struct{ Values, Flags []string }{
	BackendVLLM: {
		Values: []string{"--max-model-len", "--gpu-memory-utilization", "--max-num-batched-tokens", "--max-num-seqs", "--reasoning-parser", "--attention-backend",
			"--tokenizer", "--hf-config-path", "--load-format", "--generation-config", "--shutdown-timeout", "--max-num-queued-reqs", "--num-gpu-blocks-override", "--api-server-count"},
		Flags: []string{"--trust-remote-code", "--language-model-only", "--enforce-eager", "--async-scheduling", "--disable-hybrid-kv-cache-manager",
			"--no-disable-hybrid-kv-cache-manager", "--enable-prefix-caching", "--no-enable-prefix-caching", "--enable-prompt-tokens-details", "--enable-server-load-tracking"},
	},
	BackendSGLang: {
		Values: []string{"--context-length", "--mem-fraction-static", "--chunked-prefill-size", "--max-total-tokens", "--max-prefill-tokens", "--tokenizer-path",
			"--reasoning-parser", "--load-format", "--mamba-ssm-dtype", "--max-mamba-cache-size", "--mamba-radix-cache-strategy", "--max-running-requests"},
		Flags: []string{"--trust-remote-code", "--disable-radix-cache", "--disable-cuda-graph", "--enable-mixed-chunk", "--disable-overlap-schedule"},
	},
}

// serveVariables are the prefixes of variables that a launch with a built command may set,
// beside the paths of libraries.
var serveVariables = map[string][]string{
	BackendVLLM:   {"VLLM_", "UCX_", "NIXL_", "ROCM_", "HIP_", "HSA_", "AITER_", "PYTORCH_", "SAFETENSORS_", "NCCL_", "GLOO_", "OMP_", "HF_HUB_OFFLINE", "TRITON_"},
	BackendSGLang: {"SGLANG_", "MOONCAKE_", "MC_", "UCX_", "NIXL_", "NCCL_", "GLOO_", "PYTORCH_", "SAFETENSORS_", "OMP_", "HF_HUB_OFFLINE", "TRITON_"},
}

// serveOwn are variables that the built command sets itself.
var serveOwn = []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "UCX_NET_DEVICES", "UCX_TLS", "UCX_TCP_PORT_RANGE", "NIXL_HOST_IP",
	"VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_API_KEY", "SGLANG_HOST_IP", "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", "VLLM_SERVER_DEV_MODE"}

// ArgumentFault says why an argument may not stand in Serve.Args at index i, "" where it may.
// An argument that is the value of the one before it is never a fault.
func ArgumentFault(backend string, args []string, i int) string {
	list, ok := ServeArguments[backend]
	if !ok {
		return fmt.Sprintf("no command is built for backend %q", backend)
	}
	if i > 0 && slices.Contains(list.Values, args[i-1]) && !isValueOf(list.Values, args, i-1) {
		return ""
	}
	name, _, inline := strings.Cut(args[i], "=")
	switch {
	case slices.Contains(list.Flags, name) && !inline:
	case slices.Contains(list.Values, name) && (inline || i+1 < len(args)):
	case slices.Contains(list.Values, name):
		return name + " has no value"
	default:
		return fmt.Sprintf("%.60q is not allowed", args[i])
	}
	if slices.ContainsFunc(args[:i], func(a string) bool { n, _, _ := strings.Cut(a, "="); return n == name }) {
		return name + " is given twice"
	}
	return ""
}

// isValueOf reports whether args[i] is itself the value of the argument before it.
func isValueOf(values, args []string, i int) bool {
	return i > 0 && slices.Contains(values, args[i-1]) && !isValueOf(values, args, i-1)
}

// VariableFault says why a launch with a built command may not set a variable, "" where it may.
func VariableFault(backend, name string) string {
	if slices.Contains(serveOwn, name) {
		return "the built command sets it, or must not have it"
	}
	if name == "LD_LIBRARY_PATH" || name == "PYTHONPATH" || name == "PATH" || name == "HOME" {
		return ""
	}
	for _, p := range serveVariables[backend] {
		if strings.HasPrefix(name, p) {
			return ""
		}
	}
	return "variables of a built command begin with " + strings.Join(serveVariables[backend], ", ")
}
