package router

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

const (
	replayModel   = "demo/model-1b"
	replayVersion = "0.32.0"
	replayStart   = 1764429000.25
)

// script is what all scripted engines of one fleet share: the legs that they received, and
// the handoffs that they gave out and that nobody used yet.
type script struct {
	t      *testing.T
	mu     sync.Mutex
	legs   []scriptLeg
	grown  chan struct{}              // closed and replaced at every leg
	issued map[string]json.RawMessage // by remote request id
	used   map[string]bool
	opened sync.Once
	gate   chan struct{} // legs with a gate fault wait for it
	counts int           // tokenize calls that fail from now on
}

// scriptLeg is one call of a router as an engine received it.
type scriptLeg struct {
	iid, path string
	header    http.Header
	body      map[string]any
}

// scriptEngine answers like the engines that the recordings were made with: fixed words, one
// token a frame, faults chosen by the body. Anything that is not scripted fails the test.
type scriptEngine struct {
	*script
	iid    string
	server *httptest.Server
}

func newScript(t *testing.T) *script {
	return &script{t: t, grown: make(chan struct{}), gate: make(chan struct{}), issued: map[string]json.RawMessage{}, used: map[string]bool{}}
}

func (s *script) start(iid string) *scriptEngine {
	e := &scriptEngine{script: s, iid: iid}
	e.server = httptest.NewServer(e)
	s.t.Cleanup(e.server.Close)
	return e
}

// digest is what a profile of this engine's generation is bound to.
func (e *scriptEngine) digest() string {
	return IdentityDigest(engine.Identity{Version: replayVersion, ProcessStart: replayStart})
}

// open lets go of every leg that waits at the gate, now and later.
func (s *script) open() { s.opened.Do(func() { close(s.gate) }) }

// seen waits for a leg that fits, and returns it.
func (s *script) seen(what string, fits func(scriptLeg) bool) scriptLeg {
	s.t.Helper()
	ctx := limit(s.t)
	for {
		s.mu.Lock()
		legs, grown := s.legs, s.grown
		s.mu.Unlock()
		for _, l := range legs {
			if fits(l) {
				return l
			}
		}
		select {
		case <-grown:
		case <-ctx.Done():
			s.t.Fatalf("no engine saw %s", what)
		}
	}
}

func (s *script) received() []scriptLeg {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]scriptLeg(nil), s.legs...)
}

func (e *scriptEngine) unscripted(w http.ResponseWriter, format string, args ...any) {
	e.t.Errorf("engine %s: unscripted: "+format, append([]any{e.iid}, args...)...)
	w.WriteHeader(http.StatusTeapot)
}

func (e *scriptEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /health":
	case "GET /version":
		_, _ = fmt.Fprintf(w, `{"version":%q}`, replayVersion)
	case "GET /v1/models":
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"root":"/models/demo","max_model_len":32768}]}`, replayModel)
	case "GET /metrics":
		_, _ = fmt.Fprintf(w, "process_start_time_seconds %v\n"+
			`vllm:cache_config_info{block_size="16",num_gpu_blocks="25000",cache_dtype="auto",enable_prefix_caching="True"} 1`+"\n", replayStart)
	case "GET /server_info":
		w.WriteHeader(http.StatusNotFound)
	case "POST /tokenize", "POST /v1/completions", "POST /v1/chat/completions":
		e.call(w, r)
	default:
		e.unscripted(w, "%s %s", r.Method, r.URL.Path)
	}
}

// call notes a leg and answers it.
func (e *scriptEngine) call(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the router left
	}
	leg := scriptLeg{e.iid, r.URL.Path, r.Header.Clone(), nil}
	var b scriptBody
	if json.Unmarshal(raw, &leg.body) != nil || json.Unmarshal(raw, &b) != nil || r.Header.Get("Content-Type") != "application/json" {
		e.unscripted(w, "%s with %q: %s", r.URL.Path, r.Header.Get("Content-Type"), raw)
		return
	}
	if b.Model != replayModel {
		e.unscripted(w, "model %q", b.Model)
		return
	}
	b.id, b.chat = r.Header.Get("X-Request-Id"), strings.HasSuffix(r.URL.Path, "/chat/completions")
	if b.id == "" {
		b.id = "none"
	}
	if !strings.HasPrefix(b.id, "probe-") {
		e.mu.Lock()
		e.legs = append(e.legs, leg)
		close(e.grown)
		e.grown = make(chan struct{})
		e.mu.Unlock()
	}
	if r.URL.Path == "/tokenize" {
		e.tokenize(w, &b)
		return
	}
	e.generate(w, r, &b)
}

func (e *scriptEngine) tokenize(w http.ResponseWriter, b *scriptBody) {
	e.mu.Lock()
	fail := e.counts > 0
	if fail {
		e.counts--
	}
	e.mu.Unlock()
	switch n := len(b.promptTokens()); {
	case fail:
		refuse(w, 500, "InternalServerError", "Internal server error")
	case b.poisoned():
		refuse(w, 400, "BadRequestError", "prompt cannot be encoded")
	default:
		_, _ = fmt.Fprintf(w, `{"count":%d,"max_model_len":32768}`, n)
	}
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":%q,"param":null,"code":%d}}`, message, kind, status)
}
