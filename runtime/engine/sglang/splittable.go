package sglang

import (
	"bytes"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// Splittable refuses batches, which need a room for each of their prompts, and answers that need
// what only the prefilling engine has and does not send: the prompt's logits and hidden states.
func (dialect) Splittable(o splice.Object) (string, bool) {
	for _, k := range []string{"n", "best_of"} {
		if v, ok := o.Get(k); ok && !null(v) && !bytes.Equal(v, one) {
			return k + " is not 1", false
		}
	}
	for _, k := range []string{"prompt_logprobs", "prompt_embeds", "input_embeds", "session_params"} {
		if v, ok := o.Get(k); ok && !null(v) {
			return k + " is set", false
		}
	}
	for _, k := range []string{"use_beam_search", "return_hidden_states", "return_routed_experts"} {
		if asks(o, k) {
			return k + " is set", false
		}
	}
	if v, ok := o.Get("logprob_start_len"); ok && !null(v) && string(v) != "-1" {
		return "logprob_start_len is set", false
	}
	if v, ok := o.Get("logprobs"); asks(o, "echo") && ok && !null(v) && string(v) != "false" {
		return "echo with logprobs", false
	}
	if v, ok := o.Get("prompt"); ok && manyPrompts(v) {
		return "prompt is a list of prompts", false
	}
	return "", true
}

func asks(o splice.Object, key string) bool {
	v, ok := o.Get(key)
	return ok && string(v) == "true"
}

// manyPrompts is true for an array whose first element is no number, and for an empty one.
func manyPrompts(v []byte) bool {
	if len(v) == 0 || v[0] != '[' {
		return false
	}
	rest := bytes.TrimLeft(v[1:], " \t\r\n")
	return rest[0] != '-' && (rest[0] < '0' || rest[0] > '9')
}
