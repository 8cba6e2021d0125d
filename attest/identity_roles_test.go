package attest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// TestIdentityOfARole reads engines that have no /version.
func TestIdentityOfARole(t *testing.T) {
	for name, c := range map[string]struct {
		routes map[string]string
		pid    int
		want   string
		start  float64 // -1 = from /proc
	}{
		"told":           {routes: map[string]string{"/server_info": `{"version":"0.5.23","process_start_time_seconds":1700000000.5}`}, want: "0.5.23", start: 1700000000.5},
		"older route":    {routes: map[string]string{"/get_server_info": `{"version":"0.4.1","process_start_time_seconds":7}`}, want: "0.4.1", start: 7},
		"from /proc":     {routes: map[string]string{"/server_info": `{"version":"0.5.23"}`}, pid: os.Getpid(), want: "0.5.23", start: -1},
		"no process":     {routes: map[string]string{"/server_info": `{"version":"0.5.23"}`}},
		"no version":     {routes: map[string]string{"/server_info": `{}`}, pid: os.Getpid()},
		"negative start": {routes: map[string]string{"/server_info": `{"version":"1","process_start_time_seconds":-3}`}, pid: os.Getpid()},
		"no JSON":        {routes: map[string]string{"/server_info": `x`}, pid: os.Getpid()},
		"nothing":        {pid: os.Getpid()},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, ok := c.routes[r.URL.Path]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = w.Write([]byte(body))
		}))
		id, err := HTTPIdentity{Base: srv.URL, PID: c.pid}.Identity(t.Context())
		srv.Close()
		if (err == nil) != (c.want != "") || id.Version != c.want || c.start > 0 && id.ProcessStart != c.start || c.start < 0 && !(id.ProcessStart > 1e9) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}
