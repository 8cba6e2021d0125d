package engines

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Cache is an engine's cache layout and what is known of its ranks.
type Cache struct {
	engine.CacheLayout
	// Ranks are sorted by name; empty where the engine tells of none.
	Ranks []RankCache `json:"ranks,omitempty"`
}

// RankCache is the cache of one rank. A value that the engine does not tell is 0 or "".
type RankCache struct {
	// Name is "engine 0" of a data-parallel rank, which the metrics show, or "TP0" and the like
	// of a worker, which the log does.
	Name      string `json:"name"`
	BlockSize int    `json:"block_size,omitempty"`
	Blocks    int    `json:"blocks,omitempty"`
	Dtype     string `json:"cache_dtype,omitempty"`
	// Memory is what the rank has for its cache, in bytes.
	Memory int64 `json:"memory_bytes,omitempty"`
}

const (
	maxRanks = 1024
	// maxStart is how much of a log is searched for what ranks print while they start.
	maxStart = 16 << 20
)

// metricRanks reads the data-parallel ranks of a vLLM scrape.
func metricRanks(s engine.Samples) []RankCache {
	var out []RankCache
	all := s.All("vllm:cache_config_info")
	for _, m := range all[:min(len(all), maxRanks)] {
		r := RankCache{Name: "engine " + engine.Printable(cmp.Or(m.Label("engine"), "0"), 32), Dtype: engine.Printable(m.Label("cache_dtype"), 64)}
		r.BlockSize, _ = strconv.Atoi(m.Label("block_size"))
		r.Blocks, _ = strconv.Atoi(m.Label("num_gpu_blocks"))
		out = append(out, r)
	}
	return out
}

// workerMemory is the line of a vLLM worker or an SGLang scheduler that tells its room.
var workerMemory = []*regexp.Regexp{
	regexp.MustCompile(`\((?:Vllm)?Worker[_ ]?((?:DP\d+_)?(?:PP\d+_)?TP\d+|rank=\d+)[^)]{0,80}\).{0,80}Available KV cache memory: (\d{1,6}(?:\.\d{1,6})?) GiB`),
	regexp.MustCompile(`^\[[\d-]{10} [\d:]{8}((?: (?:DP|PP|TP|EP)\d+)+)\].{0,80}KV Cache is allocated\..{0,200}K size: (\d{1,6}(?:\.\d{1,6})?) GB, V size: (\d{1,6}(?:\.\d{1,6})?) GB`),
}

// logRanks reads the workers of one launch from its log.
func logRanks(log []byte) []RankCache {
	seen := map[string]int64{}
	for line := range bytes.Lines(log) {
		if len(line) > 4096 || !bytes.Contains(line, []byte("KV ")) {
			continue
		}
		for _, re := range workerMemory {
			m := re.FindSubmatch(line)
			if m == nil || len(seen) >= maxRanks {
				continue
			}
			var gib float64
			for _, part := range m[2:] {
				v, _ := strconv.ParseFloat(string(part), 64)
				gib += v
			}
			seen[string(bytes.TrimSpace(m[1]))] = int64(gib * (1 << 30))
		}
	}
	var out []RankCache
	for name, memory := range seen {
		out = append(out, RankCache{Name: name, Memory: memory})
	}
	return out
}

// ranks collects what metrics and log tell of an engine's ranks.
func ranks(ctx context.Context, c *engine.Client, rec process.Record, dialect string) []RankCache {
	var out []RankCache
	if dialect == "" || dialect == fleet.BackendVLLM {
		if s, err := c.Metrics(ctx); err == nil {
			out = metricRanks(s)
		}
	}
	if f, err := os.Open(rec.Log); err == nil {
		log, _ := io.ReadAll(io.NewSectionReader(f, rec.LogFrom, maxStart))
		_ = f.Close()
		out = append(out, logRanks(log)...)
	}
	slices.SortFunc(out, func(a, b RankCache) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return out
}
