package schema

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

const small = `{"schema":"narwhal.fleet","schema_version":2,"model":"m",
"engines":[{"iid":"a","url":"http://a:1"},{"iid":"b","url":"http://b:1"}],
"slo":{"ttft_s":1,"tpot_s":0.1}}`

func load(opt Options, srcs ...string) (*Document, []*problem.Problem) {
	var in []Source
	for i := 0; i < len(srcs); i += 2 {
		in = append(in, Source{srcs[i], []byte(srcs[i+1])})
	}
	doc, err := Load(context.Background(), in, opt)
	return doc, problem.All(err)
}

func TestJSONSyntaxIsPlaced(t *testing.T) {
	for text, want := range map[string]struct {
		line, col int
		says      string
	}{
		"":                       {1, 1, "empty"},
		"  \n ":                  {2, 2, "empty"},
		"\ufeff{}":               {1, 1, "byte order mark"},
		"{\n  \"a\": 1,\n}":      {3, 1, "quoted key"},
		"{\"a\":1 // x\n}":       {1, 8, "no comments"},
		"{\"ä\": tru}":           {1, 7, "where a value is wanted"},
		"{\"a\": 01}":            {1, 7, "leading zero"},
		"{\"a\": -}":             {1, 8, "digit"},
		"{\"a\": \"x\ny\"}":      {1, 9, "inside quoted text"},
		"{\"a\": \"\\q\"}":       {1, 9, "after a backslash"},
		"{\"a\": \"\\ud800\"}":   {1, 14, "surrogate"},
		"{\"a\": \"\xff\"}":      {1, 8, "UTF-8"},
		"{\"a\": \"x":            {1, 7, "no end"},
		"{} {}":                  {1, 4, "after the end"},
		"[1 2]":                  {1, 4, "inside a list"},
		strings.Repeat("[", 100): {1, 66, "nested"},
		"{'a': 1}":               {1, 2, "quoted key"},
		"{\"a\" 1}":              {1, 6, "colon"},
		"{\"a\": 1.}":            {1, 9, "digit"},
		"{\"a\": 1e}":            {1, 9, "digit"},
	} {
		_, ps := load(Options{}, "x.json", text)
		if len(ps) != 1 || ps[0].Rule != "syntax" || ps[0].Line != want.line || ps[0].Column != want.col || !strings.Contains(ps[0].Message, want.says) {
			t.Errorf("%q gives %v at %v, want %d:%d %s", text, fields(ps), places(ps), want.line, want.col, want.says)
		}
	}
}

func places(ps []*problem.Problem) (out [][2]int) {
	for _, p := range ps {
		out = append(out, [2]int{p.Line, p.Column})
	}
	return out
}

// All errors come at once and in their place, those of reading and of every rule of shape.
func TestRow26AllErrorsAtOnce(t *testing.T) {
	_, ps := load(Options{}, "x.json", `{
  "schema": "narwhal.fleet", "schema_version": 2.0,
  "engines": [{"iid": 3, "url": null, "rolle": "prefill"}],
  "slo": {"ttft_s": NaN, "tpot_s": true, "ttft_s2": 1},
  "serving": {"max_attempts": 9, "admission": "opne"},
  "deploy": {"name": "x", "hosts": {"h": {"port": "22"}}}
}`)
	want := []string{
		"1:1 model required", "2:48 schema_version type", "3:23 engines[0].iid type", "3:33 engines[0].url type", "3:39 engines[0].rolle unknown-field",
		"4:21 slo.ttft_s number-finite", "4:36 slo.tpot_s type", "4:42 slo.ttft_s2 unknown-field",
		"5:31 serving.max_attempts limit", "5:47 serving.admission choice", "6:13 deploy.router required", "6:51 deploy.hosts.h.port type",
	}
	var got []string
	for _, p := range ps {
		got = append(got, place(p)+" "+p.Field+" "+p.Rule)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func place(p *problem.Problem) string {
	b, _ := json.Marshal([]int{p.Line, p.Column})
	return strings.NewReplacer("[", "", "]", "", ",", ":").Replace(string(b))
}

func TestFormatsAgree(t *testing.T) {
	yaml := "schema: narwhal.fleet\nschema_version: 2\nmodel: m\nengines:\n- &e {iid: a, url: 'http://a:1'}\n- {<<: *e, iid: b, url: \"http://b:1/\"}\nslo: {ttft_s: 1, tpot_s: 0.1}\n"
	cue := "package x\nimport \"strings\"\n#E: {iid: string, url: \"http://\\(iid):1\"}\nschema: \"narwhal.fleet\", schema_version: 2, model: strings.ToLower(\"M\")\nengines: [for id in [\"a\", \"b\"] {#E & {iid: id}}]\nslo: {ttft_s: 1, tpot_s: 0.1}\n"
	want, ps := load(Options{}, "x.json", small)
	if ps != nil {
		t.Fatal(fields(ps))
	}
	for name, text := range map[string]string{"x.yaml": yaml, "x.cue": cue, "-": small, "stdin": yaml} {
		doc, ps := load(Options{Strict: true}, name, text)
		if ps != nil {
			t.Errorf("%s: %v", name, fields(ps))
		} else if doc.Digest != want.Digest {
			t.Errorf("%s has another digest", name)
		}
	}
}

func TestSeveralFilesUnify(t *testing.T) {
	for _, name := range []string{"site.json", "site.yaml"} {
		doc, ps := load(Options{}, "base.json", small, name, `{"slo": {"ttft_s": 1}, "serving": {"max_attempts": 3}, "_note": "site", "controller": null}`)
		if ps != nil || doc.Fleet.Serving.MaxAttempts != 3 {
			t.Errorf("%s: %v", name, fields(ps))
		}
	}
	doc, ps := load(Options{}, "base.json", small, "site.cue", "serving: max_attempts: <=1\nserving: max_attempts: >0\nserving: max_attempts: 1\nslo: ttft_s: <2\n")
	if ps != nil || doc.Fleet.Serving.MaxAttempts != 1 {
		t.Errorf("site.cue: %v", fields(ps))
	}
	_, ps = load(Options{}, "base.json", small, "site.yaml", "slo:\n  ttft_s: 2\nmodel: m2\nengines: []\n")
	if got := rulesOf(ps); got != "conflict slo.ttft_s, conflict model, conflict engines" || ps[0].File != "site.yaml" || ps[0].Line != 2 {
		t.Errorf("got %s, %v", got, fields(ps))
	}
	_, ps = load(Options{}, "base.json", small, "site.cue", "slo: ttft_s: <0.5\n")
	if got := rulesOf(ps); got != "conflict slo.ttft_s" || ps[0].File != "site.cue" || ps[0].Line != 1 {
		t.Errorf("got %s, %v", got, fields(ps))
	}
}

func rulesOf(ps []*problem.Problem) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Rule+" "+p.Field)
	}
	return strings.Join(out, ", ")
}

func TestCUELimitsTakeDefaults(t *testing.T) {
	base := "schema: \"narwhal.fleet\", schema_version: 2, model: \"m\"\nengines: [{iid: \"a\", url: \"http://a:1\"}]\nslo: {ttft_s: 1, tpot_s: 0.1}\n"
	doc, ps := load(Options{}, "x.cue", base+"serving: max_attempts: <=2\n")
	if ps != nil || doc.Fleet.Serving.MaxAttempts != 2 {
		t.Errorf("a limit around the default: %v", fields(ps))
	}
	_, ps = load(Options{}, "x.cue", base+"serving: max_attempts: <=1\nhardware: accelerator: string\n")
	if got := rulesOf(ps); !strings.Contains(got, "serving.max_attempts") || !strings.Contains(got, "hardware.accelerator") {
		t.Errorf("got %s", got)
	}
}

func TestCUERefusals(t *testing.T) {
	deep := "a: " + strings.Repeat("[", 200)
	for text, want := range map[string]string{
		"import \"example.com/x\"\nmodel: x.y":  "import ",
		"import \"github.com/a/b\"\nmodel: b.y": "import ",
		"model: \"a":                            "syntax ",
		deep:                                    "syntax ",
		"model: " + strings.Repeat("!", 5000) + "true":    "syntax ",
		strings.Repeat("a: ", 5000) + "1":                 "syntax ",
		"a: b: c: 1\na: b: c: 2":                          "conflict a.b.c",
		"deploy: hosts: h: password: \"hunter2\" & \"x\"": "conflict deploy.hosts.h.password",
		"x: 1\ny: x.z": "conflict y",
	} {
		_, ps := load(Options{}, "x.cue", text)
		if len(ps) == 0 || ps[0].Rule+" "+ps[0].Field != want || ps[0].Line < 1 {
			t.Errorf("%.40q gives %v, want %s", text, fields(ps), want)
		}
		for _, p := range ps {
			if strings.Contains(p.Message+p.Hint, "hunter2") {
				t.Errorf("a secret is repeated: %s", p.Message)
			}
		}
	}
}

func TestYAMLRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"model: a: b":          "syntax ",
		"a: 1\n---\nb: 2":      "syntax ",
		"":                     "syntax ",
		"? [a]\n: b":           "syntax ",
		"a: &x {b: *x}":        "syntax a.b",
		"model: !!binary aGk=": "syntax model",
		"slo: {ttft_s: 010}":   "number-form slo.ttft_s",
		"slo: {ttft_s: 0x10}":  "number-form slo.ttft_s",
		"slo: {ttft_s: 1_000}": "number-form slo.ttft_s",
		"slo: {ttft_s: .NaN}":  "number-finite slo.ttft_s",
		"slo: {ttft_s: 1e999}": "number-finite slo.ttft_s",
	} {
		_, ps := load(Options{}, "x.yaml", text)
		found := false
		for _, p := range ps {
			found = found || strings.HasPrefix(p.Rule+" "+p.Field, want)
		}
		if !found {
			t.Errorf("%q gives %v, want %s", text, fields(ps), want)
		}
	}
}

func TestAliasBombIsRefused(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		prev := "*a" + string(rune('a'+i-1))
		if i == 1 {
			prev = "*a0"
		}
		b.WriteString("k" + string(rune('a'+i)) + ": &a" + string(rune('a'+i)) + " [" + strings.Repeat(prev+", ", 9) + prev + "]\n")
	}
	_, ps := load(Options{}, "x.yaml", b.String())
	if len(ps) == 0 || ps[0].Rule != "syntax" {
		t.Errorf("got %v", fields(ps))
	}
}

func TestSizeLimit(t *testing.T) {
	_, ps := load(Options{}, "x.json", `{"a":"`+strings.Repeat("x", maxBytes)+`"}`)
	if len(ps) != 1 || ps[0].Rule != "syntax" {
		t.Errorf("got %v", fields(ps))
	}
}

func TestPosition(t *testing.T) {
	doc, ps := load(Options{}, "x.json", small)
	if ps != nil {
		t.Fatal(fields(ps))
	}
	for field, want := range map[string][2]int{
		"engines[1].url": {2, 60}, "slo.tpot_s": {3, 28}, "slo": {3, 7}, "engines[1].role": {2, 43}, "serving.max_attempts": {1, 1}, "": {1, 1},
	} {
		file, line, col := doc.Position(field)
		if file != "x.json" || line != want[0] || col != want[1] {
			t.Errorf("%q is at %s:%d:%d, want %d:%d", field, file, line, col, want[0], want[1])
		}
	}
}

func TestPathRoundTrip(t *testing.T) {
	for _, p := range []trail{
		{key("engines"), at(0), key("url")}, {key("deploy"), key("hosts"), key("a.b c"), key("port")}, {key("x\"]"), at(12)}, {key("")}, nil,
	} {
		got, ok := parsePath(p.String())
		if !ok || got.String() != p.String() || len(got) != len(p) {
			t.Errorf("%s reads back as %s", p, got)
		}
	}
	for _, bad := range []string{"a[", "a[x]", "a[\"x\"", "..", "[-1]"} {
		if _, ok := parsePath(bad); ok {
			t.Errorf("%q is read as a path", bad)
		}
	}
}

func TestReferencesOfTheEnvironment(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "http://a:1/", "SECRET": "http://u:hunter2@a", "NEST": "${A}"}[name]
		return v, ok
	}
	doc, ps := load(Options{Env: env}, "x.json", strings.Replace(small, "http://a:1", "${A}", 1))
	if ps != nil || doc.Fleet.Engines[0].URL != "http://a:1" {
		t.Errorf("%v", fields(ps))
	}
	doc, ps = load(Options{Env: env}, "x.json", strings.Replace(small, "http://a:1", "${SECRET}", 1))
	if ps != nil || len(doc.Warnings) != 1 || strings.Contains(doc.Warnings[0].Message+doc.Warnings[0].Got, "hunter2") {
		t.Errorf("%v", fields(doc.Warnings))
	}
	for _, bad := range []string{"${NEST}", "${MISSING}", "x${A}", "${A}${A}", "${9}"} {
		_, ps := load(Options{Env: env}, "x.json", strings.Replace(small, "http://a:1", bad, 1))
		if rulesOf(ps) != "env-reference engines[0].url" {
			t.Errorf("%s gives %v", bad, fields(ps))
		}
	}
}

// A document for the reference has no key of ours.
func TestForTheReferenceOurKeysAreLeftOut(t *testing.T) {
	text := strings.Replace(small, `"slo"`, `"serving":{"body_memory_bytes":9000000},"slo"`, 1)
	for reference, want := range map[bool]int64{false: 9000000, true: 0} {
		doc, ps := load(Options{Reference: reference}, "x.json", text)
		if ps != nil || doc.Fleet.Serving.BodyMemoryBytes != want {
			t.Fatalf("%v: %v, want %d", reference, fields(ps), want)
		}
		if b, err := json.Marshal(doc.Fleet); err != nil || strings.Contains(string(b), "body_memory_bytes") != (want > 0) {
			t.Errorf("%v: %s, %v", reference, b, err)
		}
	}
}

func TestSLOFloor(t *testing.T) {
	profiles := `{"schema":"narwhal.profiles","schema_version":1,"profiles":[{"iid":"a","ttft_c":2,"tpot_intercept":0.02},{"iid":"b","ttft_c":1.5,"tpot_intercept":0.2}]}`
	read := func(name string) ([]byte, error) {
		if name != "runs/profiles.json" {
			return nil, errors.New("no such file")
		}
		return []byte(profiles), nil
	}
	_, ps := load(Options{Read: read}, "x.json", small)
	if rulesOf(ps) != "slo-floor slo.ttft_s" || ps[0].Line != 3 {
		t.Errorf("got %v", fields(ps))
	}
	if _, ps := load(Options{Read: read}, "x.json", strings.Replace(small, `"ttft_s":1`, `"ttft_s":1.6`, 1)); ps != nil {
		t.Errorf("a limit above one engine's floor is refused: %v", fields(ps))
	}
	profiles = "not JSON"
	if _, ps := load(Options{Read: read}, "x.json", small); ps != nil {
		t.Errorf("a file that is no profile decides: %v", fields(ps))
	}
}

func TestManyFindingsAreBounded(t *testing.T) {
	_, ps := load(Options{}, "x.json", `{"x":[`+strings.Repeat(`NaN,`, 5000)+`1]}`)
	if len(ps) != maxProblems+1 || !strings.Contains(ps[maxProblems].Message, "more findings") {
		t.Errorf("%d problems", len(ps))
	}
}

func TestCancelledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Load(ctx, []Source{{"x.json", []byte(small)}}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"controller", "serving", "engine", "request_timeout_s"}
	for written, want := range map[string]string{"controler": "controller", "Serving": "serving", "egnine": "engine", "timeout_s": "request_timeout_s", "zebra": "", "x": ""} {
		if got := nearest(written, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", written, got, want)
		}
	}
}
