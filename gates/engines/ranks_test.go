package engines

import (
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

func TestMetricRanks(t *testing.T) {
	s, err := engine.ParseMetrics(strings.NewReader(`vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="900"} 1
vllm:cache_config_info{block_size="32",cache_dtype="fp8",engine="1",num_gpu_blocks="x"} 1
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []RankCache{{Name: "engine 0", BlockSize: 16, Blocks: 900, Dtype: "auto"}, {Name: "engine 1", BlockSize: 32, Dtype: "fp8"}}
	if got := metricRanks(s); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestLogRanks(t *testing.T) {
	log := `(Worker_TP0 pid=101) INFO 11-25 02:39:46 [gpu_worker.py:298] Available KV cache memory: 50.25 GiB
(Worker_TP1 pid=102) INFO 11-25 02:39:46 [gpu_worker.py:298] Available KV cache memory: 48 GiB
(VllmWorker rank=2 pid=103) INFO 07-07 15:19:48 [gpu_worker.py:227] Available KV cache memory: 1.5 GiB
[2025-07-02 07:41:58 DP0 TP3] KV Cache is allocated. #tokens: 131072, K size: 4.00 GB, V size: 4.00 GB
(EngineCore_DP0 pid=594) INFO 11-25 02:39:49 [kv_cache_utils.py:1087] GPU KV cache size: 411,232 tokens
` + strings.Repeat("x", 1<<16) + "KV \n(Worker_TP9 pid=1) Available KV cache memory: 99999999999999 GiB\n"
	got := map[string]int64{}
	for _, r := range logRanks([]byte(log)) {
		got[r.Name] = r.Memory
	}
	if len(got) != 4 || got["TP0"] != 50.25*(1<<30) || got["TP1"] != 48<<30 || got["rank=2"] != 1536<<20 || got["DP0 TP3"] != 8<<30 {
		t.Errorf("got %v", got)
	}
}

func FuzzLogRanks(f *testing.F) {
	f.Add([]byte("(Worker_TP0 pid=101) INFO Available KV cache memory: 50.25 GiB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, r := range logRanks(b) {
			if r.Memory < 0 || r.Name == "" {
				t.Errorf("got %+v", r)
			}
		}
	})
}
