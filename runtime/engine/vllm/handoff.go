package vllm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/splice"
)

// ParseHandoff accepts any JSON object as a handoff and leaves judgement to Check, so that a
// malformed one can be reported with its fields.
func (dialect) ParseHandoff(resp []byte, received time.Time) (*engine.Handoff, engine.Usage, error) {
	o, err := splice.Parse(resp)
	if err != nil {
		return nil, engine.Usage{}, fmt.Errorf("read prefill answer: %w", err)
	}
	u, err := engine.ReadUsage(o)
	if err != nil {
		return nil, engine.Usage{}, fmt.Errorf("read prefill answer: %w", err)
	}
	if u == nil {
		return nil, engine.Usage{}, errors.New("read prefill answer: no usage")
	}
	raw, ok := o.Get(transferField)
	if !ok || null(raw) {
		return nil, *u, engine.ErrNoHandoff
	}
	if raw[0] != '{' {
		return &engine.Handoff{Received: received}, *u, &engine.HandoffError{Field: transferField, Reason: "is no object"}
	}
	h := readHandoff(raw)
	h.Received = received
	return h, *u, nil
}

// readHandoff leaves the zero value for a member that is absent, null or of another type:
// Check refuses those.
func readHandoff(raw []byte) *engine.Handoff {
	o := splice.View(raw)
	h := &engine.Handoff{Raw: bytes.Clone(raw)}
	h.RemotePrefill, _ = splice.Bool(member(o, "do_remote_prefill"))
	h.RemoteDecode, _ = splice.Bool(member(o, "do_remote_decode"))
	h.EngineID, _ = splice.String(member(o, "remote_engine_id"))
	h.RequestID, _ = splice.String(member(o, "remote_request_id"))
	h.Host, _ = splice.String(member(o, "remote_host"))
	h.Port, _ = splice.Int(member(o, "remote_port"))
	h.TP, _ = splice.Int(member(o, "tp_size"))
	h.DCP, _ = splice.Int(member(o, "dcp_size"))
	h.PP, _ = splice.Int(member(o, "pp_size"))
	h.Tokens, _ = splice.Int(member(o, "remote_num_tokens"))
	h.CachedTokens, h.CachedTold = splice.Int(member(o, "remote_prefill_cached_tokens"))
	h.TransferMode, _ = splice.String(member(o, "transfer_mode"))
	blocks := member(o, "remote_block_ids")
	if rows, ok := splice.Rows(blocks); ok {
		h.Blocks = rows
	} else {
		_, h.Flat = splice.Ints(blocks)
	}
	return h
}

func member(o splice.Object, key string) []byte {
	v, _ := o.Get(key)
	return v
}

func bad(field, format string, a ...any) error {
	return &engine.HandoffError{Field: field, Reason: fmt.Sprintf(format, a...)}
}

// Check applies the table of the dialect contract. The order is that of the damage: what
// kills a decoding engine first, then what misleads it.
func (dialect) Check(h *engine.Handoff, want engine.Expect) error {
	if h.Empty() {
		return bad(transferField, "is absent")
	}
	for _, check := range []func(*engine.Handoff, engine.Expect) error{
		checkBlocks, checkPeer, checkShape, checkTokens,
	} {
		if err := check(h, want); err != nil {
			return err
		}
	}
	return nil
}

func checkBlocks(h *engine.Handoff, want engine.Expect) error {
	const f = "remote_block_ids"
	switch {
	case h.Flat:
		return bad(f, "has the flat shape of older engines")
	case h.Blocks == nil:
		return bad(f, "is no list of lists of block numbers")
	case h.TransferMode != "pull":
		return bad("transfer_mode", "is %q, want pull", engine.Printable(h.TransferMode, 32))
	case len(h.Blocks) == 0 || len(h.Blocks[0]) == 0:
		return bad(f, "is empty")
	}
	for _, group := range h.Blocks {
		for _, b := range group {
			if b < 0 {
				return bad(f, "has the negative block %d", b)
			}
		}
	}
	if need := want.BlockSize; need > 0 {
		need = (h.Tokens + want.BlockSize - 1) / want.BlockSize
		if len(h.Blocks[0]) != need {
			return bad(f, "has %d blocks, %d tokens take %d", len(h.Blocks[0]), h.Tokens, need)
		}
	}
	return nil
}

func checkPeer(h *engine.Handoff, want engine.Expect) error {
	switch {
	case h.EngineID == "":
		return bad("remote_engine_id", "is no non-empty string")
	case h.Host == "":
		return bad("remote_host", "is no non-empty string")
	case h.Port < 1 || h.Port > 65535:
		return bad("remote_port", "is no port number")
	case h.RequestID == "":
		return bad("remote_request_id", "is no non-empty string")
	case want.RequestID != "" && !strings.Contains(h.RequestID, want.RequestID):
		return bad("remote_request_id", "is of another request than the one asked")
	case want.EngineID != "" && h.EngineID != want.EngineID:
		return bad("remote_engine_id", "is another process than the one asked")
	case want.Host != "" && h.Host != want.Host:
		return bad("remote_host", "is %q, configured is %q", engine.Printable(h.Host, 128), want.Host)
	case want.Port != 0 && h.Port != want.Port:
		return bad("remote_port", "is %d, configured is %d", h.Port, want.Port)
	}
	return nil
}

func checkShape(h *engine.Handoff, _ engine.Expect) error {
	switch {
	case !h.RemotePrefill:
		return bad("do_remote_prefill", "is not true")
	case h.RemoteDecode:
		return bad("do_remote_decode", "is not false")
	case h.TP < 1:
		return bad("tp_size", "is no positive integer")
	case h.DCP < 1:
		return bad("dcp_size", "is no positive integer")
	case h.PP < 1:
		return bad("pp_size", "is no positive integer")
	}
	return nil
}

func checkTokens(h *engine.Handoff, want engine.Expect) error {
	switch {
	case h.Tokens < 1:
		return bad("remote_num_tokens", "is no positive integer")
	case want.PromptTokens > 0 && h.Tokens != want.PromptTokens:
		return bad("remote_num_tokens", "is %d, the prompt has %d", h.Tokens, want.PromptTokens)
	}
	return nil
}
