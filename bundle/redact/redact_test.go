package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

var testKey = []byte("a key of tests")

func fixed(literals ...string) *Redactor {
	var s []fleet.Secret
	for _, l := range literals {
		s = append(s, fleet.NewSecret(l))
	}
	return New(testKey, s)
}

var markRE = regexp.MustCompile(`\[redacted:[0-9a-f]{6}\]`)

// masked shows placeholders as §, which keeps tables readable.
func masked(s string) string { return markRE.ReplaceAllString(s, "§") }

func TestText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"HF_TOKEN=hunter2", "HF_TOKEN=§"},
		{"export HF_TOKEN=hunter2\nPATH=/bin\n", "export HF_TOKEN=§\nPATH=/bin\n"},
		{"a DB_PASSWORD=p@ss,w0rd&x; b", "a DB_PASSWORD=§; b"},
		{"--api-key hunter2 --port 8000", "--api-key § --port 8000"},
		{"--api-key=hunter2 --port 8000", "--api-key=§ --port 8000"},
		{"-password 'hunter 2' -v", "-password '§' -v"},
		{"--max-tokens 128 --token-ids 4", "--max-tokens 128 --token-ids 4"},
		{"--key /opt/narwhal/etc/sidecar.key --pid 4", "--key /opt/narwhal/etc/sidecar.key --pid 4"},
		{"Authorization: Bearer abc.def-ghi\r\nHost: x\r\n", "Authorization: Bearer §\r\nHost: x\r\n"},
		{"authorization: Basic dXNlcjpwYXNz", "authorization: Basic §"},
		{"curl -H 'Authorization: Token abc def' http://h/", "curl -H 'Authorization: Token §' http://h/"},
		{"got Bearer eyabc123 from client", "got Bearer § from client"},
		{"WWW-Authenticate: Bearer token required", "WWW-Authenticate: Bearer token required"},
		{"cookie: a=b; c=d\nnext", "cookie: §\nnext"},
		{"get https://user:pw@host:1/x?y=1", "get https://§@host:1/x?y=1"},
		{"postgres://u:p@ss@db/x", "postgres://§@db/x"},
		{"mail a@b.c and http://h/a@b", "mail a@b.c and http://h/a@b"},
		{"GET /x?api_key=abc&n=1&sig=zzz#f", "GET /x?api_key=§&n=1&sig=§#f"},
		{"X-Amz-Signature=abc?X-Amz-Signature=abc", "X-Amz-Signature=abc?X-Amz-Signature=§"},
		{`args: Namespace(api_key='abc', port=8000, hf_token=None)`, `args: Namespace(api_key='§', port=8000, hf_token=None)`},
		{`api_key=['abc', "def"], model='m'`, `api_key=['§', "§"], model='m'`},
		{`{'api_key': b'abc'}`, `{'api_key': b'§'}`},
		{`msg="{\"api_key\":\"ab c\",\"n\":1}"`, `msg="{\"api_key\":\"§\",\"n\":1}"`},
		{`"client_secret" : "a\"b", "x"`, `"client_secret" : "§", "x"`},
		{"password: correct horse battery\nuser: x", "password: §\nuser: x"},
		{"  token: ghost # comment", "  token: § # comment"},
		{"invalid token: 'x' at 5", "invalid token: '§' at 5"},
		{"env[\"API_KEY\"] = \"abc\"", "env[\"API_KEY\"] = \"§\""},
		{"secret := \"abc\"", "secret := \"§\""},
		{"open /opt/etc/sidecar.key: permission denied", "open /opt/etc/sidecar.key: permission denied"},
		{"evidence key: A/host/h1", "evidence key: A/host/h1"},
		{"prompt_tokens=5 token=12 tokens: 7", "prompt_tokens=5 token=12 tokens: 7"},
		{"password=12345", "password=§"},
		{"host_key: ssh-ed25519 AAAAC3NzaC1lZDI1", "host_key: ssh-ed25519 AAAAC3NzaC1lZDI1"},
		{"HF_TOKEN=env:HF_TOKEN HF_TOKEN=$HF_TOKEN", "HF_TOKEN=env:HF_TOKEN HF_TOKEN=$HF_TOKEN"},
		{"password=******** token=<nil>", "password=******** token=<nil>"},
		{"use hf_abcdefghij0123456789XYZ now.", "use § now."},
		{"sk-abcdefghij0123456789XYZ, AKIAABCDEFGHIJKLMNOP", "§, §"},
		{"task-abcdefghijklmnopqrstuvwxyz", "task-abcdefghijklmnopqrstuvwxyz"},
		{"jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P", "jwt §"},
		{"x\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\nabc=\n-----END EC PRIVATE KEY-----\ny\n", "x\n§\ny\n"},
		{"x\n-----BEGIN OPENSSH PRIVATE KEY-----\nMHcCAQ\nabc=\n", "x\n§\n"},
		{"MHcCAQ\nabc=\n-----END PRIVATE KEY-----\ny\n", "§-----END PRIVATE KEY-----\ny\n"},
		{"-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n", "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"},
		{`Received request r1: prompt: 'tell me a "story"\n', params: n=1`, `Received request r1: prompt: '§', params: n=1`},
		{`vllm:prompt_tokens_total{model_name="m"} 12.0`, `vllm:prompt_tokens_total{model_name="m"} 12.0`},
		{"password=[redacted:0a1b2c]tail", "password=§"},
		{"password=[redacted:0a1b2c]", "password=§"},
	} {
		got, n := fixed().Text(c.in)
		if masked(got) != c.want {
			t.Errorf("%q\n got %q\nwant %q", c.in, got, c.want)
		}
		if (n == 0) != (got == c.in) {
			t.Errorf("%q: %d redactions, changed %v", c.in, n, got != c.in)
		}
	}
}

func TestJSON(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"api_key": "abc", "n": [1, 2]}`, `{"api_key": "§", "n": [1, 2]}`},
		{`{"password":1234567,"max_tokens":128,"token":5,"secret":null,"credential":true}`, `{"password":"§","max_tokens":128,"token":5,"secret":null,"credential":true}`},
		{`{"secrets":{"HF_TOKEN":"env:HF_TOKEN"},"key":"file:operator.key","passphrase":"","host_keys":["ssh-ed25519 AAAA"]}`,
			`{"secrets":{"HF_TOKEN":"env:HF_TOKEN"},"key":"file:operator.key","passphrase":"","host_keys":["ssh-ed25519 AAAA"]}`},
		{`{"credentials":{"user":"u","x":["p"],"type":"basic"}}`, `{"credentials":{"user":"§","x":["§"],"type":"basic"}}`},
		{`{"Authorization":["Bearer abc"]}`, `{"Authorization":["Bearer §"]}`},
		{`{"headers":[["authorization","Bearer abc"],["host","h"]]}`, `{"headers":[["authorization","Bearer §"],["host","h"]]}`},
		{`{"argv":["vllm","--api-key","abc","--port","8000","--hf-token=x y"]}`, `{"argv":["vllm","--api-key","§","--port","8000","--hf-token=§ y"]}`},
		{`{"argv":["narwhal","--key","/opt/narwhal/etc/sidecar.key"]}`, `{"argv":["narwhal","--key","/opt/narwhal/etc/sidecar.key"]}`},
		{`{"env":["HF_TOKEN=a b","PATH=/bin"]}`, `{"env":["HF_TOKEN=§","PATH=/bin"]}`},
		{`{"inherit":["HF_TOKEN","API_KEY"]}`, `{"inherit":["HF_TOKEN","API_KEY"]}`},
		{`[{"value":"abc","name":"HF_TOKEN"},{"name":"x","value":"abc"}]`, `[{"value":"§","name":"HF_TOKEN"},{"name":"x","value":"abc"}]`},
		{`{"log":"start\napi_key=abc\nend"}`, `{"log":"start\napi_key=§\nend"}`},
		{`{"body":"{\"token\":\"abc\",\"n\":1}"}`, `{"body":"{\"token\":\"§\",\"n\":1}"}`},
		{`{"pem":"-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n"}`, `{"pem":"§\n"}`},
		{`{"key":"A/host/h1","keyid":"abc","publicKey":{"hint":"c2hhMjU2"}}`, `{"key":"A/host/h1","keyid":"abc","publicKey":{"hint":"c2hhMjU2"}}`},
		{`{"key":"Zk3v9QpXw81LmT0aBcDe"}`, `{"key":"§"}`},
		{`{"url":"http://u:p@h/"}`, `{"url":"http://§@h/"}`},
		{`{"prompt":"hello","messages":[{"role":"user"}],"prompt_tokens":3}`, `{"prompt":"§","messages":"§","prompt_tokens":3}`},
		{"{\n  \"a\" : 1,\n  \"token\" : \"abc\"\n}\n", "{\n  \"a\" : 1,\n  \"token\" : \"§\"\n}\n"},
		{`"password=abc\"d"`, `"password=§"`},
		{`{"unchanged":"\u0041\/<>&"}`, `{"unchanged":"\u0041\/<>&"}`},
	} {
		got, n := fixed().Bytes([]byte(c.in))
		if masked(string(got)) != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
		if !json.Valid(got) {
			t.Errorf("%s became invalid: %s", c.in, got)
		}
		if (n == 0) != (string(got) == c.in) {
			t.Errorf("%s: %d redactions, changed %v", c.in, n, string(got) != c.in)
		}
	}
}

func TestLiteralsInEveryForm(t *testing.T) {
	secret := `qu"ote/and+plus é`
	r := fixed(secret, "87654321", "line one of the secret\nline two of the secret")
	want := r.placeholder(secret)
	for name, in := range map[string]string{
		"plain":  "say " + secret + "!",
		"json":   `{"x":` + quote(secret) + `}`,
		"in log": `x "` + inJSON(secret) + `" y`,
		"query":  "h?x=" + url.QueryEscape(secret),
		"base64": "b " + base64.StdEncoding.EncodeToString([]byte(secret)),
		"key":    `{` + quote(secret) + `:1}`,
	} {
		got, n := r.Text(in)
		if n != 1 || !strings.Contains(got, want) {
			t.Errorf("%s: %d redactions in %q, want one of %s", name, n, got, want)
		}
	}
	if got, n := r.Text(`{"pin":87654321}`); n != 1 || !json.Valid([]byte(got)) || strings.Contains(got, "8765") {
		t.Errorf("a number that is a secret became %s", got)
	}
	if got, n := r.Text("  line two of the secret,"); n != 1 {
		t.Errorf("one line of a secret became %s", got)
	}
	if got, n := fixed("abc", "redacted").Text("abc redacted"); n != 0 {
		t.Errorf("short literals were cut: %s", got)
	}
}

func TestPlaceholders(t *testing.T) {
	in := "a_token=one b_token=two Authorization: Bearer one"
	got, n := fixed().Text(in)
	m := markRE.FindAllString(got, -1)
	if n != 3 || len(m) != 3 || m[0] == m[1] || m[0] != m[2] {
		t.Errorf("placeholders of equal and different secrets: %s", got)
	}
	a, _ := New(nil, nil).Text(in)
	b, _ := New(nil, nil).Text(in)
	if a == b {
		t.Error("two bundles share their placeholders")
	}
}

func TestLinesStayLines(t *testing.T) {
	in := "{\"token\":\"x\"}\nplain password=y\n{\"n\":1}\n{broken\n-----BEGIN PRIVATE KEY-----\n{\"a\":\"-----END PRIVATE KEY-----\"}\n{\"token\":\"z\"}"
	got, n := fixed().Bytes([]byte(in))
	want := "{\"token\":\"§\"}\nplain password=§\n{\"n\":1}\n{broken\n§\n{\"a\":\"-----END PRIVATE KEY-----\"}\n{\"token\":\"§\"}"
	if masked(string(got)) != want || n != 4 {
		t.Errorf("%d redactions\n got %s\nwant %s", n, got, want)
	}
}

func TestDetectLeavesContentAlone(t *testing.T) {
	r := fixed()
	if n := r.Detect([]byte(`{"prompt":"hello"}`)); n != 0 {
		t.Errorf("a prompt counts as %d secrets", n)
	}
	if n := r.Detect([]byte(`{"password":"hello"}`)); n != 1 {
		t.Errorf("a password counts as %d secrets", n)
	}
}

func TestWhere(t *testing.T) {
	line, before := fixed().Where([]byte("{\"a\":1}\n{\"n\":2,\"password\":\"hello\"}\n"))
	if line != 2 || before != `{"n":2,"password":"` {
		t.Errorf("line %d after %q", line, before)
	}
	if line, _ := fixed().Where([]byte("nothing")); line != 0 {
		t.Errorf("line %d of a harmless text", line)
	}
}

// The plain documents of a fleet, an engine and a record hold no secret.
func TestHarmlessDocuments(t *testing.T) {
	files, err := os.ReadDir("testdata/harmless")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile("testdata/harmless/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if got, n := fixed().Bytes(b); n != 0 {
			t.Errorf("%s: %d redactions:\n%s", f.Name(), n, got)
		}
	}
}
