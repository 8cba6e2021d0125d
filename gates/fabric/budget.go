package fabric

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Budget is what an edge must carry.
type Budget struct {
	BlockTokens   int     `json:"block_tokens"`
	BytesPerBlock int64   `json:"bytes_per_block"`
	PromptTokens  int     `json:"prompt_tokens"`
	Payload       int64   `json:"payload_bytes_per_handoff"`
	PerSecond     float64 `json:"peak_handoffs_per_s"`
	Headroom      float64 `json:"headroom"`
	Required      float64 `json:"required_gbps"`
	Floor         float64 `json:"floor_gbps"` // the larger of required and deploy.fabric.min_gbps
	Layout        string  `json:"layout"`     // digest of the cache evidence
}

// BudgetOf computes the budget: 8 × payload × max(handoffs/s, burst ÷ budget) × headroom ÷ 10⁹
// Gbit/s, where the payload is the prompt's blocks.
func BudgetOf(fab fleet.Fabric, c engine.CacheLayout) (Budget, error) {
	if c.BlockSize <= 0 || c.BytesPerBlock <= 0 {
		return Budget{}, fmt.Errorf("compute the KV budget: the cache layout tells no bytes a block")
	}
	blocks := int64((fab.PromptTokens + c.BlockSize - 1) / c.BlockSize)
	b := Budget{BlockTokens: c.BlockSize, BytesPerBlock: c.BytesPerBlock, PromptTokens: fab.PromptTokens, Headroom: fab.Headroom, PerSecond: fab.HandoffsPerS}
	if fab.BudgetS > 0 {
		b.PerSecond = max(b.PerSecond, float64(fab.Burst)/fab.BudgetS)
	}
	b.Payload = blocks * c.BytesPerBlock
	b.Required = 8 * float64(b.Payload) * b.PerSecond * b.Headroom / 1e9
	b.Floor = max(b.Required, fab.MinGbps)
	return b, nil
}

// budgetAhead is the budget that the plan can know: that of the cache evidence, and none as
// long as no engine was asked. Its sizes are measured; the judge reads the recorded one.
func budgetAhead(v gates.View) Budget {
	var c engine.CacheLayout
	if len(v.Fleet.Engines) == 0 || v.Decode(cacheKey(v.Fleet), &c) != nil {
		return Budget{}
	}
	b, err := BudgetOf(v.Fleet.Deploy.Fabric, c)
	if err != nil {
		return Budget{}
	}
	return b
}

// Locals are the operations of the gate that run on the workstation.
func (Gate) Locals() map[string]gates.Local {
	return map[string]gates.Local{"budget": func(_ context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
		v := env.View()
		if len(v.Fleet.Engines) == 0 {
			return nil, fmt.Errorf("compute the KV budget: the fleet has no engine")
		}
		key := cacheKey(v.Fleet)
		var c engine.CacheLayout
		if err := v.Decode(key, &c); err != nil {
			return nil, err
		}
		b, err := BudgetOf(v.Fleet.Deploy.Fabric, c)
		if err != nil {
			return nil, err
		}
		b.Layout = v.Digest(key)
		return json.Marshal(b)
	}}
}

func cacheKey(f fleet.Fleet) record.Key { return record.NewKey("C", "cache", f.Engines[0].IID) }
