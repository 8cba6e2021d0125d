package realengines

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/freeport"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// Environment of the tests, set by make real-engines.
const (
	EnvFolder = "NARWHAL_REAL_ENGINES" // of the virtual environment
	EnvModel  = "NARWHAL_REAL_MODEL"   // of the model that model.py wrote
)

// Model is the served name.
const Model = "tiny"

// Ready bounds the start of an engine: most of it are imports.
const Ready = 6 * time.Minute

// Engine is one process.
type Engine struct {
	URL  string
	args []string
	env  []string
	cmd  *exec.Cmd
	log  string
}

// New describes an engine; side false leaves the connector out. Nothing runs yet.
func New(tb testing.TB, side bool, extra ...string) *Engine {
	tb.Helper()
	need(tb)
	port := freePort(tb)
	e := &Engine{URL: "http://127.0.0.1:" + strconv.Itoa(port), log: filepath.Join(tb.TempDir(), "engine.log")}
	e.args = append([]string{"-m", module, "--model", os.Getenv(EnvModel), "--served-model-name", Model, "--host", "127.0.0.1", "--port", strconv.Itoa(port),
		"--dtype", "bfloat16", "--block-size", "32"}, arguments()...)
	e.args = append(e.args, extra...)
	e.env = append(os.Environ(), "UCX_TLS=tcp,self,sm")
	for name, value := range variables() {
		e.env = append(e.env, name+"="+value)
	}
	if side {
		e.args = append(e.args, "--kv-transfer-config", `{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_buffer_device":"cpu","kv_load_failure_policy":"fail"}`)
		e.env = append(e.env, "VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT="+strconv.Itoa(freePort(tb)))
	}
	return e
}

// need skips a test that no engine was installed for.
func need(tb testing.TB) {
	tb.Helper()
	if os.Getenv(EnvFolder) == "" || os.Getenv(EnvModel) == "" {
		tb.Skipf("%s and %s name no engine; run make real-engines", EnvFolder, EnvModel)
	}
}

const module = "vllm.entrypoints.openai.api_server"

// arguments are those of every engine, beside addresses, model and cache.
func arguments() []string {
	return []string{"--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "16", "--generation-config", "vllm", "--enable-prompt-tokens-details", "--api-server-count", "1"}
}

// variables keep an engine offline, small and on one thread.
func variables() map[string]string {
	return map[string]string{"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1",
		"PATH": filepath.Join(os.Getenv(EnvFolder), "bin") + ":" + os.Getenv("PATH")}
}

// freePort returns a port that an engine binds most of a minute later.
func freePort(tb testing.TB) int {
	tb.Helper()
	ports, err := freeport.Draw(1)
	if err != nil {
		tb.Fatal(err)
	}
	return ports[0]
}

// Start runs the engine in a process group of its own, which ends with the test.
func (e *Engine) Start(tb testing.TB) {
	tb.Helper()
	out, err := os.OpenFile(e.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer out.Close()
	e.cmd = exec.Command(filepath.Join(os.Getenv(EnvFolder), "bin", "python"), e.args...)
	e.cmd.Env, e.cmd.Stdout, e.cmd.Stderr = e.env, out, out
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.Kill)
}

// Kill ends the whole group at once and waits for it.
func (e *Engine) Kill() {
	if e.cmd == nil {
		return
	}
	_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL)
	_ = e.cmd.Wait()
	e.cmd = nil
}

// Await waits for one generated token: a port that answers probes is not enough.
func (e *Engine) Await(tb testing.TB) *engine.Client {
	tb.Helper()
	c, err := engine.NewClient(e.URL, engine.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(tb.Context(), Ready)
	defer cancel()
	for {
		try, end := context.WithTimeout(ctx, time.Minute)
		_, err := c.Complete(try, engine.CompletionRequest{Model: Model, Prompt: "warm", MaxTokens: 1})
		end()
		if err == nil {
			return c
		}
		pause := time.NewTimer(time.Second)
		select {
		case <-pause.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(e.log)
			tb.Fatalf("engine did not get ready: %v\n%s", err, tail(log))
		}
	}
}

func tail(b []byte) string { return string(b[max(0, len(b)-4000):]) }
