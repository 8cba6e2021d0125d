package engine

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// Splittable is Dialect.Splittable of a body. A body that is no JSON object is not
// splittable: send it unsplit and let the engine refuse it.
func Splittable(d Dialect, body []byte) (reason string, ok bool) {
	o, err := splice.Parse(body)
	if err != nil {
		return "body is no json object", false
	}
	return d.Splittable(o)
}

// Prefill is Dialect.Prefill of a body.
func Prefill(d Dialect, body []byte) ([]byte, error) {
	o, err := splice.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("rewrite for prefill: %w", err)
	}
	return d.Prefill(o)
}

// Decode is Dialect.Decode of a body.
func Decode(d Dialect, body []byte, h *Handoff) ([]byte, error) {
	o, err := splice.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("rewrite for decode: %w", err)
	}
	return d.Decode(o, h)
}

// Pair is Dialect.Pair of a body.
func Pair(d Dialect, body []byte, chat bool, r Rendezvous) (prefill, decode []byte, err error) {
	o, err := splice.Parse(body)
	if err != nil {
		return nil, nil, fmt.Errorf("rewrite for both legs: %w", err)
	}
	return d.Pair(o, chat, r)
}
