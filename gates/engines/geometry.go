package engines

import (
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// sourceContract marks a layout whose bytes follow from the fleet's contract.
const sourceContract = "engine_contract"

// geometryOf is the KV geometry that a contract declares, nil when it lacks a part. The
// cache dtype "auto" is the model's.
func geometryOf(c *fleet.Contract) *engine.Geometry {
	if c == nil || c.HiddenLayers < 1 || c.KVHeads < 1 || c.HeadSize < 1 {
		return nil
	}
	dtype := c.KVCacheDtype
	if dtype == "" || dtype == "auto" {
		dtype = c.ModelDtype
	}
	n := elementBytes(dtype)
	if n == 0 {
		return nil
	}
	return &engine.Geometry{Layers: c.HiddenLayers, KVHeads: c.KVHeads, HeadSize: c.HeadSize, ElementBytes: n}
}

// elementBytes is the size of one element of a dtype, 0 when unknown.
func elementBytes(dtype string) int {
	d := strings.TrimPrefix(strings.ToLower(dtype), "torch.")
	switch {
	case strings.HasPrefix(d, "fp8"), strings.HasPrefix(d, "float8"), d == "int8", d == "uint8":
		return 1
	case d == "bfloat16", d == "float16", d == "half", d == "bf16", d == "fp16":
		return 2
	case d == "float32", d == "float", d == "fp32":
		return 4
	}
	return 0
}

// declared fills in what an engine does not tell of its layout.
func declared(l engine.CacheLayout, g *engine.Geometry) engine.CacheLayout {
	if g == nil || l.BytesPerBlock > 0 {
		return l
	}
	l.Geometry, l.BytesPerBlock, l.Source = g, g.BytesPerToken()*int64(l.BlockSize), sourceContract
	return l
}
