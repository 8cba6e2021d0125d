package simulated

import (
	"encoding/json"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// transfer is what a request's kv_transfer_params ask for.
type transfer struct {
	export bool
	take   bool
	// hangs marks a handoff without a required member: the request waits for ever and the core
	// dies when its client leaves. dies marks one that kills the core at once.
	hangs, dies bool
	from        origin
	blocks      []int
	cached      int // the producer's own cache hit
}

// origin names a producer's pin.
type origin struct {
	EngineID, RequestID, Host string
	Port                      int
	Heartbeats                bool
}

// readTransfer judges nothing: a real engine does not either, and dies of what is wrong.
func (s *Server) readTransfer(f *fields) (t transfer) {
	o, ok := f.object("kv_transfer_params")
	if !ok || s.cfg.SideChannel == "" {
		return t
	}
	t.export = truthy(o, "do_remote_decode")
	if !truthy(o, "do_remote_prefill") {
		return t
	}
	t.take = true
	whole := scan(o, "remote_engine_id", &t.from.EngineID)
	whole = scan(o, "remote_request_id", &t.from.RequestID) && whole
	whole = scan(o, "remote_host", &t.from.Host) && whole
	whole = scan(o, "remote_port", &t.from.Port) && whole
	raw, listed := o.get("remote_block_ids")
	t.hangs = !whole || !listed
	if listed {
		t.readBlocks(raw)
	}
	scan(o, "remote_prefill_cached_tokens", &t.cached)
	tp := 0
	t.from.Heartbeats = scan(o, "tp_size", &tp) && tp > 0
	return t
}

func (t *transfer) readBlocks(raw json.RawMessage) {
	var groups [][]int
	if json.Unmarshal(raw, &groups) != nil || len(groups) == 0 || len(groups[0]) == 0 {
		t.dies = true
		return
	}
	t.blocks = groups[0]
}

func truthy(o *fields, key string) bool {
	v, ok := o.get(key)
	return ok && string(v) == "true"
}

func scan[T any](o *fields, key string, v *T) bool {
	raw, ok := o.get(key)
	if !ok {
		return false
	}
	var x T
	if json.Unmarshal(raw, &x) != nil {
		return false
	}
	*v = x
	return true
}

// handoff renders a pin in the exact shape of the wire.
func (s *Server) handoff(p *core.Pin) []byte {
	b := []byte(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[`)
	for i, id := range p.Blocks {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, int64(id))
	}
	b = append(b, `]],"remote_engine_id":`...)
	b = appendString(b, s.id)
	b = append(b, `,"remote_request_id":`...)
	b = appendString(b, p.ID)
	b = append(b, `,"remote_host":`...)
	b = appendString(b, s.cfg.AnnounceHost)
	b = append(b, `,"remote_port":`...)
	b = appendInt(b, int64(s.SidePort()))
	b = append(b, `,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":`...)
	b = appendInt(b, int64(p.Tokens))
	b = append(b, `,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":`...)
	b = appendInt(b, int64(p.Cached))
	return append(b, '}')
}
