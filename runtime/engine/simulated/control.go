package simulated

import (
	"encoding/json"
	"net/http"

	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/core"
)

// controlRoutes open injection where the fleet's file allows it.
func (s *Server) controlRoutes(mux *http.ServeMux) {
	if !s.cfg.FailureControl {
		return
	}
	mux.HandleFunc("POST /simulated/inject", func(w http.ResponseWriter, r *http.Request) {
		var in Injection
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in)
		if err == nil {
			err = s.Inject(in)
		}
		if err != nil {
			badRequest("", "%v", err).write(w)
			return
		}
		writeJSON(w, http.StatusOK, []byte(`{"ok":true}`))
	})
	mux.HandleFunc("GET /simulated/account", func(w http.ResponseWriter, _ *http.Request) {
		b, _ := json.Marshal(s.Account())
		writeJSON(w, http.StatusOK, b)
	})
	mux.HandleFunc("GET /simulated/state", func(w http.ResponseWriter, _ *http.Request) {
		b, _ := json.Marshal(s.State())
		writeJSON(w, http.StatusOK, b)
	})
}

// State is what the metrics do not show.
type State struct {
	EngineID string      `json:"engine_id"`
	Pins     int         `json:"pins"`
	Calls    int         `json:"calls"`
	Dead     bool        `json:"dead"`
	Paused   bool        `json:"paused"`
	Load     core.Gauges `json:"load"`
}

// Account is what an engine holds at one moment: what its core holds, the requests whose clients
// still wait, and the rooms that somebody is in.
type Account struct {
	core.Account
	Calls int `json:"calls"`
	Rooms int `json:"rooms"`
}

// Idle reports whether the engine holds nothing. A handoff that nobody used keeps it from being
// idle until its lease ends.
func (a Account) Idle() bool { return a == Account{} }

// Account reads what the engine holds; an engine that ended holds nothing.
func (s *Server) Account() Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.dead {
		return Account{}
	}
	return Account{s.core.Account(), len(s.calls), len(s.pair.rooms)}
}

// State reads the engine's state.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{s.id, s.core.Pins(), len(s.calls), s.dead, s.core.Paused(), s.core.Gauges()}
}
