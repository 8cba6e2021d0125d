package redact

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func FuzzBytes(f *testing.F) {
	for _, s := range []string{
		"HF_TOKEN=abc\n", `{"token":"abc","a":[{"name":"API_KEY","value":"x"}]}`, "{\"token\":\"a\"}\n{\"n\":1}\n", "Authorization: Bearer abc\r\n",
		"https://u:p@h/?sig=abc", "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----", `api_key=['a', b"c"]`, `x="{\"token\":\"a\"}"`,
		`"password=\\\"x"`, "password=[redacted:0a1b2c]x", `{"a":"{\"password\":\"{\\\"token\\\":\\\"x\\\"}\"}"}`, "secret: 's3cr3t-literal' --key x", "1234",
		"abc\n-----END RSA PRIVATE KEY-----", "s3cr3t-lits3cr3t-literal", `{"s3cr3t-literal":["s3cr3t-literal",1]}`,
	} {
		f.Add([]byte(s))
	}
	const planted = "s3cr3t-literal"
	r := fixed(planted)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<14 {
			return
		}
		out, n := r.Bytes(in)
		if (n == 0) != bytes.Equal(in, out) {
			t.Fatalf("%d redactions, changed %v", n, !bytes.Equal(in, out))
		}
		if bytes.Contains(out, []byte(planted)) {
			t.Fatalf("the literal is still there: %q", out)
		}
		if json.Valid(in) && !json.Valid(out) {
			t.Fatalf("valid JSON became invalid: %q", out)
		}
		if bytes.HasSuffix(in, []byte("\n")) != bytes.HasSuffix(out, []byte("\n")) {
			t.Fatalf("the final newline changed: %q", out)
		}
		if again, m := r.Bytes(out); m != 0 {
			t.Fatalf("a second time changes %q to %q", out, again)
		}
		if !json.Valid(in) {
			checkLines(t, in, out)
		}
	})
}

// checkLines compares the JSON records among the lines.
func checkLines(t *testing.T, in, out []byte) {
	records := func(b []byte) (n int) {
		for _, line := range bytes.SplitAfter(b, []byte("\n")) {
			if isRecord(line) {
				n++
			}
		}
		return n
	}
	if a, b := records(in), records(out); b < a {
		t.Fatalf("%d records became %d: %q", a, b, out)
	}
}

// A secret behind a sensitive name never survives, whatever stands around it.
func FuzzNamed(f *testing.F) {
	f.Add("level=info ", " more", byte(0))
	f.Add(`{"a":1} `, "\n{", byte(3))
	f.Add("--x '", "' y", byte(5))
	const secret = "Zq9-vanishing-Act7"
	shapes := []string{"HF_TOKEN=%", "password: %", `"api_key": "%"`, `client_secret='%'`, "--api-key %", "Bearer %", `\"token\":\"%\"`, "https://u:%@h/", "Authorization: Token %"}
	r := fixed()
	f.Fuzz(func(t *testing.T, before, after string, shape byte) {
		if len(before)+len(after) > 1<<12 {
			return
		}
		s := strings.ReplaceAll(shapes[int(shape)%len(shapes)], "%", secret)
		in := before + "\n" + s + " \n" + after
		out, _ := r.Text(in)
		if strings.Contains(out, secret) {
			t.Fatalf("%q\nleaks in %q", in, out)
		}
	})
}
