package engines

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/simulatedtest"
)

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// boot starts a simulated engine in this process.
func boot(t *testing.T, change func(*simulated.Config)) *simulated.Server {
	t.Helper()
	cfg := simulated.Config{Model: "tiny", Simulated: fleet.Simulated{BlockSize: 16, Blocks: 400, MaxModelLen: 2048, MaxNumSeqs: 8, MaxBatched: 2048}}
	return simulatedtest.Start(t, cfg, change)
}

// recorded writes a process record as gate C's launch leaves it. The engine runs in this
// process, which therefore is the recorded one.
func recorded(t *testing.T, change func(*process.Record)) (root string) {
	t.Helper()
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	run := filepath.Join(root, gates.DirRun)
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	r := process.Record{Spec: process.Spec{Name: "engine-e", Launch: "l1"}, Identity: self, Started: time.Now(), Log: filepath.Join(run, "engine-e.log")}
	if change != nil {
		change(&r)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "engine-e.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.Log, []byte("loading\nRuntimeError: CUDA out of memory\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func dead(r *process.Record) { r.StartTicks-- }

func TestPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	freeAddr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	listen := []string{l.Addr().String(), freeAddr}
	for name, c := range map[string]struct {
		root  string
		taken int
		ours  bool
	}{
		"somebody else's":               {t.TempDir(), 1, false},
		"somebody else's, ours is dead": {recorded(t, dead), 1, false},
		"our own":                       {recorded(t, nil), 0, true},
	} {
		got, err := ports(limited(t), PortsRequest{Root: c.root, Name: "engine-e", Listen: listen})
		if err != nil || len(got.Taken) != c.taken || got.Ours != c.ours || len(got.Checked) != 2 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if c.taken == 1 && (got.Taken[0].Address != listen[0] || !strings.Contains(got.Taken[0].Why, "in use")) {
			t.Errorf("%s: taken %+v", name, got.Taken)
		}
	}
	// What was checked is free again.
	again, err := net.Listen("tcp", freeAddr)
	if err != nil {
		t.Errorf("the check holds on to %s: %v", freeAddr, err)
	} else {
		_ = again.Close()
	}
	got, err := ports(limited(t), PortsRequest{Root: t.TempDir(), Name: "e", Listen: []string{"192.0.2.77:80"}})
	if err != nil || len(got.Taken) != 1 {
		t.Errorf("an address of another machine: %+v, %v", got, err)
	}
}

func TestLive(t *testing.T) {
	s := boot(t, nil)
	root := recorded(t, nil)
	got, err := live(limited(t), LiveRequest{Root: root, Name: "engine-e", URL: s.URL(), Model: "tiny", Within: fleet.Duration(10 * time.Second)})
	if err != nil || !got.Ready || got.Reason != "" || got.Log != "" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got.Launch != "l1" || got.PID != os.Getpid() || got.Version != "0.32.0" || len(got.ProbeTokens) != probeTokens || got.ProbeText == "" || got.ProcessStart <= 0 {
		t.Errorf("got %+v", got)
	}
	// An engine of the same name says the same.
	other := boot(t, nil)
	again, err := live(limited(t), LiveRequest{Root: root, Name: "engine-e", URL: other.URL(), Model: "tiny", Within: fleet.Duration(10 * time.Second)})
	if err != nil || again.ProbeText != got.ProbeText {
		t.Errorf("another engine says %q, this one %q (%v)", again.ProbeText, got.ProbeText, err)
	}
}

func TestLiveNever(t *testing.T) {
	s := boot(t, nil)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := "http://" + nobody.Addr().String()
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	paused := boot(t, nil)
	broken := boot(t, nil)
	if err := broken.Inject(simulated.Injection{Kind: "busy", Count: -1}); err != nil {
		t.Fatal(err)
	}
	if err := paused.Inject(simulated.Injection{Kind: "refuse"}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url    string
		model  string
		root   string
		reason string
		models int
	}{
		"nothing listens":                          {nowhere, "tiny", recorded(t, nil), "not ready within", 0},
		"its port is closed":                       {paused.URL(), "tiny", recorded(t, nil), "not ready within", 0},
		"it refuses requests":                      {broken.URL(), "tiny", recorded(t, nil), "not ready within", 1},
		"its process is dead":                      {nowhere, "tiny", recorded(t, dead), "the process has ended", 0},
		"somebody else answers for a dead process": {s.URL(), "tiny", recorded(t, dead), "the process has ended", 0},
		"nothing was launched":                     {s.URL(), "tiny", t.TempDir(), "the process has ended", 0},
		"another model":                            {s.URL(), "other", recorded(t, nil), "it serves tiny, not other", 1},
	} {
		begin := time.Now()
		within := fleet.Duration(200 * time.Millisecond)
		if name == "another model" {
			within = fleet.Duration(time.Hour) // waiting does not help
		}
		got, err := live(limited(t), LiveRequest{Root: c.root, Name: "engine-e", URL: c.url, Model: c.model, Within: within})
		if err != nil || got.Ready || !strings.HasPrefix(got.Reason, c.reason) || len(got.Models) != c.models {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if name != "nothing was launched" && !strings.Contains(got.Log, "out of memory") {
			t.Errorf("%s: log %q", name, got.Log)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
}

func TestLiveEndsWithItsContext(t *testing.T) {
	s := boot(t, nil)
	if err := s.Inject(simulated.Injection{Kind: "hang"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := live(ctx, LiveRequest{Root: recorded(t, nil), Name: "engine-e", URL: s.URL(), Model: "tiny", Within: fleet.Duration(time.Hour)}); err == nil {
		t.Error("it went on")
	}
}

func TestLiveRefusesURLs(t *testing.T) {
	for _, u := range []string{"", "ftp://x", "http://user:secret@127.0.0.1:1"} {
		_, err := live(limited(t), LiveRequest{Root: t.TempDir(), Name: "e", URL: u})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", u, err)
		}
	}
}

func TestCache(t *testing.T) {
	s := boot(t, func(c *simulated.Config) { c.Layers, c.KVHeads, c.HeadSize, c.ElementBytes = 4, 2, 64, 2 })
	g := &engine.Geometry{Layers: 1, KVHeads: 1, HeadSize: 1, ElementBytes: 1}
	got, err := cache(limited(t), CacheRequest{URL: s.URL(), Geometry: g})
	want := engine.Geometry{Layers: 4, KVHeads: 2, HeadSize: 64, ElementBytes: 2}
	if err != nil || got.BlockSize != 16 || got.Blocks != 400 || got.Geometry == nil || *got.Geometry != want || got.BytesPerBlock != 2*4*2*64*2*16 {
		t.Errorf("got %+v (%+v), %v; want what the engine says, not the contract", got, got.Geometry, err)
	}
}

// TestCacheOfARealEngine has one that tells blocks but no geometry, as vLLM does on a GPU.
func TestCacheOfARealEngine(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",num_gpu_blocks=\"900\"} 1.0\n"))
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	defer func() { _ = srv.Close(); <-done }()
	url := "http://" + l.Addr().String()
	got, err := cache(limited(t), CacheRequest{URL: url})
	if err != nil || got.BytesPerBlock != 0 || got.Geometry != nil {
		t.Errorf("without a contract: %+v, %v", got, err)
	}
	g := geometryOf(&fleet.Contract{HiddenLayers: 32, KVHeads: 8, HeadSize: 128, ModelDtype: "bfloat16", KVCacheDtype: "auto"})
	got, err = cache(limited(t), CacheRequest{URL: url, Geometry: g})
	if err != nil || got.BytesPerBlock != 2*32*8*128*2*16 || got.Source != sourceContract {
		t.Errorf("with a contract: %+v, %v", got, err)
	}
}

func TestGeometryOf(t *testing.T) {
	full := fleet.Contract{HiddenLayers: 32, KVHeads: 8, HeadSize: 128, ModelDtype: "bfloat16", KVCacheDtype: "auto"}
	for name, c := range map[string]struct {
		change func(*fleet.Contract)
		bytes  int // of an element, 0 = no geometry
	}{
		"auto is the model's": {func(*fleet.Contract) {}, 2},
		"none is the model's": {func(c *fleet.Contract) { c.KVCacheDtype, c.ModelDtype = "", "torch.float16" }, 2},
		"fp8":                 {func(c *fleet.Contract) { c.KVCacheDtype = "fp8_e4m3" }, 1},
		"float32":             {func(c *fleet.Contract) { c.ModelDtype = "float32" }, 4},
		"an unknown dtype":    {func(c *fleet.Contract) { c.KVCacheDtype = "nvfp4" }, 0},
		"no layers":           {func(c *fleet.Contract) { c.HiddenLayers = 0 }, 0},
		"no heads":            {func(c *fleet.Contract) { c.KVHeads = 0 }, 0},
		"no head size":        {func(c *fleet.Contract) { c.HeadSize = 0 }, 0},
	} {
		k := full
		c.change(&k)
		g := geometryOf(&k)
		if (g != nil) != (c.bytes > 0) || g != nil && g.ElementBytes != c.bytes {
			t.Errorf("%s: %+v, want %d bytes", name, g, c.bytes)
		}
	}
	if geometryOf(nil) != nil {
		t.Error("no contract has a geometry")
	}
}

func TestVerbNames(t *testing.T) {
	for _, name := range []string{"ports", "engine-live", "engine-cache"} {
		v := HostVerbs()[name]
		if v == nil {
			t.Errorf("no verb %s", name)
			continue
		}
		if _, err := v(limited(t), json.RawMessage(`"x"`)); err == nil {
			t.Errorf("%s read a text", name)
		}
	}
}

// TestLiveOfSomebodyElse has a launched process that dies, as one does whose port is taken,
// while another process answers on its address.
func TestLiveOfSomebodyElse(t *testing.T) {
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	die := sync.OnceFunc(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	t.Cleanup(die)
	id, ok := process.Of(child.Process.Pid)
	if !ok {
		t.Fatal("no identity")
	}
	answers := map[string]string{
		"/health": "", "/version": `{"version":"1"}`, "/metrics": "process_start_time_seconds 1.0\n", "/v1/models": `{"data":[{"id":"tiny"}]}`,
		"/v1/completions": `{"choices":[{"text":"x","token_ids":[1]}]}`,
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" {
			die()
		}
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	defer func() { _ = srv.Close(); <-done }()
	root := recorded(t, func(r *process.Record) { r.Identity = id })
	got, err := live(limited(t), LiveRequest{Root: root, Name: "engine-e", URL: "http://" + l.Addr().String(), Model: "tiny", Within: fleet.Duration(10 * time.Second)})
	if err != nil || got.Ready || got.Reason != "another process answers on its address" {
		t.Errorf("got %+v, %v", got, err)
	}
}
