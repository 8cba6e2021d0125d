package realengines

import (
	"os"
	"path/filepath"
	"testing"
)

// Contract is what every engine of Launch attests: an engine on processors tells of its cache
// no more than the size of a block.
func Contract() map[string]any {
	return map[string]any{"engine_version": Version, "model_dtype": "bfloat16", "kv_cache_dtype": "auto", "kv_heads": 2, "head_size": 32, "hidden_layers": 2}
}

// Version is what an engine of install.sh says.
const Version = "0.32.0"

// Launch is an entry of deploy.launch that starts an engine as a process of its host, one thread
// each. The KV travels over an interface of the host.
func Launch(tb testing.TB, device string) map[string]any {
	tb.Helper()
	need(tb)
	return map[string]any{
		"kind": "process", "model_dir": os.Getenv(EnvModel), "ready_within": Ready.String(), "stop_within": "1m",
		"ports": map[string]any{"side_channel": 5600, "ucx": "45000-45049"},
		"env":   variables(),
		"serve": map[string]any{
			"program":    []string{filepath.Join(os.Getenv(EnvFolder), "bin", "python"), "-m", module},
			"block_size": 32, "gpu_tls": "", "net_devices": device, "args": arguments(),
		},
	}
}
