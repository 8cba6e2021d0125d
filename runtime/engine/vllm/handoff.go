package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// ParseHandoff accepts any JSON object as a handoff and leaves judgement to Check, so that a
// malformed one can be reported with its fields.
func (dialect) ParseHandoff(resp []byte, received time.Time) (engine.Handoff, engine.Usage, error) {
	var w struct {
		Usage   *engine.Usage   `json:"usage"`
		Handoff json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(resp, &w); err != nil {
		return engine.Handoff{}, engine.Usage{}, fmt.Errorf("read prefill answer: %w", err)
	}
	if w.Usage == nil {
		return engine.Handoff{}, engine.Usage{}, errors.New("read prefill answer: no usage")
	}
	if len(w.Handoff) == 0 || null(w.Handoff) {
		return engine.Handoff{}, *w.Usage, engine.ErrNoHandoff
	}
	h, err := readHandoff(w.Handoff)
	h.Received = received
	return h, *w.Usage, err
}

type wireHandoff struct {
	RemotePrefill json.RawMessage `json:"do_remote_prefill"`
	RemoteDecode  json.RawMessage `json:"do_remote_decode"`
	Blocks        json.RawMessage `json:"remote_block_ids"`
	EngineID      json.RawMessage `json:"remote_engine_id"`
	RequestID     json.RawMessage `json:"remote_request_id"`
	Host          json.RawMessage `json:"remote_host"`
	Port          json.RawMessage `json:"remote_port"`
	TP            json.RawMessage `json:"tp_size"`
	DCP           json.RawMessage `json:"dcp_size"`
	PP            json.RawMessage `json:"pp_size"`
	Tokens        json.RawMessage `json:"remote_num_tokens"`
	Cached        json.RawMessage `json:"remote_prefill_cached_tokens"`
	Mode          json.RawMessage `json:"transfer_mode"`
}

func readHandoff(raw json.RawMessage) (engine.Handoff, error) {
	var w wireHandoff
	if raw[0] != '{' || json.Unmarshal(raw, &w) != nil {
		return engine.Handoff{}, &engine.HandoffError{Field: transferField, Reason: "is no object"}
	}
	h := engine.Handoff{Raw: bytes.Clone(raw)}
	read(w.RemotePrefill, &h.RemotePrefill)
	read(w.RemoteDecode, &h.RemoteDecode)
	read(w.EngineID, &h.EngineID)
	read(w.RequestID, &h.RequestID)
	read(w.Host, &h.Host)
	read(w.Port, &h.Port)
	read(w.TP, &h.TP)
	read(w.DCP, &h.DCP)
	read(w.PP, &h.PP)
	read(w.Tokens, &h.Tokens)
	read(w.Cached, &h.CachedTokens)
	read(w.Mode, &h.TransferMode)
	var flat []int
	if json.Unmarshal(w.Blocks, &h.Blocks) != nil {
		h.Blocks = nil
		h.Flat = json.Unmarshal(w.Blocks, &flat) == nil
	}
	return h, nil
}

// read leaves the zero value for a member that is absent, null or of another type: Check
// refuses those.
func read[T any](raw json.RawMessage, v *T) {
	var x T
	if json.Unmarshal(raw, &x) == nil {
		*v = x
	}
}

func bad(field, format string, a ...any) error {
	return &engine.HandoffError{Field: field, Reason: fmt.Sprintf(format, a...)}
}

// Check applies the table of the dialect contract. The order is that of the damage: what
// kills a decoding engine first, then what misleads it.
func (dialect) Check(h engine.Handoff, want engine.Expect) error {
	if h.Empty() {
		return bad(transferField, "is absent")
	}
	for _, check := range []func(engine.Handoff, engine.Expect) error{
		checkBlocks, checkPeer, checkShape, checkTokens,
	} {
		if err := check(h, want); err != nil {
			return err
		}
	}
	return nil
}

func checkBlocks(h engine.Handoff, want engine.Expect) error {
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

func checkPeer(h engine.Handoff, want engine.Expect) error {
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

func checkShape(h engine.Handoff, _ engine.Expect) error {
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

func checkTokens(h engine.Handoff, want engine.Expect) error {
	switch {
	case h.Tokens < 1:
		return bad("remote_num_tokens", "is no positive integer")
	case want.PromptTokens > 0 && h.Tokens != want.PromptTokens:
		return bad("remote_num_tokens", "is %d, the prompt has %d", h.Tokens, want.PromptTokens)
	}
	return nil
}
