package router

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

func TestCanonicalValues(t *testing.T) {
	for v, want := range map[float64]string{1: "1.0", 1e16: "1e+16", 1e-5: "1e-05", 0.0001: "0.0001", 123456789.123: "123456789.123", 1e22: "1e+22", 5e-324: "5e-324", 0: "0.0"} {
		if got := canonicalFloat(v); got != want {
			t.Errorf("%g: %s, want %s", v, got, want)
		}
	}
	if got := canonicalString("é🐳\"\\\n"); got != `"\u00e9\ud83d\udc33\"\\\u000a"` {
		t.Error(got)
	}
}

func TestIdentityDigest(t *testing.T) {
	sum := sha256.Sum256([]byte(`{"engine":{"process_start_time_seconds":1764430000.5,"version":"0.32.0"}}`))
	want := "sha256:" + hex.EncodeToString(sum[:])
	if got := IdentityDigest(engine.Identity{Version: "0.32.0", ProcessStart: 1764430000.5}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDifferentEngines(t *testing.T) {
	whole := facts{identity: engine.Identity{Version: "1"}, blockSize: 16, root: "/m"}
	with := func(change func(f *facts)) facts {
		f := whole
		change(&f)
		return f
	}
	mute := with(func(f *facts) { f.blockSize, f.mute = 0, true })
	for _, c := range []struct {
		f, g facts
		want string // "" = they agree
	}{
		{whole, whole, ""},
		{whole, with(func(f *facts) { f.identity.Version = "2" }), "engine a has version 1 and engine b has 2"},
		{whole, with(func(f *facts) { f.blockSize = 32 }), "engine a has KV blocks of 16 tokens and engine b of 32"},
		{whole, with(func(f *facts) { f.root = "/n" }), `engine a serves the model at "/m" and engine b at "/n"`},
		{whole, with(func(f *facts) { f.blockSize, f.root = 0, "" }), ""}, // not asked in time
		{mute, whole, "engine a does not say how large its KV blocks are and engine b has 16 tokens"},
		{whole, mute, "engine b does not say how large its KV blocks are and engine a has 16 tokens"},
		{mute, mute, ""}, // engines of a version that does not tell
	} {
		got := ""
		if err := differ("a", c.f, "b", c.g); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v and %+v: %q, want %q", c.f, c.g, got, c.want)
		}
	}
}

// An engine that answers with impossible blocks is told from one that does not answer.
func TestEnginesThatDoNotTellTheirBlocks(t *testing.T) {
	for body, want := range map[string]facts{
		`vllm:cache_config_info{block_size="16",num_gpu_blocks="9"} 1`: {blockSize: 16},
		`vllm:cache_config_info{block_size="0",num_gpu_blocks="9"} 1`:  {mute: true},
		`up 1`: {mute: true},
		``:     {}, // it answers with 500
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" || body == "" {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, body+"\n")
		}))
		c, err := engine.NewClient(srv.URL, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := (&settings{dialect: vllm.New()}).describe(t.Context(), &node{control: c}, engine.Identity{})
		if err != nil || f != want {
			t.Errorf("%q: %+v %v", body, f, err)
		}
		c.Close()
		srv.Close()
	}
}
