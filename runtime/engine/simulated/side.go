package simulated

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"time"
)

// sideRoutes is the producer's half of the side channel, and the injection routes where those
// are open, so that they answer while the main port does not.
func (s *Server) sideRoutes() http.Handler {
	if s.sgl() {
		return s.bootstrapRoutes()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hello", s.sideCall(func(w http.ResponseWriter, r *http.Request) {
		if s.takeSide() {
			<-r.Context().Done() // no thread answers new peers
			return
		}
		_ = json.NewEncoder(w).Encode(hello{s.id, s.compatibility(), s.cfg.BlockSize})
	}))
	mux.HandleFunc("POST /read", s.sideCall(s.serveRead))
	mux.HandleFunc("POST /notice", s.sideCall(s.servePin(func(now time.Time, id string) { s.core.Notice(now, id) })))
	mux.HandleFunc("POST /heartbeat", s.sideCall(s.servePin(func(now time.Time, id string) { s.core.Extend(now, id) })))
	s.controlRoutes(mux)
	return s.tracked(mux)
}

// sideCall holds a call while the engine is frozen and drops it when the core is gone.
func (s *Server) sideCall(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.pass(r.Context()) != nil || s.gone() {
			panic(http.ErrAbortHandler)
		}
		f(w, r)
	}
}

func (s *Server) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead || s.silent
}

func (s *Server) serveRead(w http.ResponseWriter, r *http.Request) {
	var req readRequest
	if json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req) != nil || req.EngineID != s.id {
		w.WriteHeader(http.StatusConflict)
		return
	}
	var (
		contents [][]int32
		ok       bool
	)
	s.with(func(time.Time) { contents, ok = s.core.Read(req.Blocks) })
	if !ok {
		w.WriteHeader(http.StatusConflict)
		return
	}
	out := make([]byte, 0, 4*len(contents)*s.cfg.BlockSize)
	for _, tokens := range contents {
		for i := range s.cfg.BlockSize {
			id := int32(-1) // a block that never held anything
			if i < len(tokens) {
				id = tokens[i]
			}
			out = binary.LittleEndian.AppendUint32(out, uint32(id))
		}
	}
	_, _ = w.Write(out)
}

func (s *Server) servePin(f func(now time.Time, id string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var id string
		if json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&id) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.with(func(now time.Time) { f(now, id) })
	}
}
