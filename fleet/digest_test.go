package fleet

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"testing"
)

// Texts and digests are those of the reference's operator contract, section 1.3.
func TestDigestOfKnownTexts(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":{"x":"z","y":[1,2.5]},"b":2}`: "sha256:9784c3f70e2a4d482b22d2c373a8c82ee95e042837e81fe35e91d995b9babbd0",
		`{"a":1.0,"b":[1e+16,1e-05,0.0001,123456789.123,1e+22,5e-324],"n":null,"t":true,"\u00e9":"\ud83d\udc33\u00e9"}`: "sha256:bdf7ee72811ce1f4bcbdde9dae1057038179341ce2918190924dbdc8e8302fb1",
	} {
		dec := json.NewDecoder(bytes.NewReader([]byte(text)))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		got, err := Canonical(v)
		if err != nil || string(got) != text {
			t.Errorf("canonical text %s, want %s (%v)", got, text, err)
		}
		if d, _ := Digest(v); d != want {
			t.Errorf("digest of %s is %s, want %s", text, d, want)
		}
	}
}

func TestContractFingerprint(t *testing.T) {
	yes := true
	c := Contract{EngineVersion: "0.30.0", Connector: "NixlConnector", EnforceHandshakeCompat: &yes}
	if got := c.Fingerprint(); got != "b68b596c67d607da" {
		t.Errorf("fingerprint %s, want b68b596c67d607da", got)
	}
}

func TestCanonicalRefusesNonFinite(t *testing.T) {
	if _, err := Canonical(map[string]float64{"x": math.Inf(1)}); err == nil {
		t.Error("an infinity passed")
	}
}

func TestContractCompleteness(t *testing.T) {
	yes := true
	c := Contract{EngineVersion: "1", Connector: "mooncake", KVRole: "kv_both", CrossLayersBlocks: &yes}
	if got := c.Unattested("sglang"); !slices.Equal(got, []string{"cross_layers_blocks", "kv_role"}) {
		t.Errorf("unattested %v", got)
	}
	if got := c.Unattested("vllm"); got != nil {
		t.Errorf("vLLM attests every field, got %v", got)
	}
	if slices.Contains(c.Missing("sglang"), "transfer_mode") || !slices.Contains(c.Missing("vllm"), "transfer_mode") {
		t.Error("transfer_mode is missing for vLLM alone")
	}
}
