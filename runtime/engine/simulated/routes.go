package simulated

import (
	"net/http"
	"strconv"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// hit labels one series of the HTTP counter.
type hit struct{ handler, method, class string }

type table map[string]map[string]http.HandlerFunc

// routes is the engine's surface: what it does not know is 404, a wrong method 405, both with
// the framework's body and not the engine's.
func (s *Server) routes() http.Handler {
	closed := func(w http.ResponseWriter, _ *http.Request) {
		(&refusal{http.StatusForbidden, engine.TypePermission, "scale-out endpoints are disabled", ""}).write(w)
	}
	get := func(f http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: f}
	}
	post := func(f http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodPost: f}
	}
	t := table{
		"/health":                     get(s.health),
		"/ping":                       {http.MethodGet: s.health, http.MethodPost: s.health},
		"/version":                    get(s.version),
		"/v1/models":                  get(s.models),
		"/metrics":                    get(s.metrics),
		"/load":                       get(s.load),
		"/server_info":                get(s.serverInfo),
		"/v1/completions":             post(s.generate(false)),
		"/v1/chat/completions":        post(s.generate(true)),
		"/tokenize":                   post(s.tokenize),
		"/detokenize":                 post(s.detokenize),
		"/inference/v1/generate":      post(closed),
		"/v1/completions/render":      post(closed),
		"/v1/chat/completions/render": post(closed),
	}
	switch {
	case s.sgl():
		t = s.sglRoutes()
	case s.cfg.DevMode:
		s.devRoutes(t)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.route(t, w, r) })
	s.controlRoutes(mux)
	return s.tracked(mux)
}

// tracked makes the engine's end wait for its handlers.
func (s *Server) tracked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			panic(http.ErrAbortHandler)
		}
		defer s.work.Done()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) route(t table, w http.ResponseWriter, r *http.Request) {
	if s.pass(r.Context()) != nil || s.hang(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	methods, ok := t[r.URL.Path]
	if !ok {
		writeJSON(w, http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
		return
	}
	f, ok := methods[r.Method]
	if !ok {
		for m := range methods {
			w.Header().Set("Allow", m)
		}
		writeJSON(w, http.StatusMethodNotAllowed, []byte(`{"detail":"Method Not Allowed"}`))
		return
	}
	if !s.authorized(r) {
		writeJSON(w, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
		return
	}
	if id := r.Header.Get("X-Request-Id"); id != "" && s.cfg.RequestIDHeaders {
		w.Header().Set("X-Request-Id", id)
	}
	rec := &recorder{ResponseWriter: w, status: http.StatusOK, flat: s.sgl()}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hits[hit{r.URL.Path, r.Method, strconv.Itoa(rec.status/100) + "xx"}]++
	}()
	f(rec, r)
}

// recorder notes the status for the HTTP counter.
type recorder struct {
	http.ResponseWriter
	status int
	flat   bool // errors have their members at top level
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	b := appendString([]byte(`{"version":`), s.cfg.EngineVersion)
	writeJSON(w, http.StatusOK, append(b, '}'))
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	b := appendString([]byte(`{"object":"list","data":[{"id":`), s.cfg.Model)
	b = append(b, `,"object":"model","created":`...)
	b = appendInt(b, s.now().Unix())
	b = append(b, `,"owned_by":`...)
	b = appendString(b, s.cfg.Dialect)
	b = append(b, `,"root":`...)
	b = appendString(b, s.cfg.Root)
	b = append(b, `,"parent":null,"max_model_len":`...)
	b = appendInt(b, int64(s.cfg.MaxModelLen))
	writeJSON(w, http.StatusOK, append(b, `,"permission":[]}]}`...))
}

func (s *Server) load(w http.ResponseWriter, _ *http.Request) {
	b := appendInt([]byte(`{"server_load":`), int64(s.inFlight()))
	writeJSON(w, http.StatusOK, append(b, '}'))
}

// devRoutes are those of the real engine's development mode.
func (s *Server) devRoutes(t table) {
	set := func(f func(now time.Time), body string) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodPost: func(w http.ResponseWriter, _ *http.Request) {
			s.with(f)
			writeJSON(w, http.StatusOK, []byte(body))
		}}
	}
	t["/pause"] = set(func(now time.Time) { s.core.Pause(now, true) }, `{"status":"paused"}`)
	t["/resume"] = set(func(now time.Time) { s.core.Pause(now, false) }, `{"status":"resumed"}`)
	t["/reset_prefix_cache"] = set(func(time.Time) { s.core.ForgetPrefixes() }, `{"success":true}`)
	t["/is_paused"] = map[string]http.HandlerFunc{http.MethodGet: func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		paused := s.core.Paused()
		s.mu.Unlock()
		writeJSON(w, http.StatusOK, []byte(`{"is_paused":`+strconv.FormatBool(paused)+`}`))
	}}
}
