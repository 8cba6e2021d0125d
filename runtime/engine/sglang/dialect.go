// Package sglang is the dialect of SGLang with prefill and decode on separate processes, both
// legs of a request at once, paired by a bootstrap room.
//
// It promises legs that keep the client's bytes, so that the prefilling engine samples the first
// token under the rules that the decoding engine goes on with. It refuses handoffs, which this
// engine does not have, and to split what a split cannot answer rightly.
package sglang

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// Name of the dialect in a fleet file.
const Name = "sglang"

type dialect struct{}

// New returns the dialect. It implements engine.Switcher and engine.Tagger too.
func New() engine.Dialect { return dialect{} }

var (
	_ engine.Switcher = dialect{}
	_ engine.Tagger   = dialect{}
	_ engine.Meeter   = dialect{}
)

func (dialect) Name() string { return Name }

func (dialect) Concurrent() bool { return true }

// Prefill needs a room, which only Pair takes.
func (dialect) Prefill(splice.Object) ([]byte, error) { return nil, engine.ErrConcurrent }

// Decode is the body of an unsplit request, for an engine without a role.
func (dialect) Decode(o splice.Object, h *engine.Handoff) ([]byte, error) {
	if !h.Empty() {
		return nil, engine.ErrConcurrent
	}
	drop, set := foreign, []splice.Set(nil)
	if limit, ok := renamed(o); ok {
		drop = func(k string) bool { return foreign(k) || k == longLimit }
		set = append(set, splice.Set{Key: limitField, Value: limit})
	}
	return o.Edit(drop, set...), nil
}

// ParseHandoff reads the usage of a leg's answer. There is never a handoff.
func (dialect) ParseHandoff(resp []byte, _ time.Time) (*engine.Handoff, engine.Usage, error) {
	o, err := splice.Parse(resp)
	if err != nil {
		return nil, engine.Usage{}, fmt.Errorf("read answer of leg 1: %w", err)
	}
	u, err := engine.ReadUsage(o)
	if err != nil {
		return nil, engine.Usage{}, fmt.Errorf("read answer of leg 1: %w", err)
	}
	if u == nil {
		return nil, engine.Usage{}, errors.New("read answer of leg 1: no usage")
	}
	return nil, *u, engine.ErrNoHandoff
}

// Check refuses every handoff: none can be this engine's.
func (dialect) Check(*engine.Handoff, engine.Expect) error {
	return &engine.HandoffError{Field: "kv_transfer_params", Reason: "is of another dialect"}
}

const (
	limitField = "max_tokens"
	longLimit  = "max_completion_tokens"
	idField    = "rid"
)

var (
	one = json.RawMessage("1")
	yes = json.RawMessage("true")
	no  = json.RawMessage("false")
)

// foreign names what a client must not send: it would pair with, abort or place somebody else's
// request.
func foreign(key string) bool {
	switch key {
	case idField, "kv_transfer_params", "ec_transfer_params", "vllm_xargs",
		"data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank":
		return true
	}
	return strings.HasPrefix(key, "bootstrap_")
}

// dropped on the prefilling leg: refused beside a limit of one token, or meaningless there. What
// shapes the first token, logprobs and grammars included, stays.
func dropped(key string) bool {
	switch key {
	case "stream_options", "min_tokens", "n", "best_of", longLimit:
		return true
	}
	return foreign(key)
}

// Pair gives both legs the same room. The prefilling leg asks for one token in one piece, the
// decoding leg streams; on completions it returns token ids.
func (dialect) Pair(o splice.Object, chat bool, r engine.Rendezvous) (prefill, decode []byte, err error) {
	if r.Host == "" || r.Port < 1 || r.Port > 65535 || r.Room>>63 != 0 {
		return nil, nil, errors.New("rewrite for both legs: rendezvous needs a host, a port and a room below 2^63")
	}
	meet := rendezvous(r)
	first := append([]splice.Set{{Key: limitField, Value: one}, {Key: "stream", Value: no}}, meet...)
	second := []splice.Set{{Key: "stream", Value: yes}}
	if !chat {
		second = append(second, splice.Set{Key: "return_token_ids", Value: yes})
	}
	if limit, ok := renamed(o); ok {
		second = append(second, splice.Set{Key: limitField, Value: limit})
	}
	second = append(second, meet...)
	drop := func(k string) bool { return foreign(k) || k == longLimit }
	return o.Edit(dropped, first...), o.Edit(drop, second...), nil
}

func rendezvous(r engine.Rendezvous) []splice.Set {
	host, _ := json.Marshal(r.Host) // a string never fails
	return []splice.Set{
		{Key: "bootstrap_host", Value: host},
		{Key: "bootstrap_port", Value: strconv.AppendInt(nil, int64(r.Port), 10)},
		{Key: "bootstrap_room", Value: strconv.AppendUint(nil, r.Room, 10)},
	}
}

// renamed returns the limit under its newer name, which wins where both are set.
func renamed(o splice.Object) (json.RawMessage, bool) {
	v, ok := o.Get(longLimit)
	return v, ok && !null(v)
}

// Tag sets the id under which the engine knows the leg, and by which it can be aborted.
func (dialect) Tag(body []byte, id string) ([]byte, error) {
	o, err := splice.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("set request id: %w", err)
	}
	v, err := json.Marshal(id)
	if err != nil {
		return nil, fmt.Errorf("set request id: %w", err)
	}
	return o.Edit(nil, splice.Set{Key: idField, Value: v}), nil
}

func null(v []byte) bool { return string(bytes.TrimSpace(v)) == "null" }
