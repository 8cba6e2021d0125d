package engine

import (
	"context"
	"errors"
	"strconv"
)

// Sources of a layout's bytes per block.
const (
	SourceMemory   = "kv_cache_memory_bytes" // cache memory over blocks, from the metrics
	SourceGeometry = "cache_geometry"        // 2·layers·heads·head size·element bytes·block size
)

// CacheLayout is the shape of an engine's KV cache.
//
// A real vLLM reports block size, block count and cache dtype on /metrics; bytes per block
// follow from kv_cache_memory_bytes where it is set (CPU builds, --kv-cache-memory-bytes).
// It does not report layers and heads over HTTP: those come from the model's configuration.
// The simulated engine reports them on /server_info.
type CacheLayout struct {
	BlockSize int    `json:"block_size"` // tokens
	Blocks    int    `json:"blocks"`
	Dtype     string `json:"cache_dtype"`
	// BytesPerBlock is 0 when the engine does not tell; Source says where it comes from.
	BytesPerBlock int64  `json:"bytes_per_block"`
	Source        string `json:"source"`
	PrefixCaching bool   `json:"prefix_caching"`
	// Geometry is nil when the engine does not tell.
	Geometry *Geometry `json:"geometry"`
}

// Geometry of the model's KV.
type Geometry struct {
	Layers       int `json:"layers"`
	KVHeads      int `json:"kv_heads"`
	HeadSize     int `json:"head_size"`
	ElementBytes int `json:"element_bytes"`
}

// BytesPerToken is 2 × layers × KV heads × head size × element bytes.
func (g Geometry) BytesPerToken() int64 {
	return 2 * int64(g.Layers) * int64(g.KVHeads) * int64(g.HeadSize) * int64(g.ElementBytes)
}

// LayoutFrom reads a scrape's cache information. A scrape without it is a *MissingError.
func LayoutFrom(s Samples) (CacheLayout, error) {
	all := s.All("vllm:cache_config_info")
	if len(all) == 0 {
		return CacheLayout{}, &MissingError{Names: []string{"vllm:cache_config_info"}}
	}
	m := all[0]
	var l CacheLayout
	l.BlockSize, _ = strconv.Atoi(m.Label("block_size"))
	l.Blocks, _ = strconv.Atoi(m.Label("num_gpu_blocks"))
	if l.BlockSize <= 0 || l.Blocks <= 0 {
		return CacheLayout{}, &MissingError{Names: []string{"block_size", "num_gpu_blocks"}}
	}
	l.Dtype = Printable(m.Label("cache_dtype"), 64)
	l.PrefixCaching = m.Label("enable_prefix_caching") == "True"
	// An overridden count of blocks does not fill that memory.
	over := m.Label("num_gpu_blocks_override")
	if b, err := strconv.ParseInt(m.Label("kv_cache_memory_bytes"), 10, 64); err == nil && b > 0 && (over == "" || over == "None") {
		l.BytesPerBlock, l.Source = b/int64(l.Blocks), SourceMemory
	}
	return l, nil
}

// CacheLayout reads the layout from the metrics and, where the engine offers it, the geometry
// from its server information. An engine without that route is not an error.
func (c *Client) CacheLayout(ctx context.Context) (CacheLayout, error) {
	s, err := c.Metrics(ctx)
	if err != nil {
		return CacheLayout{}, err
	}
	l, err := LayoutFrom(s)
	if err != nil {
		return CacheLayout{}, err
	}
	var info struct {
		Geometry *Geometry `json:"cache_geometry"`
	}
	err = c.GetJSON(ctx, "/server_info?config_format=json", &info)
	var refused *StatusError
	if err != nil && !errors.As(err, &refused) {
		return CacheLayout{}, err
	}
	if g := info.Geometry; err == nil && g != nil && g.BytesPerToken() > 0 {
		l.Geometry = g
		if l.BytesPerBlock == 0 {
			l.BytesPerBlock, l.Source = g.BytesPerToken()*int64(l.BlockSize), SourceGeometry
		}
	}
	return l, nil
}
