package look

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// host is a made-up /proc and /sys.
type host struct {
	t *testing.T
	roots
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{t, roots{proc: filepath.Join(dir, "proc"), sys: filepath.Join(dir, "sys")}}
	h.write(filepath.Join(h.proc, "uptime"), "1000.00 1.0\n")
	return h
}

func (h *host) write(path, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) link(path, to string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		h.t.Fatal(err)
	}
}

// process makes a process with a parent and what it has open.
func (h *host) process(pid, parent int, ticks int64, open ...string) {
	h.t.Helper()
	h.write(h.of(pid, "stat"), fmt.Sprintf("%d (a) b) S %d%s %d 0", pid, parent, strings.Repeat(" 1", 17), ticks))
	h.write(h.of(pid, "cgroup"), "0::/user.slice/x.scope\n")
	h.write(h.of(pid, "cmdline"), "vllm\x00serve\x00m\x00")
	h.write(h.of(pid, "environ"), "A=b\x00")
	h.write(h.of(pid, "maps"), "7f00-7f01 r-xp 0 00:00 1   /usr/lib/libc.so.6\n7f02-7f03 rw-p 0 00:00 0\n")
	h.write(h.of(pid, "net/tcp"), "  sl  local_address rem_address st\n")
	for i, to := range open {
		h.link(h.of(pid, "fd/"+strconv.Itoa(i+3)), to)
	}
	if err := os.MkdirAll(h.of(pid, "fd"), 0o700); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) look(w Watch) Observed {
	h.t.Helper()
	o, err := newObserver(w, false, h.roots).Look(h.t.Context(), 10, 500)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := o.Check(); err != nil {
		h.t.Fatal(err)
	}
	return o
}

const nvidiaInformation = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 214\nGPU UUID: \t GPU-%s\nVideo BIOS: \t 96.00.89.00.01\nBus Type: \t PCIe\nDevice Minor: \t %d\nGPU Excluded:\t No\n"

func TestLook(t *testing.T) {
	idA, idB := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for name, c := range map[string]struct {
		make  func(h *host)
		watch Watch
		of    string
		want  Seen
	}{
		"no container":              {func(*host) {}, Watch{}, Container, seen(None)},
		"docker, control groups v2": {func(h *host) { h.write(h.of(10, "cgroup"), "0::/system.slice/docker-"+idA+".scope\n") }, Watch{}, Container, seen(idA)},
		"kubernetes, v1":            {func(h *host) { h.write(h.of(10, "cgroup"), "12:pids:/kubepods/pod1/"+idB+"\n11:x:/\n") }, Watch{}, Container, seen(idB)},
		"groups not readable":       {func(h *host) { _ = os.Remove(h.of(10, "cgroup")) }, Watch{}, Container, unknown("read control groups: no such file or directory")},
		"no GPU":                    {func(*host) {}, Watch{}, GPUs, seen(None)},
		"NVIDIA in a child": {func(h *host) {
			h.process(11, 10, 501, "/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia3", "/dev/nvidia-uvm")
			h.write(filepath.Join(h.proc, "driver/nvidia/gpus/0000:1b:00.0/information"), fmt.Sprintf(nvidiaInformation, "one", 3))
			h.write(filepath.Join(h.proc, "driver/nvidia/gpus/0000:2b:00.0/information"), fmt.Sprintf(nvidiaInformation, "two", 4))
		}, Watch{}, GPUs, seen("GPU-one")},
		"NVIDIA of somebody else": {func(h *host) {
			h.process(12, 1, 501, "/dev/nvidia3")
		}, Watch{}, GPUs, seen(None)},
		"NVIDIA without its driver's files": {func(h *host) { h.process(11, 10, 501, "/dev/nvidia0") }, Watch{}, GPUs, unknown("read the NVIDIA driver's files: no such file or directory")},
		"NVIDIA that the driver hides": {func(h *host) {
			h.process(11, 10, 501, "/dev/nvidia0")
			h.write(filepath.Join(h.proc, "driver/nvidia/gpus/x/information"), "GPU UUID: GPU-????????\nDevice Minor: 0\n")
		}, Watch{}, GPUs, unknown("the driver names no device with minor 0")},
		"a slice": {func(h *host) {
			h.process(11, 10, 501, "/dev/nvidia-caps/nvidia-cap21")
			h.write(h.of(11, "environ"), "CUDA_VISIBLE_DEVICES=MIG-1,MIG-2\x00X=1\x00")
		}, Watch{}, GPUs, seen("MIG-1", "MIG-2")},
		"AMD": {func(h *host) {
			h.process(11, 10, 501, "/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129")
			h.write(filepath.Join(h.sys, "class/drm/renderD128/device/unique_id"), "0x1a2b\n")
			h.link(filepath.Join(h.sys, "class/drm/renderD129/device"), "../../../0000:c1:00.0")
		}, Watch{}, GPUs, seen("GPU-0x1a2b", "pci:0000:c1:00.0")},
		"a display":             {func(h *host) { h.process(11, 10, 501, "/dev/dri/renderD128") }, Watch{}, GPUs, seen(None)},
		"no address":            {func(*host) {}, Watch{}, Listener, unknown("no address to look for")},
		"an address to nowhere": {func(*host) {}, Watch{Engine: "http://h"}, Listener, unknown("the engine's address names no port")},
		"nobody listens":        {func(*host) {}, Watch{Engine: "http://h:8100"}, Listener, unknown("no socket of the process's network listens on port 8100")},
		"a child listens": {func(h *host) {
			h.process(11, 10, 501, "socket:[77]")
			h.write(h.of(10, "net/tcp6"), "  sl x\n 0: 00000000000000000000000000000000:1FA4 0:0 0A 0:0 0:0 0 0 0 77 1\n")
		}, Watch{Engine: "http://h:8100"}, Listener, seen(Own)},
		"somebody else listens": {func(h *host) {
			h.process(12, 1, 501, "socket:[77]")
			h.write(h.of(10, "net/tcp"), "  sl x\n 0: 00000000:1FA4 0:0 0A 0:0 0:0 0 0 0 77 1\n 1: 00000000:1FA5 0:0 0A 0:0 0:0 0 0 0 78 1\n")
		}, Watch{Engine: "http://h:8100"}, Listener, seen(Other)},
		"a connection is no listener": {func(h *host) {
			h.write(h.of(10, "net/tcp"), "  sl x\n 0: 00000000:1FA4 0:0 01 0:0 0:0 0 0 0 77 1\n")
		}, Watch{Engine: "http://h:8100"}, Listener, unknown("no socket of the process's network listens on port 8100")},
		"no UCX": {func(*host) {}, Watch{}, UCX, seen(None)},
		"UCX in its log": {func(h *host) {
			h.logs("[1.2] [host:1:0] ucp_context.c:2339 UCX  INFO  Version 1.19.0 (loaded from /x/libucp.so.0)\n")
		}, Watch{}, UCX, seen("1.19.0")},
		"UCX without a log": {func(h *host) { h.maps("/opt/nixl_cu12.libs/libucs-a1.so.0.0.0") }, Watch{}, UCX, unknown("libucs-a1.so.0.0.0 is loaded: UCX_LOG_LEVEL=info makes UCX log its version")},
		"no NIXL":           {func(*host) {}, Watch{}, NIXL, seen(None)},
		"NIXL's package": {func(h *host) {
			h.maps("/v/lib/python3.12/site-packages/nixl_cu12.libs/libnixl-12.so")
			h.write(h.of(10, "root/v/lib/python3.12/site-packages/nixl_cu12-0.7.1.dist-info/METADATA"), "x")
		}, Watch{}, NIXL, seen("0.7.1")},
		"NIXL without a package": {func(h *host) { h.maps("/opt/libnixl.so") }, Watch{}, NIXL, unknown("libnixl.so is loaded: neither its log nor its package tells")},
		"no transport":           {func(*host) {}, Watch{}, Transports, seen(None)},
		"lanes in the log": {func(h *host) {
			h.logs("ucp_worker.c:1888 UCX  INFO    ep_cfg[2]: tag(rc_mlx5/mlx5_0:1 cuda_ipc/cuda); am(rc_mlx5/mlx5_0:1)\n" +
				"ucp_worker.c:1 UCX  INFO  ucp_context_0 inter-node cfg#3 rma(tcp/eth0)\n")
		}, Watch{}, Transports, seen("cuda_ipc/cuda", "rc_mlx5/mlx5_0:1", "tcp/eth0")},
		"modules":         {func(h *host) { h.maps("/x/libuct_ib-11.so.0", "/x/libuct_cuda.so") }, Watch{}, Transports, seen("module:cuda", "module:ib")},
		"no model":        {func(*host) {}, Watch{}, Checkpoint, unknown("the launch names no folder of a model")},
		"a missing model": {func(*host) {}, Watch{Model: "/nowhere/at/all"}, Checkpoint, unknown("hash the model: no such file or directory")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.process(10, 1, 500)
			c.make(h)
			got := h.look(c.watch)[c.of]
			if !slices.Equal(got.Is, c.want.Is) || got.Unknown != c.want.Unknown {
				t.Fatalf("%s is %+v, want %+v", c.of, got, c.want)
			}
		})
	}
}

// logs gives the process an output file.
func (h *host) logs(text string) {
	path := filepath.Join(h.t.TempDir(), "engine.log")
	h.write(path, text)
	h.link(h.of(10, "fd/1"), path)
	h.link(h.of(10, "fd/2"), path)
}

func (h *host) maps(paths ...string) {
	var b strings.Builder
	for _, p := range paths {
		fmt.Fprintf(&b, "7f00-7f01 r-xp 00000000 08:01 12   %s\n", p)
	}
	h.write(h.of(10, "maps"), b.String())
}

func TestALookIsOfOneProcess(t *testing.T) {
	h := newHost(t)
	h.process(10, 1, 500)
	for name, ticks := range map[string]int64{"another": 501} {
		if _, err := newObserver(Watch{}, false, h.roots).Look(t.Context(), 10, ticks); !errors.Is(err, ErrReplaced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.write(h.of(10, "stat"), "10 (x) Z 1"+strings.Repeat(" 1", 17)+" 500 0")
	if _, err := newObserver(Watch{}, false, h.roots).Look(t.Context(), 10, 500); !errors.Is(err, ErrReplaced) {
		t.Errorf("a zombie: %v", err)
	}
}

// TestFamily finds grandchildren, with and without the kernel's lists of children.
func TestFamily(t *testing.T) {
	h := newHost(t)
	for pid, parent := range map[int]int{10: 1, 11: 10, 12: 11, 13: 1} {
		h.process(pid, parent, 500)
	}
	if got := h.family(10); !slices.Equal(got, []int{10, 11, 12}) {
		t.Errorf("by parents: %v", got)
	}
	h.write(h.of(10, "task/10/children"), "")
	h.write(h.of(10, "task/20/children"), "14 11 ")
	h.write(h.of(11, "task/11/children"), "12\n")
	h.write(h.of(12, "task/12/children"), "10 ")
	if got := h.family(10); !slices.Equal(got, []int{10, 14, 11, 12}) {
		t.Errorf("by children: %v", got)
	}
	self, err := hostRoots.ticks(os.Getpid())
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if got := hostRoots.family(os.Getpid()); !slices.Contains(got, cmd.Process.Pid) || self <= 0 {
		t.Errorf("a real child is not found: %v", got)
	}
}

func TestContainerOfARuntime(t *testing.T) {
	h := newHost(t)
	h.process(10, 1, 500)
	h.process(20, 1, 900)
	id := strings.Repeat("c", 64)
	was := inspect
	t.Cleanup(func() { inspect = was })
	answer := ""
	inspect = func(context.Context, string, string) ([]byte, error) {
		if answer == "" {
			return nil, errors.New("exit status 1")
		}
		return []byte(answer + "\n"), nil
	}
	w := Watch{Container: "docker:n"}
	for name, c := range map[string]struct {
		answer, cgroup string
		want           Seen
	}{
		"runs":                   {id + " 20", "", Seen{Is: []string{id, "process 20:900"}}},
		"runs, and its groups":   {id + " 20", "0::/docker-" + id + ".scope", Seen{Is: []string{id, "process 20:900"}}},
		"its process is another": {id + " 20", "0::/docker-" + strings.Repeat("d", 64), Seen{Is: []string{strings.Repeat("d", 64), "process 20:900"}}},
		"stopped":                {id + " 0", "", unknown("docker has no running container n")},
		"odd answer":             {"<no value>", "", unknown("docker has no running container n")},
		"no answer":              {"", "", unknown("docker does not tell of container n: exit status 1")},
		"a process that is gone": {id + " 21", "", unknown("the process of container n: no such file or directory")},
	} {
		answer = c.answer
		if c.cgroup == "" {
			c.cgroup = "0::/"
		}
		h.write(h.of(20, "cgroup"), c.cgroup)
		if got := h.look(w)[Container]; !slices.Equal(got.Is, c.want.Is) || got.Unknown != c.want.Unknown {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestConfigDigest(t *testing.T) {
	model := t.TempDir()
	extra := filepath.Join(t.TempDir(), "engine.yaml")
	base := func(h *host) {
		h.write(h.of(10, "cmdline"), "vllm\x00serve\x00--api-key\x00one\x00--tokenizer\x00t\x00")
		h.write(h.of(10, "environ"), "HOME=/a\x00UCX_TLS=rc\x00VLLM_API_KEY=one\x00")
		h.write(filepath.Join(model, "config.json"), "{}")
		h.write(extra, "a: 1")
	}
	watch := Watch{Model: model, Configs: []string{extra}}
	digest := func(change func(h *host)) Seen {
		h := newHost(t)
		h.process(10, 1, 500)
		base(h)
		change(h)
		return h.look(watch)[EngineConfig]
	}
	first := digest(func(*host) {})
	if len(first.Is) != 1 || !isDigest(first.Is[0]) {
		t.Fatalf("%+v", first)
	}
	for name, c := range map[string]struct {
		change func(h *host)
		same   bool
	}{
		"another secret": {func(h *host) {
			h.write(h.of(10, "cmdline"), "vllm\x00serve\x00--api-key\x00two\x00--tokenizer\x00t\x00")
		}, true},
		"a secret variable": {func(h *host) { h.write(h.of(10, "environ"), "HOME=/a\x00UCX_TLS=rc\x00VLLM_API_KEY=two\x00") }, true},
		"another home":      {func(h *host) { h.write(h.of(10, "environ"), "UCX_TLS=rc\x00HOME=/b\x00") }, true},
		"another option": {func(h *host) {
			h.write(h.of(10, "cmdline"), "vllm\x00serve\x00--api-key\x00one\x00--tokenizer\x00u\x00")
		}, false},
		"another variable":     {func(h *host) { h.write(h.of(10, "environ"), "UCX_TLS=tcp\x00") }, false},
		"another model config": {func(h *host) { h.write(filepath.Join(model, "config.json"), "[]") }, false},
		"another file":         {func(h *host) { h.write(extra, "a: 2") }, false},
		"a file gone":          {func(h *host) { _ = os.Remove(extra) }, false},
	} {
		if got := digest(c.change); slices.Equal(got.Is, first.Is) != c.same {
			t.Errorf("%s: %+v, before %+v", name, got, first)
		}
	}
}

func TestOptions(t *testing.T) {
	for line, want := range map[string]Watch{
		"vllm serve /m --tokenizer /t --config=/c.yaml":  {Model: "/m", Tokenizer: "/t", Configs: []string{"/c.yaml"}},
		"python -m sglang.launch_server --model-path /m": {Model: "/m"},
		"x --model org/name --chat-template":             {},
	} {
		if got := Options(strings.Fields(line)); got.Model != want.Model || got.Tokenizer != want.Tokenizer || !slices.Equal(got.Configs, want.Configs) {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTreeDigestIsThatOfSha256sum lets coreutils compute the same digest.
func TestTreeDigestIsThatOfSha256sum(t *testing.T) {
	dir := folder(t, map[string]string{"b": "2", "a/c": "1", "a.x": "3", ".git/config": "4", "a/.hidden": "5"})
	if err := os.Symlink("../b", filepath.Join(dir, "a", "link")); err != nil {
		t.Fatal(err)
	}
	elsewhere := folder(t, map[string]string{"w/x": "6", "y": "7"})
	if err := os.Symlink(elsewhere, filepath.Join(dir, "weights")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "w"), filepath.Join(elsewhere, "again")); err != nil {
		t.Fatal(err)
	}
	got, err := openHashes("", false).tree(t.Context(), dir)
	if err != nil || len(got) != 7 {
		t.Fatalf("%+v, %v", got, err)
	}
	cmd := exec.Command("sh", "-c", `find -L . -type f ! -path '*/.*' | sed 's|^\./||' | LC_ALL=C sort | xargs sha256sum | sha256sum`)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("needs coreutils: %v", err)
	}
	if want := strings.Fields(string(out))[0]; digestOf(got) != want {
		t.Errorf("digest %s, sha256sum says %s", digestOf(got), want)
	}
}

// TestRememberedDigests proves that only what changed is read again, and that what is
// remembered is never believed for another state of the file.
func TestRememberedDigests(t *testing.T) {
	dir := folder(t, map[string]string{"a": "1", "b": "2"})
	keep := filepath.Join(t.TempDir(), "hashes.json")
	h := openHashes(keep, true)
	first, err := h.tree(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.known) != 0 { // their change times are of now
		t.Fatalf("young files are remembered: %v", h.known)
	}
	for _, f := range first {
		h.known[filepath.Join(dir, f.path)] = remembered{Print: f.Print, SHA: strings.Repeat("e", 64)}
	}
	if err := h.save(); err != nil {
		t.Fatal(err)
	}
	again, err := openHashes(keep, false).tree(t.Context(), dir)
	if err != nil || again[0].SHA != strings.Repeat("e", 64) {
		t.Fatalf("%+v, %v: the remembered digest is not used", again, err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("9"), 0o600); err != nil { // as long as before
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "a"), old, old); err != nil {
		t.Fatal(err)
	}
	again, err = openHashes(keep, false).tree(t.Context(), dir)
	if err != nil || again[0].SHA == strings.Repeat("e", 64) || again[1].SHA != strings.Repeat("e", 64) {
		t.Fatalf("%+v, %v: a changed file is remembered", again, err)
	}
	for _, bad := range []string{"{", "null", `{"x":1}`} {
		if err := os.WriteFile(keep, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := openHashes(keep, false).tree(t.Context(), dir); err != nil || len(got) != 2 {
			t.Errorf("with %s: %v, %v", bad, got, err)
		}
	}
}

func TestTreeRefuses(t *testing.T) {
	for name, dir := range map[string]string{
		"nothing":             folder(t, nil),
		"a name with a break": folder(t, map[string]string{"a\nb": "1"}),
	} {
		if got, err := openHashes("", false).tree(t.Context(), dir); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	dir := folder(t, map[string]string{"a": "1"})
	if err := os.Symlink("gone", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if _, err := openHashes("", false).tree(t.Context(), dir); err == nil {
		t.Error("a dangling link was skipped")
	}
	for name, to := range map[string]string{"loop": ".", "deep/loop": ".."} {
		dir := folder(t, map[string]string{"a": "1", "deep/b": "2"})
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := openHashes("", false).tree(t.Context(), dir); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s to %s: %v", name, to, err)
		}
	}
}

// TestChangesBehindLinks: a file behind a linked folder, and a link that leads elsewhere now, count as changed.
func TestChangesBehindLinks(t *testing.T) {
	dir, one, two := folder(t, map[string]string{"a": "1"}), folder(t, map[string]string{"w": "2"}), folder(t, map[string]string{"w": "2"})
	link := filepath.Join(dir, "weights")
	if err := os.Symlink(one, link); err != nil {
		t.Fatal(err)
	}
	tree := func() file {
		t.Helper()
		got, err := openHashes("", false).tree(t.Context(), dir)
		if err != nil || len(got) != 2 || got[1].path != "weights/w" {
			t.Fatalf("%+v, %v", got, err)
		}
		return got[1]
	}
	before := tree()
	if err := os.WriteFile(filepath.Join(one, "w"), []byte("3"), 0o600); err != nil {
		t.Fatal(err)
	}
	if after := tree(); after.SHA == before.SHA || after.changed().Before(before.changed()) {
		t.Errorf("%+v, before %+v", after, before)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(two, link); err != nil {
		t.Fatal(err)
	}
	if after := tree(); after.SHA != before.SHA || after.Print == before.Print || !after.changed().After(time.Unix(0, after.Print.MTime)) {
		t.Errorf("%+v, before %+v", after, before)
	}
}

func TestDiff(t *testing.T) {
	all := func(change func(Observed)) Observed {
		o := Observed{}
		for _, n := range Names() {
			o[n] = seen("x")
		}
		change(o)
		return o
	}
	for name, c := range map[string]struct {
		want, got func(Observed)
		names     []string
	}{
		"equal":                    {func(Observed) {}, func(Observed) {}, nil},
		"unknown before":           {func(o Observed) { o[GPUs] = unknown("y") }, func(Observed) {}, nil},
		"unknown now":              {func(Observed) {}, func(o Observed) { o[GPUs] = unknown("y") }, []string{GPUs}},
		"more transports":          {func(Observed) {}, func(o Observed) { o[Transports] = seen("x", "y") }, nil},
		"transports after none":    {func(o Observed) { o[Transports] = seen() }, func(Observed) {}, nil},
		"a transport gone":         {func(o Observed) { o[Transports] = seen("x", "y") }, func(Observed) {}, []string{Transports}},
		"transports unknown now":   {func(Observed) {}, func(o Observed) { o[Transports] = unknown("z") }, []string{Transports}},
		"checkpoint and tokenizer": {func(Observed) {}, func(o Observed) { o[Tokenizer], o[Checkpoint] = seen("y"), seen("z") }, []string{Checkpoint, Tokenizer}},
	} {
		var got []string
		for _, d := range Diff(all(c.want), all(c.got)) {
			got = append(got, d.Name)
		}
		if !slices.Equal(got, c.names) {
			t.Errorf("%s: %v, want %v", name, got, c.names)
		}
	}
}

// TestEveryNameOfAnObservationCounts takes each away in turn.
func TestEveryNameOfAnObservationCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Observed{}
		for _, n := range Names() {
			o[n] = Seen{Is: rapid.SliceOfN(rapid.StringMatching("[a-z]{1,8}"), 1, 3).Draw(t, n)}
		}
		if err := o.Check(); err != nil || len(Diff(o, o)) != 0 {
			t.Fatalf("%v, %v", err, Diff(o, o))
		}
		n := rapid.SampledFrom(Names()).Draw(t, "name")
		other := Observed{}
		for k, v := range o {
			other[k] = v
		}
		other[n] = Seen{Is: []string{"OTHER"}}
		if d := Diff(o, other); len(d) != 1 || d[0].Name != n {
			t.Fatalf("%s changed: %v", n, d)
		}
		other[n] = Seen{}
		if other.Check() == nil {
			t.Fatal("neither seen nor unknown, and accepted")
		}
		delete(other, n)
		if other.Check() == nil {
			t.Fatal("missing, and accepted")
		}
		o["more"] = seen("x")
		if o.Check() == nil {
			t.Fatal("another name is accepted")
		}
	})
}

// FuzzPages reads hostile pages of /proc and hostile logs.
func FuzzPages(f *testing.F) {
	f.Add([]byte("1 (x) S 1" + strings.Repeat(" 1", 20)))
	f.Add([]byte("UCX  INFO  Version 1.2.3 cfg#1 a(tcp/eth0; (rc/mlx5_0:1 x)"))
	f.Add([]byte(" 0: 00000000:1FA4 0:0 0A 0:0 0:0 0 0 0 77 1\n"))
	f.Add([]byte("GPU UUID: GPU-1\nDevice Minor: 0\n0::/docker-" + strings.Repeat("a", 64)))
	f.Add([]byte("7f00-7f01 r-xp 0 0 1 /x/libuct_ib.so.0\n--api-key\x00one"))
	f.Fuzz(func(t *testing.T, page []byte) {
		if fields, err := statFields(page); err == nil && len(fields) < 20 {
			t.Fatal("too few fields")
		}
		listeningIn(page, 8100)
		nvidiaIn(string(page))
		withoutSecrets(split(page))
		Options(split(page))
		var libraries []library
		for _, p := range mappedIn(string(page)) {
			libraries = append(libraries, library{"/nowhere", p})
		}
		for _, s := range []Seen{
			transports(string(page), libraries), containerIn(page),
			versionOf(ucxVersion.FindStringSubmatch(string(page)), libraries, "libuc", "x"), versionOf(nixlVersion.FindStringSubmatch(string(page)), libraries, "libnixl", "x"),
		} {
			if (len(s.Is) == 0) == (s.Unknown == "") || slices.Contains(s.Is, "") {
				t.Fatalf("neither seen nor unknown: %+v", s)
			}
		}
	})
}
