package simulated

import (
	"encoding/json"
	"net/http"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/token"
)

// serverInfo shows the excerpt of the real engine's answer that a preflight reads, and the
// cache geometry, which the real one does not show. The real engine answers in development
// mode only.
func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	c := s.cfg
	info := map[string]any{
		"vllm_config": map[string]any{
			"model_config": map[string]any{
				"model": c.Root, "served_model_name": c.Model, "max_model_len": c.MaxModelLen, "dtype": "torch.bfloat16",
			},
			"cache_config": map[string]any{
				"block_size": c.BlockSize, "num_gpu_blocks": c.Blocks, "cache_dtype": "auto",
				"enable_prefix_caching": c.PrefixCaching, "kv_cache_size_tokens": c.Blocks * c.BlockSize,
				"kv_cache_memory_bytes": int64(c.Blocks) * c.core().BytesPerBlock(),
			},
			"parallel_config":    map[string]any{"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1},
			"scheduler_config":   map[string]any{"max_num_seqs": c.MaxNumSeqs, "max_num_batched_tokens": c.MaxBatched},
			"kv_transfer_config": s.transferInfo(),
			"shutdown_timeout":   c.ShutdownTimeout.D().Seconds(),
		},
		"cache_geometry": engine.Geometry{Layers: c.Layers, KVHeads: c.KVHeads, HeadSize: c.HeadSize, ElementBytes: c.ElementBytes},
		"simulated":      true,
	}
	b, err := json.Marshal(info)
	if err != nil {
		internal("Internal server error").write(w)
		return
	}
	writeJSON(w, http.StatusOK, b)
}

func (s *Server) transferInfo() any {
	if s.cfg.SideChannel == "" {
		return nil
	}
	policy := "fail"
	if s.cfg.Recompute {
		policy = "recompute"
	}
	return map[string]any{
		"kv_connector": "NixlConnector", "kv_role": "kv_both", "engine_id": s.id, "kv_load_failure_policy": policy,
		"kv_connector_extra_config": map[string]any{"kv_lease_duration": s.cfg.LeaseS},
	}
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	f, bad := readBody(w, r)
	if bad != nil {
		bad.write(w)
		return
	}
	var ids []int32
	if _, chat := f.get("messages"); chat {
		in := readMessages(f)
		_, given := f.get("add_generation_prompt")
		ids = in.template(!given || f.bool("add_generation_prompt"))
	} else {
		if _, ok := f.get("prompt"); !ok {
			f.fail("prompt", "a string")
		}
		ids = token.IDs(f.string("prompt"))
	}
	strs := f.bool("return_token_strs")
	if f.err != nil {
		f.err.write(w)
		return
	}
	b := appendInt([]byte(`{"count":`), int64(len(ids)))
	b = append(b, `,"max_model_len":`...)
	b = appendInt(b, int64(s.cfg.MaxModelLen))
	b = append(b, `,"tokens":`...)
	b = joinIDs(b, ids)
	b = append(b, `,"token_strs":`...)
	b = appendStrs(b, strs, ids)
	writeJSON(w, http.StatusOK, append(b, '}'))
}

func appendStrs(b []byte, show bool, ids []int32) []byte {
	if !show {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, textOf(id))
	}
	return append(b, ']')
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	f, bad := readBody(w, r)
	if bad != nil {
		bad.write(w)
		return
	}
	ids := list[int64](f, "tokens", "a list of token ids")
	if f.err != nil {
		f.err.write(w)
		return
	}
	checked, bad := checkIDs(ids)
	if bad != nil {
		bad.write(w)
		return
	}
	b := appendString([]byte(`{"prompt":`), token.Text(checked))
	writeJSON(w, http.StatusOK, append(b, '}'))
}
