package sglang

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// serve answers what is listed and 404 to the rest.
func serve(t *testing.T, routes map[string]string) *engine.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := routes[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if status, rest, cut := strings.Cut(body, "|"); cut {
			w.WriteHeader(map[string]int{"400": 400, "503": 503}[status])
			body = rest
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	c, err := engine.NewClient(srv.URL, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const info = `{"version":"0.5.23","disaggregation_mode":"prefill","page_size":64,"max_total_num_tokens":6400,"kv_cache_dtype":"auto",
 "disable_radix_cache":false,"disaggregation_bootstrap_port":8998,"enable_pd_role_switch":true,"internal_states":[{"disaggregation_mode":"decode"}]}`

func TestIdentityLayoutAndRole(t *testing.T) {
	for _, route := range []string{"/server_info", "/get_server_info"} {
		c := serve(t, map[string]string{route: info})
		id, err := New().Identity(t.Context(), c)
		if err != nil || id != (engine.Identity{Version: "0.5.23"}) {
			t.Fatal(id, err)
		}
		l, err := New().Layout(t.Context(), c)
		if err != nil || l.BlockSize != 64 || l.Blocks != 100 || !l.PrefixCaching || l.BytesPerBlock != 0 {
			t.Fatal(l, err)
		}
		role, err := New().(engine.Switcher).Role(t.Context(), c)
		if err != nil || role != engine.RoleDecode {
			t.Fatal("the launch's role stands over the live one:", role, err)
		}
	}
	c := serve(t, map[string]string{"/server_info": `{"version":"1","process_start_time_seconds":7.5,"page_size":1,"max_total_num_tokens":10,
		"cache_geometry":{"layers":2,"kv_heads":2,"head_size":32,"element_bytes":2}}`, "/get_model_info": `{"model_path":"/m","is_generation":true}`})
	if id, err := New().Identity(t.Context(), c); err != nil || id.ProcessStart != 7.5 {
		t.Fatal(id, err)
	}
	if l, err := New().Layout(t.Context(), c); err != nil || l.BytesPerBlock != 512 || l.Source != engine.SourceGeometry {
		t.Fatal(l, err)
	}
	if m, err := ModelInfo(t.Context(), c); err != nil || m.Path != "/m" || !m.Generation {
		t.Fatal(m, err)
	}
}

func TestUnusableInfo(t *testing.T) {
	for _, body := range []string{`{}`, `[]`, `x`, `503|`, `{"internal_states":[{"disaggregation_mode":"both"}]}`} {
		c := serve(t, map[string]string{"/server_info": body})
		if _, err := New().Identity(t.Context(), c); err == nil {
			t.Errorf("%s: an identity", body)
		}
		if _, err := New().Layout(t.Context(), c); err == nil {
			t.Errorf("%s: a layout", body)
		}
		if _, err := New().(engine.Switcher).Role(t.Context(), c); err == nil {
			t.Errorf("%s: a role", body)
		}
	}
}

func TestReady(t *testing.T) {
	for _, k := range []struct {
		routes map[string]string
		ok     bool
	}{
		{map[string]string{"/ready": ""}, true},
		{map[string]string{"/ready": "503|", "/health": ""}, false},
		{map[string]string{"/health": ""}, true},
		{map[string]string{"/health": "503|"}, false},
	} {
		if err := New().Ready(t.Context(), serve(t, k.routes)); (err == nil) != k.ok {
			t.Errorf("%v: %v", k.routes, err)
		}
	}
}

func TestSwitchRole(t *testing.T) {
	for body, want := range map[string]engine.RoleSwitched{
		`{"success":true,"message":"ok","old_role":"prefill","new_role":"decode","safe_to_restore":true}`: {Success: true, Message: "ok", OldRole: "prefill", NewRole: "decode", SafeToRestore: true},
		`{"success":true}`: {Success: true, SafeToRestore: true},
		`400|{"success":false,"message":"not idle","old_role":"decode","new_role":"decode","safe_to_restore":true}`: {Message: "not idle", OldRole: "decode", NewRole: "decode", SafeToRestore: true},
		`400|{"success":false,"safe_to_restore":false}`:                                                             {},
		`400|{"success":false}`: {},
	} {
		c := serve(t, map[string]string{"/pd_role_switch": body})
		got, err := New().(engine.Switcher).SwitchRole(t.Context(), c, engine.RoleSwitch{NewRole: engine.RoleDecode})
		if err != nil || got != want {
			t.Errorf("%s: %+v %v", body, got, err)
		}
	}
	for _, body := range []string{`400|{"object":"error","message":"m","type":"BadRequestError","code":400}`, `503|{"success":true}`} {
		var se *engine.StatusError
		c := serve(t, map[string]string{"/pd_role_switch": body})
		if _, err := c.SwitchRole(t.Context(), engine.RoleSwitch{}); !errors.As(err, &se) {
			t.Errorf("%s: %v", body, err)
		}
	}
	c := serve(t, map[string]string{"/pd_role_switch": `{"message":"?"}`})
	if _, err := c.SwitchRole(t.Context(), engine.RoleSwitch{}); err == nil {
		t.Error("an answer without success passed")
	}
}

func TestState(t *testing.T) {
	f, err := os.Open("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := engine.ParseMetrics(f)
	if err != nil {
		t.Fatal(err)
	}
	st, err := New().State(s)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.State{
		Running: 3, Waiting: 7, Deferred: 5, Usage: 0.25, Awake: true, GenerationTokens: 120, PromptTokens: 900, LocalHit: 16,
		Preemptions: 1, Transfers: 8, TransferSeconds: 0.04, TransferBytes: 2 << 20, HasTransfer: true, FailedTransfers: 1, Expired: 1,
		FinishedErr: 2, FinishedOK: 8, FirstToken: engine.Mean{Sum: 1.5, Count: 10}, PrefillTime: engine.Mean{Sum: 0.5, Count: 5},
	}
	if st != want {
		t.Fatalf("got  %+v\nwant %+v", st, want)
	}
	var me *engine.MissingError
	if _, err := New().State(engine.Samples{}); !errors.As(err, &me) || len(me.Names) != 5 {
		t.Fatal(err)
	}
}

func FuzzInfo(f *testing.F) {
	f.Add([]byte(info))
	f.Add([]byte(`{"internal_states":[{}],"page_size":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var w wireInfo
		if json.Unmarshal(b, &w) != nil {
			return
		}
		if i := w.info(); len(i.missing()) == 0 && i.MaxTokens/i.PageSize < 0 {
			t.Fatalf("%+v", i)
		}
	})
}
