package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Config is what a model's config.json says that changes a launch.
type Config struct {
	Architectures []string `json:"architectures,omitempty"`
	Type          string   `json:"type,omitempty"`
	Dtype         string   `json:"dtype,omitempty"`   // of the weights; "" = not told
	Context       int      `json:"context,omitempty"` // tokens; 0 = not told
	// Code lists the classes that the folder brings its own program text for.
	Code []string `json:"code,omitempty"`
	// Convolution says that layers keep a convolutional state, whose layout engines must share.
	Convolution bool   `json:"convolution,omitempty"`
	Quantized   string `json:"quantized,omitempty"`
	Layers      int    `json:"layers,omitempty"`
	Heads       int    `json:"heads,omitempty"`
	KVHeads     int    `json:"kv_heads,omitempty"`
	HeadSize    int    `json:"head_size,omitempty"`
}

// MaxConfig bounds config.json, in bytes.
const MaxConfig = 4 << 20

const maxDepth = 64

// ParseConfig reads config.json. Keys of another type than expected count as absent.
func ParseConfig(b []byte) (Config, error) {
	var c Config
	if len(b) > MaxConfig {
		return c, fmt.Errorf("read config.json: more than %d bytes", MaxConfig)
	}
	var root map[string]any
	if err := json.Unmarshal(b, &root); err != nil {
		return c, fmt.Errorf("read config.json: %w", err)
	}
	if root == nil {
		return c, fmt.Errorf("read config.json: it is no object")
	}
	text := object(root["text_config"])
	if text == nil {
		text = root
	}
	pick := func(name string) any {
		if v := text[name]; v != nil {
			return v
		}
		return root[name]
	}
	c.Architectures = words(root["architectures"])
	c.Type = word(root["model_type"])
	c.Dtype = strings.TrimPrefix(word(pick("dtype")), "torch.")
	if c.Dtype == "" {
		c.Dtype = strings.TrimPrefix(word(pick("torch_dtype")), "torch.")
	}
	c.Context = count(pick("max_position_embeddings"))
	c.Layers, c.Heads, c.KVHeads, c.HeadSize = count(pick("num_hidden_layers")), count(pick("num_attention_heads")), count(pick("num_key_value_heads")), count(pick("head_dim"))
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadSize == 0 && c.Heads > 0 {
		c.HeadSize = count(pick("hidden_size")) / c.Heads
	}
	if q := object(root["quantization_config"]); q != nil {
		c.Quantized = word(q["quant_method"])
	}
	c.Code = code(root, 0)
	slices.Sort(c.Code)
	c.Code = slices.Compact(c.Code)
	c.Convolution = convolution(text)
	return c, nil
}

// code finds every non-empty auto_map, however deep.
func code(v any, depth int) []string {
	var out []string
	if depth > maxDepth {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if k == "auto_map" {
				out = append(out, mapped(x)...)
				continue
			}
			out = append(out, code(x, depth+1)...)
		}
	case []any:
		for _, x := range v {
			out = append(out, code(x, depth+1)...)
		}
	}
	return out
}

func mapped(v any) []string {
	switch v := v.(type) {
	case map[string]any:
		var out []string
		for k, x := range v {
			name := word(x)
			if list := words(x); len(list) > 0 {
				name = list[0]
			}
			out = append(out, clip(clean(k)+" = "+name))
		}
		return out
	case string, []any:
		if list := words(v); len(list) > 0 || word(v) != "" {
			return []string{clip(word(v) + strings.Join(list, " "))}
		}
	}
	return nil
}

// convolution follows the markers of state-space and linear attention layers.
func convolution(text map[string]any) bool {
	if l := object(text["linear_attn_config"]); l != nil {
		if layers, ok := l["kda_layers"].([]any); ok && len(layers) > 0 && l["short_conv_kernel_size"] != nil {
			return true
		}
	}
	if text["mamba_d_conv"] != nil || text["mamba_d_state"] != nil {
		return true
	}
	for _, kind := range slices.Concat(words(text["layer_types"]), words(text["layers_block_type"])) {
		if strings.Contains(kind, "mamba") || strings.Contains(kind, "ssm") || kind == "linear_attention" && text["linear_conv_kernel_dim"] != nil {
			return true
		}
	}
	return false
}

func object(v any) map[string]any { m, _ := v.(map[string]any); return m }

func word(v any) string {
	s, _ := v.(string)
	return clip(clean(s))
}

func words(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		if s := word(x); s != "" && len(out) < 1000 {
			out = append(out, s)
		}
	}
	return out
}

func count(v any) int {
	n, _ := v.(float64)
	if n < 1 || n > 1<<40 || n != float64(int64(n)) {
		return 0
	}
	return int(n)
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, s)
}

func clip(s string) string {
	if len(s) > 120 {
		return strings.ToValidUTF8(s[:120], "")
	}
	return s
}
