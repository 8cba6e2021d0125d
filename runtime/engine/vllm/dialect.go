// Package vllm is the dialect of vLLM with the NIXL connector, pull mode, wire version 14.
//
// It promises legs that keep the client's bytes where they shape the prompt, and a check that
// refuses every handoff known to kill or mislead a decoding engine. It refuses to split what a
// split cannot answer rightly.
package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// Name of the dialect in a fleet file.
const Name = "vllm"

type dialect struct{}

// New returns the dialect.
func New() engine.Dialect { return dialect{} }

func (dialect) Name() string { return Name }

// Concurrent: leg 2 needs what leg 1 returned.
func (dialect) Concurrent() bool { return false }

func (dialect) Pair(splice.Object, bool, engine.Rendezvous) (prefill, decode []byte, err error) {
	return nil, nil, engine.ErrSerial
}

func (dialect) Identity(ctx context.Context, c *engine.Client) (engine.Identity, error) {
	return c.Identity(ctx)
}

func (dialect) Layout(ctx context.Context, c *engine.Client) (engine.CacheLayout, error) {
	return c.CacheLayout(ctx)
}

// Ready is liveness: this engine has no other word.
func (dialect) Ready(ctx context.Context, c *engine.Client) error { return c.Health(ctx) }

const transferField = "kv_transfer_params"

var (
	leg1Params = json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false}`)
	one        = json.RawMessage("1")
	no         = json.RawMessage("false")
)

// A client that reached an engine with one of these could kill it: they never pass.
func foreign(key string) bool {
	switch key {
	case transferField, "ec_transfer_params", "vllm_xargs":
		return true
	}
	return strings.HasPrefix(key, "bootstrap_")
}

// dropped on leg 1: they cost time or are refused beside max_tokens 1, and shape no prompt.
func dropped(key string) bool {
	switch key {
	case "stream_options", "min_tokens", "logprobs", "top_logprobs",
		"stop", "stop_token_ids", "include_stop_str_in_output", // they are the answer's, and this token is not of it
		"response_format", "structured_outputs",
		"guided_json", "guided_regex", "guided_choice", "guided_grammar":
		return true
	}
	return foreign(key)
}

// Prefill sets every token limit that is present to 1, and max_tokens where there is none or where
// it is the only one that counts: completions ignore the others.
func (dialect) Prefill(o splice.Object) ([]byte, error) {
	set := []splice.Set{{Key: "stream", Value: no}}
	_, chat := o.Get("messages")
	limited := false
	for _, k := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if _, ok := o.Get(k); ok {
			set, limited = append(set, splice.Set{Key: k, Value: one}), limited || chat || k == "max_tokens"
		}
	}
	if !limited {
		set = append(set, splice.Set{Key: "max_tokens", Value: one})
	}
	for _, k := range []string{"n", "best_of"} {
		if v, ok := o.Get(k); ok && !null(v) {
			set = append(set, splice.Set{Key: k, Value: one})
		}
	}
	set = append(set, splice.Set{Key: transferField, Value: leg1Params})
	forced := forcesTool(o)
	return o.Edit(func(k string) bool { return dropped(k) || (forced && k == "tool_choice") }, set...), nil
}

// Decode strips what a client may not send and adds the handoff's bytes.
func (dialect) Decode(o splice.Object, h *engine.Handoff) ([]byte, error) {
	if h.Empty() {
		return o.Edit(foreign), nil
	}
	return o.Edit(foreign, splice.Set{Key: transferField, Value: h.Raw}), nil
}

// Splittable refuses requests with several choices or prompts, and those whose answer needs
// the prompt's logits, which only the prefilling engine has.
func (dialect) Splittable(o splice.Object) (string, bool) {
	for _, k := range []string{"n", "best_of"} {
		if v, ok := o.Get(k); ok && !null(v) && !bytes.Equal(v, one) {
			return k + " is not 1", false
		}
	}
	for _, k := range []string{"prompt_logprobs", "prompt_embeds"} {
		if v, ok := o.Get(k); ok && !null(v) {
			return k + " is set", false
		}
	}
	if v, ok := o.Get("use_beam_search"); ok && string(v) == "true" {
		return "use_beam_search is set", false
	}
	if v, ok := o.Get("echo"); ok && string(v) == "true" && asksLogprobs(o) {
		return "echo with logprobs", false
	}
	if v, ok := o.Get("prompt"); ok && manyPrompts(v) {
		return "prompt is a list of prompts", false
	}
	return "", true
}

func asksLogprobs(o splice.Object) bool {
	v, ok := o.Get("logprobs")
	return ok && !null(v) && string(v) != "false"
}

// manyPrompts is true for an array whose first element is no number, and for an empty one.
func manyPrompts(v []byte) bool {
	if len(v) == 0 || v[0] != '[' {
		return false
	}
	rest := bytes.TrimLeft(v[1:], " \t\r\n")
	return rest[0] != '-' && (rest[0] < '0' || rest[0] > '9')
}

// forcesTool is true when tool_choice is "required" or names a function.
func forcesTool(o splice.Object) bool {
	v, ok := o.Get("tool_choice")
	if !ok || null(v) {
		return false
	}
	return v[0] == '{' || string(v) == `"required"`
}

func null(v []byte) bool { return string(v) == "null" }
