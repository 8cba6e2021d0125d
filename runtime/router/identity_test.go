package router

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
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
