package engine

import (
	"strings"
	"testing"
)

func TestLayoutFrom(t *testing.T) {
	for name, c := range map[string]struct {
		labels string
		bytes  int64
	}{
		"memory":     {`kv_cache_memory_bytes="1048576",num_gpu_blocks_override="None"`, 16384},
		"overridden": {`kv_cache_memory_bytes="1048576",num_gpu_blocks_override="64"`, 0},
		"not told":   {`cache_dtype="auto"`, 0},
	} {
		s, err := ParseMetrics(strings.NewReader(`vllm:cache_config_info{block_size="32",num_gpu_blocks="64",` + c.labels + "} 1\n"))
		if err != nil {
			t.Fatal(err)
		}
		l, err := LayoutFrom(s)
		if err != nil || l.BlockSize != 32 || l.Blocks != 64 || l.BytesPerBlock != c.bytes {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}
