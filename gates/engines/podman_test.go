package engines

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// pod is a machine with podman, the narwhal binary and an image that holds nothing else.
type pod struct {
	t     *testing.T
	root  string
	image string
	f     fleet.Fleet
}

// needPodman skips where no container can be run; with NARWHAL_REQUIRE_PODMAN set that fails.
func needPodman(t *testing.T) {
	t.Helper()
	for _, program := range []string{"podman", "runc"} {
		if _, err := exec.LookPath(program); err != nil || os.Getuid() != 0 {
			if os.Getenv("NARWHAL_REQUIRE_PODMAN") != "" {
				t.Fatalf("%s and root are required here: %v", program, err)
			}
			t.Skip("needs podman, runc and root; NARWHAL_REQUIRE_PODMAN makes that a failure")
		}
	}
}

// newPod builds the binary, keeps podman's storage to the test, and imports the image.
func newPod(t *testing.T) *pod {
	t.Helper()
	needPodman(t)
	p := &pod{t: t, root: t.TempDir()}
	bin := filepath.Join(p.root, gates.LinkCurrent, "narwhal")
	build := exec.Command("go", "build", "-o", bin, "github.com/narwhal-fleet/narwhal/cmd/narwhal")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	// Where the test runs, a container may not raise limits above those of its parent.
	p.setting("CONTAINERS_CONF", "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n[engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\nevents_logger = \"file\"\n")
	p.setting("CONTAINERS_STORAGE_CONF", fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", filepath.Join(p.root, "graph"), filepath.Join(p.root, "lock")))
	b, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"proc/", "dev/", "sys/", "tmp/", "etc/"} {
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "narwhal", Mode: 0o755, Size: int64(len(b))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	load := exec.Command("podman", "import", "-", "local/narwhal-test")
	load.Stdin = &layer
	if out, err := load.Output(); err != nil {
		t.Fatalf("import: %v", err)
	} else {
		p.image = imageID(strings.TrimPrefix(strings.TrimSpace(string(out)), "sha256:"))
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rm", "--all", "--force").Run() })
	p.f = p.fleet()
	return p
}

func (p *pod) setting(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.root, strings.ToLower(name))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.t.Setenv(name, path)
}

// fleet is one engine in a container, which reads a model folder.
func (p *pod) fleet() fleet.Fleet {
	p.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		p.t.Fatal(err)
	}
	model := filepath.Join(p.root, "model")
	if err := os.Mkdir(model, 0o755); err != nil {
		p.t.Fatal(err)
	}
	c := fleet.DefaultContainer()
	c.Init, c.Memlock = false, fleet.MemlockInherit
	params, err := json.Marshal(fleet.Simulated{BlockSize: 16, Blocks: 400, MaxModelLen: 2048, MaxNumSeqs: 8, MaxBatched: 2048, Layers: 2, KVHeads: 2, HeadSize: 32, ElementBytes: 2, EngineVersion: "0.32.0"})
	if err != nil {
		p.t.Fatal(err)
	}
	return fleet.Fleet{
		Model: "tiny", Engines: []fleet.Engine{{IID: "c0", URL: "http://" + address}},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{"h": {Root: p.root}}, Engines: map[string]fleet.Place{"c0": {Host: "h", Launch: "l"}},
			Launch: map[string]fleet.Launch{"l": {
				Kind: fleet.LaunchContainer, Runtime: "podman", Image: p.image, ModelDir: model, Container: &c, Within: fleet.Duration(20 * time.Second), StopAfter: fleet.Duration(10 * time.Second),
				Env:  map[string]string{"CONTAINERS_CONF": os.Getenv("CONTAINERS_CONF"), "CONTAINERS_STORAGE_CONF": os.Getenv("CONTAINERS_STORAGE_CONF")},
				Argv: []string{"/narwhal", "engine", "simulated", "--listen", "{listen}:{port}", "--side-channel", "0", "--model", "{model}", "--params", string(params)},
			}},
			Router: fleet.Router{Host: "h"},
		},
	}
}

// launchWith changes the engine's launch.
func (p *pod) launchWith(change func(*fleet.Launch)) {
	l := p.f.Deploy.Launch["l"]
	change(&l)
	p.f.Deploy.Launch["l"] = l
}

// do runs one command of a plan on this machine, as SSH would.
func (p *pod) do(argv []string) ([]byte, error) {
	p.t.Helper()
	cmd := exec.CommandContext(limited(p.t), argv[0], argv[1:]...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return out, err
}

var order = []string{"ports", "launch", "live", "listener", "container", "cache"}

// gate runs the plan's steps until one fails or halts, and judges.
func (p *pod) gate() (findings []record.Finding, evidence map[record.Key]any) {
	p.t.Helper()
	steps := forecast(p.t, p.f)
	evidence = map[record.Key]any{}
	for _, kind := range order {
		s, ok := steps["C/"+kind+"/c0"]
		if !ok {
			p.t.Fatalf("no step for %s", kind)
		}
		out, err := p.do(s.Argv)
		if err != nil {
			p.t.Fatalf("%s: %v", s.ID, err)
		}
		evidence[s.Yields] = out
		if (Gate{}).Halts(s.Yields, out) != "" {
			break
		}
	}
	return Gate{}.Judge(view(p.t, p.f, evidence)), evidence
}

func (p *pod) stop() {
	p.t.Helper()
	if _, err := p.do(forecast(p.t, p.f)["C/launch/c0"].Undo.Argv); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) containers() string {
	p.t.Helper()
	out, err := p.do([]string{"podman", "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}"})
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestPodman launches, proves, adopts, replaces and stops an engine in a real container.
func TestPodman(t *testing.T) {
	p := newPod(t)
	findings, evidence := p.gate()
	if len(findings) != 0 {
		t.Fatalf("found %+v", findings)
	}
	var c Container
	var heard Listener
	decode := func(k record.Key, v any) {
		t.Helper()
		if err := json.Unmarshal(evidence[k].([]byte), v); err != nil {
			t.Fatal(err)
		}
	}
	decode(containerKey("c0"), &c)
	decode(listenerKey("c0"), &heard)
	if c.Image != p.image || !c.Running || c.PID < 2 || !strings.Contains(p.containers(), c.ID) {
		t.Errorf("container %+v", c)
	}
	if len(heard.Sockets) != 1 || heard.Sockets[0].By != byHolder || heard.Sockets[0].PID != c.PID {
		t.Errorf("listener %+v, container's process %d", heard, c.PID)
	}

	t.Run("adopted", func(t *testing.T) {
		if findings, _ := p.gate(); len(findings) != 0 || !strings.Contains(p.containers(), c.ID) {
			t.Errorf("found %+v, containers %s", findings, p.containers())
		}
	})
	t.Run("its client is gone", func(t *testing.T) {
		r, ok := process.Read(filepath.Join(p.root, gates.DirRun), "engine-c0")
		if !ok {
			t.Fatal("no record")
		}
		if err := syscall.Kill(-r.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := exec.CommandContext(limited(t), "tail", "--pid", strconv.Itoa(r.PID), "-f", "/dev/null").Run(); err != nil || r.Alive() {
			t.Fatalf("the client survives: %v", err)
		}
		// The container still holds the port, as nobody's that is known.
		steps := forecast(t, p.f)
		out, err := p.do(steps["C/ports/c0"].Argv)
		if err != nil || (Gate{}).Halts(portsKey("c0"), out) == "" {
			t.Errorf("ports: %s, %v", out, err)
		}
		// A launch takes it away first.
		if _, err := p.do(steps["C/launch/c0"].Argv); err != nil {
			t.Fatal(err)
		}
		if out, err := p.do(steps["C/live/c0"].Argv); err != nil || !bytes.Contains(out, []byte(`"ready":true`)) {
			t.Errorf("live: %s, %v", out, err)
		}
		if all := p.containers(); strings.Contains(all, c.ID) || strings.Count(all, "narwhal-tern-c0") != 1 {
			t.Errorf("containers %s", all)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		p.stop()
		if all := p.containers(); all != "" {
			t.Errorf("containers %s", all)
		}
	})
	t.Run("a container of that name is somebody else's", func(t *testing.T) {
		if _, err := p.do([]string{"podman", "create", "--name", "narwhal-tern-c0", p.image, "/narwhal"}); err != nil {
			t.Fatal(err)
		}
		_, err := p.do(forecast(t, p.f)["C/launch/c0"].Argv)
		if err == nil || !strings.Contains(err.Error(), "it is not narwhal's") || !strings.Contains(p.containers(), "narwhal-tern-c0") {
			t.Errorf("launched over it: %v, %s", err, p.containers())
		}
		if _, err := p.do([]string{"podman", "rm", "narwhal-tern-c0"}); err != nil {
			t.Fatal(err)
		}
	})
	for name, c := range map[string]struct {
		change func(*fleet.Launch)
		want   string
	}{
		"an image that is not there":  {func(l *fleet.Launch) { l.Image = "sha256:" + strings.Repeat("0", 64) }, "image-missing"},
		"a program that is not there": {func(l *fleet.Launch) { l.Argv = []string{"vllm", "serve"} }, "program-missing"},
		"a device that is not there":  {func(l *fleet.Launch) { d := *l.Container; d.Devices = []string{"/dev/narwhal-none"}; l.Container = &d }, "file-missing"},
		"an argument that is unknown": {func(l *fleet.Launch) { l.Argv = append([]string{}, "/narwhal", "engine", "simulated", "--no-such") }, "engine-not-ready"},
	} {
		t.Run(name, func(t *testing.T) {
			was := p.f.Deploy.Launch["l"]
			p.launchWith(c.change)
			begin := time.Now()
			findings, _ := p.gate()
			if len(findings) != 1 || findings[0].Code != c.want {
				t.Errorf("found %+v, want %s", findings, c.want)
			}
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("it took %s", took)
			}
			p.stop()
			p.f.Deploy.Launch["l"] = was
		})
	}
}
