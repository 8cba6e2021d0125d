package router

import (
	"bytes"
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
)

// reserved refuses what would reach into the KV transfer.
func (c *call) reserved() *failure {
	v, ok := c.get("vllm_xargs")
	if !ok {
		return nil
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(v, &args) != nil {
		return nil
	}
	for _, k := range []string{"kv_cache_report_mode", "kv_transfer_params", "ec_transfer_params"} {
		if _, ok := args[k]; ok {
			return invalid("vllm_xargs", "vllm_xargs.%s is reserved for Narwhal", k)
		}
	}
	return nil
}

// reservedBy refuses what one dialect keeps for the router, what it cannot stream, and what its
// engines refuse although the legs would hide it from them.
func (c *call) reservedBy(dialect string) *failure {
	if dialect != sglang.Name {
		if _, ok := c.get("stream_options"); ok && !c.stream {
			return invalid("stream_options", "stream_options is for streams: it must be left out unless stream is true")
		}
		return nil
	}
	for _, k := range []string{"rid", "bootstrap_host", "bootstrap_port", "bootstrap_room"} {
		if _, ok := c.get(k); ok {
			return invalid(k, "%s is reserved for Narwhal", k)
		}
	}
	for _, k := range []string{"return_token_ids", "return_prompt_token_ids", "return_meta_info"} {
		if v, ok := c.get(k); ok && c.chat && string(v) != "false" {
			return invalid(k, "%s is not served for chat by this backend", k)
		}
	}
	return nil
}

// buffered refuses what cannot be put together from a stream.
func (c *call) buffered() *failure {
	if c.stream {
		return nil
	}
	if _, ok := c.get("audio"); ok {
		return invalid("audio", "non-streaming audio output is not supported")
	}
	if v, ok := c.get("modalities"); ok {
		var m []string
		if json.Unmarshal(v, &m) != nil || len(m) != 1 || m[0] != "text" {
			return invalid("modalities", `non-streaming modalities must be ["text"]`)
		}
	}
	v, ok := c.get("tools")
	if !ok {
		return nil
	}
	var tools []json.RawMessage
	if json.Unmarshal(v, &tools) != nil {
		return invalid("tools", "non-streaming tools must be a list of objects")
	}
	for _, raw := range tools {
		var t struct {
			Type *string `json:"type"`
		}
		if !bytes.HasPrefix(raw, []byte("{")) || json.Unmarshal(raw, &t) != nil {
			return invalid("tools", "non-streaming tools must be a list of objects")
		}
		if t.Type != nil && *t.Type != "function" {
			return invalid("tools", "non-streaming tools must have type function")
		}
	}
	return nil
}

// served checks what only this router can judge: its model.
func (c *call) served(modelName string) *failure {
	if c.named && c.model != modelName {
		f := invalid("model", "model %s is not served here; this router serves %s", quote(c.model), quote(modelName))
		f.status, f.code = 404, ptr("model_not_found")
		return f
	}
	return nil
}
