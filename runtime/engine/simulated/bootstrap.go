package simulated

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// route is what a prefilling process tells whoever wants its KV. The last three members are
// between simulated engines only.
type route struct {
	TP       int    `json:"attn_tp_size"`
	CP       int    `json:"attn_cp_size"`
	DP       int    `json:"dp_size"`
	PP       int    `json:"pp_size"`
	PageSize int    `json:"page_size"`
	Dtype    string `json:"kv_cache_dtype"`
	EngineID string `json:"engine_id"`
	Epoch    int    `json:"epoch"`
	Hash     string `json:"compatibility_hash"`
}

// claim asks for the KV of a room; offer is where it lies.
type claim struct {
	Room     uint64 `json:"room"`
	EngineID string `json:"engine_id"`
	Epoch    int    `json:"epoch"`
}

type offer struct {
	Blocks []int  `json:"blocks"`
	Tokens int    `json:"tokens"`
	Cached int    `json:"cached"`
	Sum    uint64 `json:"sum"`
}

// outcome is the reading side's word on a room.
type outcome struct {
	Room   uint64 `json:"room"`
	Failed bool   `json:"failed"`
}

// bootstrapRoutes is the bootstrap server, and behind it the path that the KV takes.
func (s *Server) bootstrapRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.sideCall(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("OK"))
	}))
	mux.HandleFunc("GET /route", s.sideCall(s.serveRoute))
	mux.HandleFunc("POST /claim", s.sideCall(s.serveClaim))
	mux.HandleFunc("POST /read", s.sideCall(s.serveRead))
	mux.HandleFunc("POST /outcome", s.sideCall(s.serveOutcome))
	s.controlRoutes(mux)
	return s.tracked(mux)
}

var ranks = []string{"prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank"}

// serveRoute answers for the whole process only: all ranks are -1.
func (s *Server) serveRoute(w http.ResponseWriter, r *http.Request) {
	for _, name := range ranks {
		v := r.URL.Query().Get(name)
		if v == "" {
			http.Error(w, name+" is missing", http.StatusBadRequest)
			return
		}
		if n, err := strconv.Atoi(v); err != nil || n != -1 {
			http.Error(w, "no such rank", http.StatusNotFound)
			return
		}
	}
	if s.takeSide() {
		<-r.Context().Done() // nobody answers new peers
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	role, epoch := s.pair.role, s.pair.epoch
	s.mu.Unlock()
	if role != engine.RolePrefill {
		http.Error(w, "no rank is registered", http.StatusServiceUnavailable)
		return
	}
	b, _ := json.Marshal(route{TP: 1, CP: 1, DP: 1, PP: 1, PageSize: s.cfg.BlockSize, Dtype: "auto",
		EngineID: s.id, Epoch: epoch, Hash: s.compatibility()})
	writeJSON(w, http.StatusOK, b)
}

// serveClaim waits for the room's prefill and tells where its KV lies. A claim under a past
// role's address, or for a room that somebody claimed before, hears nothing.
func (s *Server) serveClaim(w http.ResponseWriter, r *http.Request) {
	var q claim
	if json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if q.EngineID != s.id {
		w.WriteHeader(http.StatusConflict)
		return
	}
	rm := s.claimed(q)
	if rm == nil {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	select {
	case <-rm.ready:
	case <-rm.done:
		<-r.Context().Done() // a lost leg is silent
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
		s.unclaim(q.Room, rm)
		panic(http.ErrAbortHandler)
	}
	b := s.offer(rm)
	if string(b) != "null" {
		b = s.spoil(b)
	}
	if string(b) == "null" {
		<-r.Context().Done() // never sent, or dropped on its way
		panic(http.ErrAbortHandler)
	}
	writeJSON(w, http.StatusOK, b)
}

// claimed opens a room for its reader, or returns nil when this reader finds nobody.
func (s *Server) claimed(q claim) *room {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pair.role != engine.RolePrefill || q.Epoch != s.pair.epoch {
		return nil
	}
	rm := s.roomOf(q.Room)
	select {
	case <-rm.claimed:
		return nil
	default:
	}
	close(rm.claimed)
	return rm
}

// unclaim forgets a reader that left before the other leg came.
func (s *Server) unclaim(id uint64, rm *room) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rm.leg == nil && s.pair.rooms[id] == rm {
		delete(s.pair.rooms, id)
	}
}

// offer is "null" when the prefilling leg is gone by now.
func (s *Server) offer(rm *room) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rm.over {
		return []byte("null")
	}
	o := offer{Blocks: rm.pin.Blocks, Tokens: rm.pin.Tokens, Cached: rm.pin.Cached}
	if contents, ok := s.core.Read(o.Blocks); ok {
		o.Sum = checksum(contents)
	}
	b, _ := json.Marshal(o)
	return b
}

func (s *Server) serveOutcome(w http.ResponseWriter, r *http.Request) {
	var q outcome
	if json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&q) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.with(func(now time.Time) {
		rm := s.pair.rooms[q.Room]
		switch {
		case rm == nil || rm.pin == nil:
			s.core.Stats.LateNotices++
		case q.Failed:
			s.pair.failedTransfers++
			s.settle(now, rm, errTransfer)
		default:
			s.settle(now, rm, nil)
		}
	})
}

func checksum(contents [][]int32) uint64 {
	h := uint64(14695981039346656037)
	for _, block := range contents {
		for _, id := range block {
			h = (h ^ uint64(uint32(id))) * 1099511628211
		}
	}
	return h
}

func (r route) fits(s *Server) error {
	switch {
	case r.PageSize != s.cfg.BlockSize:
		return fmt.Errorf("peer has pages of %d tokens", r.PageSize)
	case r.Hash != s.compatibility():
		return fmt.Errorf("peer is incompatible")
	}
	return nil
}
