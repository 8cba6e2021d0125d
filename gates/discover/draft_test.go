package discover

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/schema"
)

// parsed loads a draft as narwhal validate does.
func parsed(t *testing.T, d Drafted) *schema.Document {
	t.Helper()
	doc, err := schema.Load(t.Context(), []schema.Source{{Name: "draft.cue", Data: d.Text}}, schema.Options{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, d.Text)
	}
	if n := strings.Count(string(d.Text), "FILL ") + strings.Count(string(d.Text), "FILL\n"); len(d.Fill) == 0 || n < len(d.Fill) {
		t.Errorf("%d marks for %q", n, d.Fill)
	}
	return doc
}

func TestDraft(t *testing.T) {
	w := healthy(t)
	w.fleet.Model, w.fleet.SLO = "tern", fleet.SLO{TTFTS: 1.5, TPOTS: 0.05}
	w.swap(w.host, "h2", "0.0.0.0:22", "0.0.0.0:8100")
	d := Draft(w.view(), "r1")
	f := parsed(t, d).Fleet
	if f.Model != "tern" || f.SLO.TTFTS != 1.5 || f.Hardware.Accelerator != "NVIDIA H100 80GB HBM3" || f.Deploy.Fabric.Interface != "eth1" || f.Deploy.Fabric.Transport != "rdma" {
		t.Errorf("drafted %+v", f)
	}
	var ids []string
	for _, e := range f.Engines {
		ids = append(ids, e.IID+" "+e.URL+" "+e.Role+" "+f.HostOf(e.IID))
	}
	if want := []string{"p0 http://192.0.2.11:8200 prefill h1", "p1 http://192.0.2.11:8101 prefill h1", "d0 http://192.0.2.12:8200 decode h2", "d1 http://192.0.2.12:8101 decode h2"}; !slices.Equal(ids, want) {
		t.Errorf("engines %q", ids)
	}
	if l, _ := f.LaunchOf("d1"); l.Env["CUDA_VISIBLE_DEVICES"] != "1" || !strings.HasPrefix(l.Env["UCX_TLS"], "rc,") || l.ModelDir != "/models/m" || l.Ports.SideChannel != 5601 {
		t.Errorf("launch %+v", l)
	}
	for _, says := range []string{"2 hosts with 4 GPUs, run r1", "GPU 0 (0000:18:00.0) NVIDIA H100 80GB HBM3, NUMA node 0", "driver 550.54.15", "eth1 up, 400000 Mbit/s, MTU 9000: 192.0.2.11/24", "RDMA mlx5_0"} {
		if !strings.Contains(string(d.Text), says) {
			t.Errorf("the draft does not say %q:\n%s", says, d.Text)
		}
	}
	if strings.Contains(string(d.Text), "faults") {
		t.Error("healthy hosts have faults")
	}
}

// TestDraftOfOddities writes files that load, whatever the hosts said.
func TestDraftOfOddities(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		says   string
	}{
		"RDMA": {func(w *world) {
			w.hardware["h2"] = strings.ReplaceAll(w.hardware["h2"], "ACTIVE", "ARMED")
		}, `transport: "tcp"`},
		"AMD": {func(w *world) {
			w.hardware["h1"], w.hardware["h2"] = string(recorded(t, "amd")), string(recorded(t, "amd"))
		}, "HIP_VISIBLE_DEVICES"},
		"no GPU":       {func(w *world) { w.hardware["h1"], w.hardware["h2"] = "== end\n", "== end\n" }, `kind: "simulated"`},
		"two products": {func(w *world) { w.hardware["h1"] = strings.ReplaceAll(w.hardware["h1"], "H100", "H200") }, "different products"},
		"no answers":   {func(w *world) { w.hardware["h1"], w.network["h1"], w.host["h1"] = "", "", "" }, "host-unreadable"},
		"a hostile name": {func(w *world) {
			w.swap(w.host, "h1", "alpha-1", "a\"}\\(x)\n// \x1b[2J#\"\"#")
			w.hardware["h1"] = strings.ReplaceAll(w.hardware["h1"], "NVIDIA H100 80GB HBM3", `x\(deploy)"}`)
			w.hardware["h2"] = w.hardware["h1"]
		}, "x\\"},
		"other links": {func(w *world) { w.network["h1"] = strings.ReplaceAll(w.network["h1"], "eth", "eno") }, "No interface of one name"},
		"a fault":     {func(w *world) { w.swap(w.hardware, "h1", "550.54.15, Enabled", "550.54.15, Disabled") }, "gpu-persistence"},
	} {
		w := healthy(t)
		c.change(w)
		w.fleet.Model, w.fleet.SLO = "tern", fleet.SLO{TTFTS: 1, TPOTS: 1}
		d := Draft(w.view(), "r")
		parsed(t, d)
		if !strings.Contains(string(d.Text), c.says) {
			t.Errorf("%s: the draft does not say %q:\n%s", name, c.says, d.Text)
		}
	}
}

// TestSkeleton completes files that name hosts alone, so that they can be discovered.
func TestSkeleton(t *testing.T) {
	for name, c := range map[string]struct {
		file, in string
		engines  int
		fails    bool
	}{
		"JSON":          {"f.json", `{"deploy":{"hosts":{"a":{"address":"192.0.2.1"},"b":{},"gate":{},"c":{"jump":"gate"}}}}`, 3, false},
		"CUE":           {"f.cue", `deploy: hosts: a: {address: "192.0.2.1"}`, 1, false},
		"YAML":          {"f.yaml", "model: tern\ndeploy:\n  name: x\n  hosts:\n    a: {address: 192.0.2.1}\n", 1, false},
		"no host":       {"f.json", `{"deploy":{}}`, 0, true},
		"nothing":       {"f.json", `{}`, 0, true},
		"no JSON":       {"f.json", `{`, 0, true},
		"hosts as text": {"f.json", `{"deploy":{"hosts":"a"}}`, 0, true},
	} {
		srcs := []schema.Source{{Name: c.file, Data: []byte(c.in)}}
		more, err := schema.Skeleton(t.Context(), srcs)
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		doc, err := schema.Load(t.Context(), append(srcs, schema.Source{Name: "skeleton.json", Data: more}), schema.Options{})
		if err != nil || len(doc.Fleet.Engines) != c.engines {
			t.Errorf("%s: %v with %s", name, err, more)
		}
	}
	full, err := json.Marshal(testFleet())
	if err != nil {
		t.Fatal(err)
	}
	if more, err := schema.Skeleton(t.Context(), []schema.Source{{Name: "f.json", Data: full}}); err != nil || strings.Contains(string(more), "engines") {
		t.Errorf("a whole fleet gets %s, %v", more, err)
	}
}
