package router

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// TestRoutesAnswerAsTheTableSays calls every route, and each path with a method that it has not.
func TestRoutesAnswerAsTheTableSays(t *testing.T) {
	b := startBed(t, 1, 1, quick())
	call := func(method, path string) answer {
		req, err := http.NewRequestWithContext(limit(t), method, b.url+path, strings.NewReader("{"))
		if err != nil {
			t.Fatal(err)
		}
		return send(t, req)
	}
	methods := map[string][]string{}
	for _, r := range Routes() {
		methods[r.Path] = append(methods[r.Path], r.Method)
		if got := call(r.Method, r.Path).status; !slices.Contains(r.Statuses, got) {
			t.Errorf("%s %s: %d, the table has %v", r.Method, r.Path, got, r.Statuses)
		}
		if guarded := strings.HasPrefix(r.Path, "/narwhal/lifecycle/"); guarded != (r.Access == GateControl) {
			t.Errorf("%s: access %q", r.Path, r.Access)
		}
	}
	for path, has := range methods {
		slices.Sort(has)
		if a := call(http.MethodPut, path); a.status != 405 || a.header.Get("Allow") != strings.Join(has, ", ") || a.body != `{"detail":"Method Not Allowed"}` {
			t.Errorf("PUT %s: %d, allow %q, %s", path, a.status, a.header.Get("Allow"), a.body)
		}
	}
	for _, path := range []string{"/", "/v1", "/v1/models/", "/narwhal"} {
		if a := call(http.MethodGet, path); a.status != 404 || a.body != `{"detail":"Not Found"}` {
			t.Errorf("GET %s: %d %s", path, a.status, a.body)
		}
	}
}

// TestGatesOfRoutes checks who gets in where there are keys and a token.
func TestGatesOfRoutes(t *testing.T) {
	dir := t.TempDir()
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Access.Tenants = tenantsFile(t, dir, "")
		c.Access.Control = fleet.NewSecret("the-control-token-of-this-test")
	})
	for _, r := range Routes() {
		req, err := http.NewRequestWithContext(limit(t), r.Method, b.url+r.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := send(t, req); (a.status == 401) != (r.Access != GateOpen) {
			t.Errorf("%s %s without a key: %d, access %q", r.Method, r.Path, a.status, r.Access)
		}
	}
}
