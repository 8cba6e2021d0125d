package router

import (
	"errors"

	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// parseObject parses a client's body. What is no JSON object, or no UTF-8, is told with its cause and
// its place. Escaped lone surrogates pass: they are valid JSON, and the engine judges them.
func parseObject(body []byte) (splice.Object, *failure) {
	at := splice.NotUTF8(body)
	if at < 0 {
		o, err := splice.Parse(body)
		switch {
		case err == nil:
			return o, nil
		case errors.Is(err, splice.ErrNotObject):
			return o, invalid("", "the request body must be a JSON object")
		}
	}
	fault := splice.Explain(body)
	switch fault.Kind {
	case splice.FaultEmpty:
		return splice.Object{}, invalid("", "the request body is empty; send a JSON object")
	case splice.FaultDeep:
		return splice.Object{}, invalid("", "the request body is nested deeper than %d levels at byte offset %d", splice.MaxDepth, fault.At)
	case splice.FaultUTF8:
		return splice.Object{}, invalid("", "the request body is not valid UTF-8 at byte offset %d: 0x%02x", fault.At, body[fault.At])
	}
	return splice.Object{}, invalid("", "the request body is not valid JSON at byte offset %d: %s", fault.At, fault.Says)
}
