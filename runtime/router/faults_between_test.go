package router

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

var quietLog = log.New(io.Discard, "", 0)

// anyProcess lets every process serve, whatever its profile was measured on.
func anyProcess(context.Context, profile.Row, engine.Identity) error { return nil }

// between stands between the router and one engine. It keeps the bodies of the legs that it
// carries, and may change what the first leg returns.
type between struct {
	target *url.URL
	mu     sync.Mutex
	bodies []string
	// answered is called with the first leg's whole answer; what it returns goes on.
	answered func(answer []byte) []byte
}

// proxied puts one between the router and an engine.
func proxied(t *testing.T, m *between, iid string) tweak {
	return func(c *Config) {
		for i := range c.Fleet.Engines {
			e := &c.Fleet.Engines[i]
			if e.IID != iid {
				continue
			}
			u, err := url.Parse(e.URL)
			if err != nil {
				t.Fatal(err)
			}
			m.target = u
			tr := &http.Transport{MaxIdleConnsPerHost: 64}
			p := &httputil.ReverseProxy{Transport: tr, FlushInterval: -1, ModifyResponse: m.answer,
				Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Header["X-Forwarded-For"] = nil },
				ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
			s := httptest.NewUnstartedServer(m.keep(p))
			s.Config.ErrorLog = quietLog
			s.Start()
			e.URL = s.URL
			t.Cleanup(func() { s.Close(); tr.CloseIdleConnections() })
		}
	}
}

type firstLeg struct{}

func (m *between) keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost && strings.HasPrefix(q.URL.Path, "/v1/") {
			raw, err := io.ReadAll(q.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			if !bytes.Contains(raw, []byte(`"prompt":"probe `)) {
				m.mu.Lock()
				m.bodies = append(m.bodies, string(raw))
				m.mu.Unlock()
			}
			q.Body = io.NopCloser(bytes.NewReader(raw))
			if bytes.Contains(raw, []byte(`"do_remote_decode":true`)) {
				q = q.WithContext(context.WithValue(q.Context(), firstLeg{}, true))
			}
		}
		next.ServeHTTP(w, q)
	})
}

func (m *between) answer(r *http.Response) error {
	m.mu.Lock()
	f := m.answered
	m.mu.Unlock()
	if f == nil || r.StatusCode != 200 || r.Request.Context().Value(firstLeg{}) == nil {
		return nil
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	raw = f(raw)
	r.Body = io.NopCloser(bytes.NewReader(raw))
	r.ContentLength = int64(len(raw))
	r.Header.Del("Content-Length")
	return nil
}

// when sets what happens to the first leg's answer; nil = nothing.
func (m *between) when(f func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered = f
}

// sent returns the bodies of legs so far.
func (m *between) sent() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.bodies...)
}

// handoffOf cuts the handoff out of a first leg's answer, and withHandoff puts another in.
func handoffOf(answer []byte) map[string]json.RawMessage {
	var w struct {
		Handoff map[string]json.RawMessage `json:"kv_transfer_params"`
	}
	if json.Unmarshal(answer, &w) != nil {
		return nil
	}
	return w.Handoff
}

func withHandoff(answer []byte, h map[string]json.RawMessage) []byte {
	var w map[string]json.RawMessage
	if json.Unmarshal(answer, &w) != nil {
		return answer
	}
	w["kv_transfer_params"], _ = json.Marshal(h)
	out, _ := json.Marshal(w)
	return out
}
