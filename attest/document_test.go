package attest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/attest/canonical"
)

func TestDocumentForms(t *testing.T) {
	file, err := testDocument().File()
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDocument(file)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := d.LaunchDigest()
	if b, _ := testDocument().LaunchDigest(); a != b || a == "" {
		t.Fatalf("launch digest %s; want %s", a, b)
	}
	old := strings.Replace(string(file), `"engine_version":"0.30.0"`, `"vllm_version":"0.30.0"`, 1)
	if d, err := ParseDocument([]byte(old)); err != nil || d.Contract.EngineVersion != "0.30.0" {
		t.Fatalf("old name: %v", err)
	}
	for name, r := range map[string][2]string{
		"schema":          {`"narwhal.attestation"`, `"narwhal.fleet"`},
		"version 2":       {`"schema_version":1`, `"schema_version":2`},
		"version 1.0":     {`"schema_version":1`, `"schema_version":1.0`},
		"extra key":       {`"schema_version":1`, `"schema_version":1,"x":1`},
		"both names":      {`"engine_version":"0.30.0"`, `"engine_version":"0.30.0","vllm_version":"0.30.0"`},
		"unknown field":   {`"kv_heads":0`, `"kv_heads":0,"kv_feet":0`},
		"case":            {`"kv_heads":0`, `"KV_heads":0`},
		"coercion":        {`"kv_heads":0`, `"kv_heads":"0"`},
		"float":           {`"kv_heads":0`, `"kv_heads":0.0`},
		"null number":     {`"kv_heads":0`, `"kv_heads":null`},
		"negative":        {`"kv_heads":0`, `"kv_heads":-1`},
		"unsourced":       {`"kv_heads":0`, `"kv_heads":1`},
		"handshake false": {`"enforce_handshake_compat":true`, `"enforce_handshake_compat":false`},
		"image digest":    {`"image_digest":""`, `"image_digest":"sha256:12"`},
		"empty version":   {`"engine_version":"0.30.0"`, `"engine_version":""`},
		"empty source":    {`"/y"`, `" "`},
		"source of none":  {`"/y"`, `"/y","nothing":"x"`},
		"launch is text":  {`"launch":{`, `"launch":"x","l":{`},
	} {
		text := strings.Replace(string(file), r[0], r[1], 1)
		if text == string(file) {
			t.Fatalf("%s changes nothing in %s", name, file)
		}
		if _, err := ParseDocument([]byte(text)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseDocument(bytes.Repeat([]byte(" "), MaxResponse+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// TestResponseMustFitItself changes a response and, where a liar would, its
// attestation digest with it.
func TestResponseMustFitItself(t *testing.T) {
	r, err := NewResponse(testDocument(), "0.30.0", 1764442262.25)
	if err != nil {
		t.Fatal(err)
	}
	good, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	forge := func(change func(tree map[string]any)) []byte {
		tree, err := canonical.ParseObject(good)
		if err != nil {
			t.Fatal(err)
		}
		delete(tree, "attestation_digest")
		change(tree)
		if tree["attestation_digest"], err = canonical.Digest(tree); err != nil {
			t.Fatal(err)
		}
		out, err := canonical.Encode(tree)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if _, err := ParseResponse(forge(func(map[string]any) {})); err != nil {
		t.Fatal(err)
	}
	noLaunch, err := ParseResponse(forge(func(m map[string]any) { delete(m, "launch"); delete(m, "launch_digest") }))
	if err != nil || noLaunch.LaunchDigest != "" || noLaunch.Binding() != noLaunch.Digest {
		t.Fatalf("no launch: %v", err)
	}
	for name, change := range map[string]func(map[string]any){
		"launch digest":  func(m map[string]any) { m["launch_digest"] = "sha256:" + strings.Repeat("0", 64) },
		"launch alone":   func(m map[string]any) { delete(m, "launch_digest") },
		"digest alone":   func(m map[string]any) { delete(m, "launch") },
		"launch changed": func(m map[string]any) { m["launch"].(map[string]any)["args"] = []any{} },
		"contract changed": func(m map[string]any) {
			m["contract"].(map[string]any)["kv_role"] = ""
			delete(m["contract"].(map[string]any), "kv_role")
		},
		"no engine":        func(m map[string]any) { delete(m, "engine") },
		"engine is a list": func(m map[string]any) { m["engine"] = []any{} },
		"no process start": func(m map[string]any) { delete(m["engine"].(map[string]any), "process_start_time_seconds") },
		"start is zero":    func(m map[string]any) { m["engine"].(map[string]any)["process_start_time_seconds"] = 0.0 },
		"start is text":    func(m map[string]any) { m["engine"].(map[string]any)["process_start_time_seconds"] = "1" },
		"more in engine":   func(m map[string]any) { m["engine"].(map[string]any)["x"] = 1 },
		"more at the top":  func(m map[string]any) { m["x"] = 1 },
	} {
		if _, err := ParseResponse(forge(change)); !errors.Is(err, ErrDocument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := ParseResponse(bad); !errors.Is(err, ErrUnverified) {
			t.Fatalf("byte %d from %q to %q: %v", i, good[i], bad[i], err)
		}
	}
}
