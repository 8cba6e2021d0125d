package router

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// routes answers unknown paths and methods as the contract says, HEAD included.
func (r *Router) routes() http.Handler {
	table := r.table()
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.ProtoMajor != 1 {
			// The server lets a client through that begins with the preface of HTTP/2.
			w.Header().Set("Connection", "close")
			http.Error(w, "unsupported protocol version", http.StatusHTTPVersionNotSupported)
			return
		}
		if len(q.TransferEncoding) > 0 {
			// A length beside chunks may hide a second request: the connection ends here.
			w.Header().Set("Connection", "close")
		}
		if q.ContentLength != 0 {
			// Of a body that the handler does not read, the server takes what is small, so that the
			// connection can go on: not for longer than this.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(r.set.HTTP.BodyPatience))
		}
		if !r.listener.spared(w, q) {
			return
		}
		if !ownHost(q.Host, r.set.Listen, r.listener.Addr()) {
			misdirected(w)
			return
		}
		methods, ok := table[q.URL.EscapedPath()] // a proxy in front judges the path as it is written
		if !ok {
			writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
			return
		}
		h, ok := methods[q.Method]
		if !ok {
			w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
			writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
			return
		}
		h(w, q)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	writeBody(w, status, b)
}

func writeBody(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", seconds(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

func (r *Router) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]string{"id": r.set.Fleet.Model, "object": "model", "owned_by": "narwhal"}}})
}

func (r *Router) healthDoc(w http.ResponseWriter, _ *http.Request) {
	stuck := r.own.stuck()
	p := r.own.view.Load()
	status, code := "ok", http.StatusOK
	switch {
	case stuck:
		status, code = "stuck", http.StatusServiceUnavailable
	case p.reason() == "":
	case p.fenced != "" || !p.waits && !p.controls():
		status = "fenced"
	case p.blocked != "":
		status = "maintenance"
	case p.waits:
		status = "standby"
	default:
		status = "degraded"
	}
	writeJSON(w, code, struct {
		Status    string `json:"status"`
		Instances int    `json:"instances"`
		Available int    `json:"available_instances"`
	}{status, p.engines, p.live})
}

func (r *Router) readyDoc(w http.ResponseWriter, _ *http.Request) {
	stuck := r.own.stuck()
	p := r.own.view.Load()
	reason := p.reason()
	epoch, holder := p.term()
	if stuck {
		reason = "router does not answer itself"
	}
	d := struct {
		Status  string `json:"status"`
		Control bool   `json:"control_ready"`
		Epoch   int64  `json:"epoch"`
		Holder  string `json:"holder"`
		Reason  string `json:"reason"`
	}{"ready", !stuck && !p.stopping && p.controls() && p.degraded == "", epoch, holder, reason}
	status := http.StatusOK
	if reason != "" {
		d.Status, status = "not_ready", http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, status, d)
}

// targets is a Prometheus service discovery list of the engines.
func (r *Router) targets(w http.ResponseWriter, _ *http.Request) {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	list := make([]group, 0, len(r.set.Fleet.Engines))
	for _, e := range r.set.Fleet.Engines {
		u, err := url.Parse(e.URL)
		if err != nil {
			continue
		}
		list = append(list, group{[]string{u.Host}, map[string]string{"iid": e.IID, "backend": r.set.Fleet.Engine.Backend,
			"__scheme__": u.Scheme, "__metrics_path__": strings.TrimRight(u.Path, "/") + "/metrics"}})
	}
	writeJSON(w, http.StatusOK, list)
}
