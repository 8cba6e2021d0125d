package schema

import (
	"os"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// provoking holds documents for rules that no file of testdata breaks.
var provoking = map[string][]string{
	"number-form":         {"x.yaml", "slo: {ttft_s: 010}"},
	"conflict":            {"a.json", `{"model":"a"}`, "b.json", `{"model":"b"}`},
	"incomplete":          {"x.cue", "model: string"},
	"import":              {"x.cue", "import \"example.com/x\"\nmodel: x.y"},
	"cue-bounds":          {"x.cue", "import \"strings\"\nmodel: strings.Repeat(\"x\", 10)"},
	"hardware-shards":     {"x.json", strings.Replace(small, `"model"`, `"hardware":{"accelerator":"a","accelerators_per_engine":1,"tensor_parallel":2},"model"`, 1)},
	"shared-group-size":   {"x.json", strings.Replace(small, `"iid":"a"`, `"iid":"a","shared_device":{"group":"g","gpu_uuid":"u","device_allowance":1,"gpu_memory_utilization":1}`, 1)},
	"margin-covers-fit":   {"x.json", strings.Replace(small, `"model"`, `"profiles":{"max_decode_fit_mape":0.06},"model"`, 1)},
	"number-reach":        {"x.json", strings.Replace(small, `"model"`, `"controller":{"monitor_interval_s":1e-9},"model"`, 1)},
	"graceful-whole":      {"x.json", strings.Replace(small, `"model"`, `"serving":{"graceful_timeout_s":1.5},"model"`, 1)},
	"key-variable":        {"x.json", strings.Replace(small, `"model"`, `"engine":{"engine_api_key_env":"sk-hunter2"},"model"`, 1)},
	"liveness-negative":   {"x.json", strings.Replace(small, `"model"`, `"recovery":{"liveness_every":-1},"model"`, 1)},
	"roles-one-sided":     {"x.json", strings.ReplaceAll(small, `"iid"`, `"role":"prefill","iid"`)},
	"pins-breach-floor":   {"x.json", strings.ReplaceAll(small, `"iid"`, `"pin":true,"iid"`)},
	"engine-url-unique":   {"x.json", strings.Replace(small, "http://b:1", "http://a:1", 1)},
	"health-order":        {"x.json", strings.Replace(small, `"model"`, `"recovery":{"health":{"evict_windows":2}},"model"`, 1)},
	"shared-group-sum":    {"x.json", shared(`"gpu_uuid":"u","device_allowance":0.5,"gpu_memory_utilization":0.3`, `"gpu_uuid":"u","device_allowance":0.5,"gpu_memory_utilization":0.3`)},
	"shared-group-device": {"x.json", shared(`"gpu_uuid":"u","device_allowance":0.5,"gpu_memory_utilization":0.1`, `"gpu_uuid":"v","device_allowance":0.5,"gpu_memory_utilization":0.1`)},
}

// shared puts the two engines of small into one group.
func shared(a, b string) string {
	s := strings.Replace(small, `"iid":"a"`, `"iid":"a","shared_device":{"group":"g",`+a+`}`, 1)
	return strings.Replace(s, `"iid":"b"`, `"iid":"b","shared_device":{"group":"g",`+b+`}`, 1)
}

// unprovoked are rules that stand for what the definitions or the machine may do:
// shape is CUE's verdict where explain is silent, the others need files (see load_test.go).
var unprovoked = []string{"shape", "calibration-missing", "slo-floor"}

func TestEveryRuleIsProvoked(t *testing.T) {
	seen := map[string]bool{}
	note := func(doc *Document, err error) {
		for _, p := range problem.All(err) {
			seen[p.Rule] = true
		}
		if doc != nil {
			for _, p := range doc.Warnings {
				seen[p.Rule] = true
			}
		}
	}
	env := corpusEnv(t)
	for _, d := range corpus(t) {
		note(loadFile(t, "testdata/fleets/"+d.file, Options{Env: env}))
	}
	for _, kind := range []string{"invalid", "warned"} {
		for _, file := range deployFiles(t, kind) {
			note(loadFile(t, file, Options{}))
		}
	}
	for rule, srcs := range provoking {
		doc, ps := load(Options{}, srcs...)
		found := false
		if doc != nil {
			ps = doc.Warnings
		}
		for _, p := range ps {
			found = found || p.Rule == rule
			if strings.Contains(p.Message+p.Got+p.Hint, "hunter2") {
				t.Errorf("a secret is repeated: %s", p.Message)
			}
		}
		if !found {
			t.Errorf("%s is not provoked: %v", rule, fields(ps))
		}
		seen[rule] = true
	}
	for _, r := range Rules {
		if !seen[r.ID] && !contains(unprovoked, r.ID) {
			t.Errorf("no test breaks the rule %s", r.ID)
		}
	}
}

func TestCalibrationIsANote(t *testing.T) {
	text := strings.Replace(small, `"model"`, `"engine":{"first_token_calibration_path":"runs/c.json"},"model"`, 1)
	read := func(string) ([]byte, error) { return nil, os.ErrNotExist }
	doc, ps := load(Options{Strict: true, Read: read}, "x.json", text)
	if ps != nil || len(doc.Warnings) != 1 || doc.Warnings[0].Rule != "calibration-missing" {
		t.Errorf("got %v", fields(ps))
	}
}
