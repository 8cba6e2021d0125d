package schema

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

const planted = "hf_Pl4ntedSecretValue"

// process returns the text of a valid document with one replacement.
func process(t *testing.T, old, with string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/deploy/valid/process.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("the document has no %q", old)
	}
	return strings.Replace(string(b), old, with, 1)
}

// A value of a field that holds secrets or key material is repeated nowhere.
func TestSecretValuesAreNeverShown(t *testing.T) {
	pem := `"-----BEGIN OPENSSH PRIVATE KEY-----\n` + planted + `\n"`
	for name, text := range map[string]string{
		"identity":    process(t, "gate.example,", "gate.example, identity: "+pem+","),
		"known_hosts": process(t, "gate.example,", "gate.example, known_hosts: "+pem+","),
		"host_keys":   process(t, "gate.example,", "gate.example, host_keys: ["+pem+"],"),
		"sign.key":    process(t, `"file:operator.key"`, pem),
		"sign.trust":  process(t, `"file:operator.pub"`, pem),
		"jump":        process(t, "gate.example,", "gate.example, jump: "+planted+","),
		"a key":       process(t, "UCX_TLS:", `"HF_TOKEN=`+planted+`": x, UCX_TLS:`),
		"model_dir":   process(t, "model_dir: /models/tern-7b", "model_dir: "+planted),
	} {
		doc, err := Load(context.Background(), []Source{{"x.yaml", []byte(text)}}, Options{})
		if err == nil {
			t.Errorf("%s: accepted, %d warnings", name, len(doc.Warnings))
			continue
		}
		b, _ := json.Marshal(append(problem.All(err), Warnings(err)...))
		if strings.Contains(string(b), planted) || strings.Contains(string(b), "PRIVATE") {
			t.Errorf("%s: the secret is repeated: %s", name, b)
		}
	}
	for name, text := range map[string]string{
		"no value":   "deploy: hosts: h: password: " + planted,
		"two values": "deploy: hosts: h: identity: \"file:a\"\ndeploy: hosts: h: identity: \"" + planted + "\"",
		"bad syntax": "deploy: sign: key: \"" + planted + "\" \"x",
	} {
		_, err := Load(context.Background(), []Source{{"x.cue", []byte(text)}}, Options{})
		b, _ := json.Marshal(problem.All(err))
		if err == nil || strings.Contains(string(b), planted) {
			t.Errorf("CUE with %s: the secret is repeated: %s", name, b)
		}
	}
}

// The router's secrets are checked also where the rest of the section has a wrong shape.
func TestRouterSecretsAreCheckedInAnyShape(t *testing.T) {
	b, err := os.ReadFile("testdata/deploy/valid/router-etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`"env:NARWHAL_CONTROL"`, planted, `"file:etcd.pw"`, planted, "keep: 3", "keep: x").Replace(string(b))
	_, err = Load(context.Background(), []Source{{"x.yaml", []byte(text)}}, Options{})
	var got []string
	for _, p := range problem.All(err) {
		got = append(got, p.Rule+" "+p.Field)
		if strings.Contains(p.Message+p.Got+p.Hint, planted) {
			t.Errorf("the secret is repeated: %s", p.Message)
		}
	}
	want := []string{"secret-literal deploy.router.http.control_token", "secret-literal deploy.router.lease.etcd.password", "type deploy.router.journal.keep"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Router options that are left out, or null, have their defaults.
func TestRouterDefaults(t *testing.T) {
	doc, ps := load(Options{}, "x.yaml", process(t, "router: {host: alpha-1", "router: {lease: null, http: {keepalive: 15s}, host: alpha-1"))
	if ps != nil {
		t.Fatal(fields(ps))
	}
	r := doc.Fleet.Deploy.Router
	if r.Listen != fleet.DefaultListen {
		t.Errorf("listen %s", r.Listen)
	}
	if diff := cmp.Diff(fleet.RouterHTTP{MaxHeaderBytes: fleet.DefaultHeaderBytes, HeaderTimeout: fleet.Duration(fleet.DefaultHeaderTimeout), IdleTimeout: fleet.Duration(fleet.DefaultIdleTimeout),
		Keepalive: fleet.Duration(15 * time.Second)}, r.HTTP); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(fleet.RouterLease{TTL: fleet.Duration(fleet.DefaultLeaseTTL), Renew: fleet.Duration(fleet.DefaultLeaseRenew), Margin: fleet.Duration(fleet.DefaultLeaseMargin)}, r.Lease); diff != "" || r.Lease.On() {
		t.Error(diff)
	}
	if r.LendFrom != fleet.DefaultLendFrom {
		t.Errorf("lend_from is %v", r.LendFrom)
	}
	if r.PrefixAffinity != fleet.DefaultAffinity {
		t.Errorf("prefix_affinity is %v", r.PrefixAffinity)
	}
	if diff := cmp.Diff(fleet.RouterJournal{RotateBytes: fleet.DefaultRotateBytes, Keep: fleet.DefaultKeep}, r.Journal); diff != "" {
		t.Error(diff)
	}
}

func TestHiddenValuesTellTheirLength(t *testing.T) {
	_, ps := load(Options{}, "x.yaml", process(t, "gate.example,", "gate.example, identity: äbc,"))
	if len(ps) != 1 || !strings.Contains(ps[0].Got, "3 characters") {
		t.Errorf("got %v", fields(ps))
	}
}

func TestSecretArguments(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want []int
	}{
		{[]string{"vllm", "--api-key", "abc"}, []int{2}},
		{[]string{"vllm", "--api-key=abc"}, []int{1}},
		{[]string{"vllm", "--api-key", "${KEY}", "--api-key=$KEY", "--api-key={port}", "--api-key", "file:k", "--api-key=env:K"}, nil},
		{[]string{"vllm", "--api-key", "--port", "80"}, nil},
		{[]string{"env", "HF_TOKEN=abc", "vllm"}, []int{1}},
		{[]string{"env", "HF_TOKEN=${HF_TOKEN}", "X_KEY=abc"}, []int{2}},
		{[]string{"sh", "-c", "HF_TOKEN='abc' exec vllm --password p"}, []int{2}},
		{[]string{"curl", "-H", "Authorization: Bearer abcdef"}, []int{2}},
		{[]string{"curl", "-H", "Authorization: Bearer ${T}"}, nil},
		{[]string{"x", planted, "sk-abcdefgh"}, []int{1, 2}},
		{[]string{"x", "sk-ssh-ed25519@openssh.com"}, nil},
		{[]string{"x", "--password", "12345"}, []int{2}},
		{[]string{"vllm", "--max-num-batched-tokens", "8192", "--tokenizer", "m", "--long-prefill-token-threshold", "64", "--ssl-keyfile", "/k", "--monkey=x"}, nil},
	} {
		if diff := cmp.Diff(c.want, secretArguments(c.argv)); diff != "" {
			t.Errorf("%q: %s", c.argv, diff)
		}
	}
}

func TestLiteralSecretsOfVariables(t *testing.T) {
	for text, want := range map[string]bool{
		"{HF_TOKEN: abc}": true, "{MY_KEY: abc}": true, "{DB_PASSWORD: \"12345\"}": true, "{X: " + planted + "}": true, "{AUTH: Bearer abc}": true,
		"{HF_TOKEN: \"${HF_TOKEN}\"}": false, "{HF_TOKEN: \"{model}\"}": false, "{HF_TOKEN: \"file:x\"}": false, "{HF_TOKEN: \"\"}": false,
		"{TOKENIZERS_PARALLELISM: \"false\"}": false, "{MONKEY: x}": false, "{MAX_TOKENS: \"10\"}": false, "{KEY_FILE: /x}": false,
	} {
		_, ps := load(Options{}, "x.yaml", process(t, `{UCX_TLS: "tcp,self"}`, text))
		if got := len(ps) == 1 && ps[0].Rule == "secret-literal"; got != want || !want && len(ps) > 0 {
			t.Errorf("%s: %v", text, fields(ps))
		}
	}
}

// One wrong field hides neither unknown names, literal secrets nor warnings.
func TestOneFaultHidesNoOther(t *testing.T) {
	text := process(t, "gate.example,", "gate.example, prot: 22, jump: gat, password: hunter2,")
	text = strings.Replace(text, "d0: {host: alpha-2}", "d0: {host: alpha-2, launch: vlm}", 1)
	text = strings.Replace(text, `env: {UCX_TLS: "tcp,self"}`, "env: {HF_TOKEN: hunter2}", 1)
	text = strings.Replace(text, "router: {host: alpha-1", "router: {host: alpha-9", 1)
	text = strings.Replace(text, "  name: tern-prod", "  name: other\n  name: tern-prod", 1)
	_, err := Load(context.Background(), []Source{{"x.yaml", []byte(text)}}, Options{})
	var got []string
	for _, p := range problem.All(err) {
		got = append(got, p.Rule+" "+p.Field)
	}
	want := []string{"unknown-field deploy.hosts.gate.prot", "host-unknown deploy.hosts.gate.jump", "secret-literal deploy.hosts.gate.password",
		"launch-unknown deploy.engines.d0.launch", "secret-literal deploy.launch.vllm.env.HF_TOKEN", "host-unknown deploy.router.host"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if ws := Warnings(err); len(ws) != 1 || ws[0].Rule != "duplicate-key" {
		t.Errorf("warnings: %v", fields(ws))
	}
}

func TestReadingFaultsAreNamed(t *testing.T) {
	for name, c := range map[string]struct{ file, text, says string }{
		"empty CUE":     {"x.cue", " \n", "the file is empty"},
		"UTF-16":        {"x.json", "\xff\xfe{\x00}\x00", "UTF-16"},
		"UTF-16 no BOM": {"x.yaml", "a\x00:\x00 \x001\x00", "UTF-16"},
		"UTF-16 CUE":    {"x.cue", "\xfe\xff\x00a", "UTF-16"},
		"open":          {"x.cue", "model: string", "has a type or limit, but no value"},
	} {
		_, ps := load(Options{}, c.file, c.text)
		if len(ps) == 0 || !strings.Contains(strings.Join(fields(ps), "\n"), c.says) {
			t.Errorf("%s: %v", name, fields(ps))
		}
	}
}

func TestCUEBombsEnd(t *testing.T) {
	for name, text := range map[string]string{
		"range":        "import \"list\"\nx: list.Range(0,100000000,1)",
		"repeat":       "import s \"strings\"\nx: s.Repeat(\"x\", 1000000000000)",
		"template":     "import \"text/template\"\nx: template.Execute(\"\", {})",
		"nested loops": "l: [1,2]\nx: [for a in l for b in l for c in l for d in l {a}]",
		"inner loops":  "l: [1,2]\nx: [for a in l for b in l {[for c in l {[for d in l {a}]}]}]",
	} {
		_, ps := load(Options{}, "x.cue", text)
		if len(ps) == 0 || ps[0].Rule != "import" && ps[0].Rule != "cue-bounds" || ps[0].Line < 2 && name != "range" && name != "template" {
			t.Errorf("%s: %v", name, fields(ps))
		}
	}
}

func TestEvaluationIsBounded(t *testing.T) {
	never := func() (*Document, error) { <-t.Context().Done(); return nil, nil }
	_, err := within(t.Context(), budget{time: time.Millisecond}, "x.cue", never)
	if ps := problem.All(err); len(ps) != 1 || ps[0].Rule != "cue-bounds" || !strings.Contains(ps[0].Message, "longer than 1ms") {
		t.Errorf("time: %v", err)
	}
	// What is garbage at the start goes meanwhile, and must not hide what is held.
	garbage := make([]byte, 512<<20)
	runtime.KeepAlive(garbage)
	stop, gone := make(chan struct{}), make(chan struct{})
	_, err = within(t.Context(), budget{time: time.Minute, heap: 64 << 20}, "x.cue", func() (*Document, error) {
		defer close(gone)
		runtime.GC()
		held := make([]byte, 256<<20)
		<-stop
		runtime.KeepAlive(held)
		return nil, nil
	})
	close(stop)
	<-gone // or what it holds counts as in use when the next one starts
	if ps := problem.All(err); len(ps) != 1 || !strings.Contains(ps[0].Message, "64 MiB") {
		t.Errorf("memory: %v", err)
	}
	if b := budgetOf([]Source{{"a.json", nil}, {"b.cue", nil}}); b.time == 0 || b.heap == 0 {
		t.Error("CUE has no budget")
	}
	if b := budgetOf([]Source{{"a.json", nil}}); b != (budget{}) {
		t.Error("JSON has a budget")
	}
}

// The end of the context ends a load at once, with its cause.
func TestLoadEndsWithItsContext(t *testing.T) {
	cause := problem.New(problem.Terminated, "interrupted", "interrupted", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan struct{})
	env := func(string) (string, bool) { close(started); <-t.Context().Done(); return "", false }
	go func() { <-started; cancel(cause) }()
	_, err := Load(ctx, []Source{{"x.json", []byte(strings.Replace(small, "http://a:1", "${A}", 1))}}, Options{Env: env})
	if problem.StatusOf(err) != problem.Terminated {
		t.Errorf("got %v", err)
	}
}
