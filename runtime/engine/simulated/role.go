package simulated

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// sglRoutes is that dialect's surface.
func (s *Server) sglRoutes() table {
	get := func(f http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: f}
	}
	post := func(f http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodPost: f}
	}
	pause := func(on bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			s.with(func(now time.Time) { s.core.Pause(now, on) })
			writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
		}
	}
	return table{
		"/health":              get(s.sglHealth),
		"/health_generate":     get(s.sglHealth),
		"/ready":               get(s.sglReady),
		"/v1/models":           get(s.models),
		"/metrics":             get(s.sglMetrics),
		"/server_info":         get(s.sglServerInfo),
		"/get_server_info":     get(s.sglServerInfo),
		"/model_info":          get(s.modelInfo),
		"/get_model_info":      get(s.modelInfo),
		"/v1/completions":      post(s.generate(false)),
		"/v1/chat/completions": post(s.generate(true)),
		"/tokenize":            post(s.tokenize),
		"/v1/tokenize":         post(s.tokenize),
		"/detokenize":          post(s.detokenize),
		"/v1/detokenize":       post(s.detokenize),
		"/pd_role_switch":      post(s.switchRole),
		"/abort_request":       post(s.abortRequest),
		"/pause_generation":    post(pause(true)),
		"/continue_generation": post(pause(false)),
		"/flush_cache":         {http.MethodGet: s.flushCache, http.MethodPost: s.flushCache},
	}
}

// healthLimit is how long the health routes wait for their token.
const healthLimit = 20 * time.Second

// sglHealth asks the scheduler for a token, so a pause holds it up.
func (s *Server) sglHealth(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthLimit)
	defer cancel()
	for s.State().Paused {
		if sleep(ctx, 20*time.Millisecond) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
	}
	s.sglReady(w, r)
}

// sglReady is 503 while the process shuts down or is unfit for any role.
func (s *Server) sglReady(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	ok := !s.dead && !s.pair.unfit && !s.core.Draining()
	s.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// switchRole changes the role of a process that does nothing at all.
func (s *Server) switchRole(w http.ResponseWriter, r *http.Request) {
	f, bad := readBody(w, r)
	if bad != nil {
		bad.write(w)
		return
	}
	role, prepare := f.string("new_role"), f.bool("prepare_only")
	if f.err != nil {
		f.err.write(w)
		return
	}
	broken := !prepare && s.takeFault(faultSwitch)
	var out engine.RoleSwitched
	s.with(func(time.Time) { out = s.setRole(role, prepare, broken) })
	status := http.StatusOK
	if !out.Success {
		status = http.StatusBadRequest
	}
	b, _ := json.Marshal(out)
	writeJSON(w, status, b)
}

// setRole is switchRole's part under the lock. Broken tears the old role down and fails then.
func (s *Server) setRole(role string, prepare, broken bool) engine.RoleSwitched {
	p := &s.pair
	out := engine.RoleSwitched{OldRole: p.role, NewRole: role, SafeToRestore: !p.unfit}
	switch {
	case !s.cfg.RoleSwitch:
		out.Message = "the process runs without --enable-pd-role-switch"
	case role != engine.RolePrefill && role != engine.RoleDecode:
		out.Message = "the role asked for is invalid"
	case p.role == engine.RoleNone:
		out.Message = "the process has no role to change"
	case p.unfit:
		out.Message = "the process is unhealthy: restart it"
	case role == p.role:
		out.Success, out.Message = true, "the role stays"
	case len(s.calls) > 0 || s.core.Account() != (core.Account{}):
		out.Message = "the scheduler is not idle"
	case broken:
		p.unfit, out.SafeToRestore = true, false
		out.Message = "the new role could not be built: restart the process"
	case prepare:
		out.Success, out.Message = true, "the role can be changed"
	default:
		out.Success, out.Message = true, "the role is changed"
		s.enterRole(role)
	}
	return out
}

// enterRole forgets what the old role knew. A decoding process that met this one in an earlier
// prefilling time keeps an address at which nobody listens any more.
func (s *Server) enterRole(role string) {
	p := &s.pair
	p.role = role
	if role == engine.RolePrefill {
		p.epoch++
	}
	p.rooms, p.known = map[uint64]*room{}, map[string]contact{}
	s.core.ForgetPrefixes()
}

func (s *Server) abortRequest(w http.ResponseWriter, r *http.Request) {
	f, bad := readBody(w, r)
	if bad != nil {
		bad.write(w)
		return
	}
	id, all := f.string("rid"), f.bool("abort_all")
	if f.err != nil {
		f.err.write(w)
		return
	}
	if id != "" || all {
		s.abort(map[bool]string{false: id}[all])
	}
	w.WriteHeader(http.StatusOK)
}

// flushCache empties the prefix cache of an idle engine.
func (s *Server) flushCache(w http.ResponseWriter, _ *http.Request) {
	idle := false
	s.with(func(time.Time) {
		if idle = len(s.calls) == 0; idle {
			s.core.ForgetPrefixes()
		}
	})
	if !idle {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = w.Write([]byte("Cache flushed.\n"))
}

func (s *Server) modelInfo(w http.ResponseWriter, _ *http.Request) {
	b, _ := json.Marshal(map[string]any{"model_path": s.cfg.Root, "tokenizer_path": s.cfg.Root,
		"is_generation": true, "weight_version": "default", "preferred_sampling_params": nil})
	writeJSON(w, http.StatusOK, b)
}

// sglServerInfo shows the members that narwhal reads: the launch's arguments at top level, the
// live role in the scheduler's state. The real engine tells neither its start nor the geometry.
func (s *Server) sglServerInfo(w http.ResponseWriter, _ *http.Request) {
	c := s.cfg
	s.mu.Lock()
	role := s.pair.role
	start := float64(s.shown(s.started).UnixNano()) / 1e9
	s.mu.Unlock()
	b, err := json.Marshal(map[string]any{
		"version": c.EngineVersion, "model_path": c.Root, "served_model_name": c.Model, "context_length": c.MaxModelLen,
		"page_size": c.BlockSize, "max_total_num_tokens": (c.Blocks - 1) * c.BlockSize, "kv_cache_dtype": "auto",
		"max_running_requests": c.MaxNumSeqs, "chunked_prefill_size": c.MaxBatched, "disable_radix_cache": !c.PrefixCaching,
		"tp_size": 1, "dp_size": 1, "pp_size": 1, "attention_backend": "torch_native",
		"disaggregation_mode": c.Role, "disaggregation_transfer_backend": "mooncake", "disaggregation_bootstrap_port": s.SidePort(),
		"enable_pd_role_switch": c.RoleSwitch,
		"internal_states":       []any{map[string]any{"disaggregation_mode": role}},
		"simulated":             true, "process_start_time_seconds": start,
		"cache_geometry": engine.Geometry{Layers: c.Layers, KVHeads: c.KVHeads, HeadSize: c.HeadSize, ElementBytes: c.ElementBytes},
	})
	if err != nil {
		internal("Internal server error").write(w)
		return
	}
	writeJSON(w, http.StatusOK, b)
}
