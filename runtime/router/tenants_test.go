package router

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
)

func tenantsFile(t *testing.T, dir, extra string) string {
	t.Helper()
	path := filepath.Join(dir, "tenants.json")
	doc := `{"schema":"narwhal.tenants","schema_version":1,"tenants":[
		{"name":"small","keys":["` + tenant.KeyDigest("key-of-the-small-one") + `"],"weight":1,"max_inflight":1},
		{"name":"metered","keys":["` + tenant.KeyDigest("key-of-the-metered-one") + `"],"weight":1,"tokens_per_s":0.001,"burst_tokens":20}` + extra + `]}`
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (b *testbed) as(key string, body any) answer {
	b.t.Helper()
	raw, _ := json.Marshal(body)
	q, err := http.NewRequestWithContext(limit(b.t), http.MethodPost, b.url+"/v1/completions", strings.NewReader(string(raw)))
	if err != nil {
		b.t.Fatal(err)
	}
	if key != "" {
		q.Header.Set("Authorization", "Bearer "+key)
	}
	return send(b.t, q)
}

// Each key has its own limits, and without a file of tenants nobody needs one.
func TestRow33TenantsHaveLimits(t *testing.T) {
	dir := t.TempDir()
	b := startBed(t, 1, 1, quick(), func(c *Config) {
		c.Access.Tenants = tenantsFile(t, dir, "")
		c.Access.Control = fleet.NewSecret("the-control-token-of-this-test")
	})
	ask := map[string]any{"prompt": []int{1, 2, 3}, "max_tokens": 4}
	for key, want := range map[string]int{"": 401, "nobody-has-this-key": 401, "key-of-the-small-one": 200} {
		if a := b.as(key, ask); a.status != want || want == 401 && !strings.Contains(a.body, `"code":"invalid_api_key"`) {
			t.Errorf("key %q: %d %s", key, a.status, a.body)
		}
	}
	// 3 + 4 tokens each against a bucket of 20.
	codes := []int{}
	for range 4 {
		codes = append(codes, b.as("key-of-the-metered-one", ask).status)
	}
	if codes[0] != 200 || codes[1] != 200 || codes[3] != 429 {
		t.Errorf("metered: %v", codes)
	}
	a := b.as("key-of-the-metered-one", ask)
	if a.status != 429 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "server_overloaded_error") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	// One stream is all that the small one may have.
	open := make(chan answer, 1)
	go func() {
		open <- b.as("key-of-the-small-one", map[string]any{"prompt": []int{1}, "max_tokens": 200, "stream": true})
	}()
	eventually(t, "the stream runs", func() bool { return b.state().Resident["d0"]["decode"] > 0 })
	if a := b.as("key-of-the-small-one", ask); a.status != 429 {
		t.Errorf("second at once: %d %s", a.status, a.body)
	}
	if a := <-open; a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// A new key works once the file says so, and a broken file changes nothing.
	tenantsFile(t, dir, `,{"name":"late","keys":["`+tenant.KeyDigest("key-of-the-late-one")+`"],"weight":1}`)
	eventually(t, "the new key", func() bool { return b.as("key-of-the-late-one", ask).status == 200 })
	if err := os.WriteFile(filepath.Join(dir, "tenants.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.router.access.watch.Reload(); err == nil {
		t.Error("a broken file was read")
	}
	if a := b.as("key-of-the-late-one", ask); a.status != 200 {
		t.Errorf("after a broken file: %d %s", a.status, a.body)
	}
}

// Drains and readmissions need the control's token where there is one.
func TestRow22ControlRoutesAreGuarded(t *testing.T) {
	b := startBed(t, 1, 2, quick(), func(c *Config) { c.Access.Control = fleet.NewSecret("the-control-token-of-this-test") })
	drain := func(key string) int {
		q, err := http.NewRequestWithContext(limit(t), http.MethodPost, b.url+"/narwhal/lifecycle/drain", strings.NewReader(`{"engines":["d1"]}`))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			q.Header.Set("Authorization", "Bearer "+key)
		}
		return send(t, q).status
	}
	for key, want := range map[string]int{"": 401, "wrong-control-token-here": 401, "the-control-token-of-this-test": 200} {
		if got := drain(key); got != want {
			t.Errorf("%q: %d", key, got)
		}
	}
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 {
		t.Errorf("clients need no key: %d %s", a.status, a.body)
	}
}

func TestBrokenTenantsFileStopsTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	if err := os.WriteFile(path, []byte(`{"schema":"narwhal.tenants","schema_version":1,"tenants":[{"name":"a","keys":["literal"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := benchFleet([]string{"127.0.0.1:1", "127.0.0.1:2"})
	cfg.Access.Tenants = path
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "keys") {
		t.Errorf("%v", err)
	}
}
