package engines

import (
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
)

func TestContainerArgv(t *testing.T) {
	f := testFleet()
	r := resolve(t, f, "p0")
	r.Kind, r.Image, r.ModelDir = fleet.LaunchContainer, "img@sha256:1", "/models/m"
	for name, c := range map[string]struct {
		change func(*fleet.Resolved)
		has    []string
		hasNot []string
	}{
		"docker": {nil, []string{"docker run --pull never --name narwhal-tern-p0 --log-driver none --network host", "--init", "--ipc host", "--ulimit memlock=-1:-1",
			"--label io.narwhal.owner=tern/engine-p0", "--volume /models/m:/models/m:ro", "--env A_KEY --env HF_TOKEN --env UCX_TLS img@sha256:1 vllm serve"},
			[]string{"THE_TOKEN", "tcp", "--gpus", "--device", "--privileged", " sh ", "--rm"}},
		"docker with GPUs": {func(r *fleet.Resolved) {
			c := fleet.DefaultContainer()
			c.GPUs, c.IPC, c.ShmSize, c.Memlock, c.Seccomp, c.Init = "all", fleet.IPCPrivate, 8<<30, fleet.MemlockInherit, fleet.SeccompOpen, false
			c.Devices, c.Mounts = []string{"/dev/infiniband/uverbs0"}, map[string]string{"/root/.cache": "/srv/cache", "/a": "/b"}
			r.Container = &c
		}, []string{"--gpus all", "--ipc private --shm-size 8589934592b", "--security-opt seccomp=unconfined", "--device /dev/infiniband/uverbs0",
			"--volume /b:/a:ro --volume /srv/cache:/root/.cache:ro"}, []string{"memlock", "--init", "--ipc host"}},
		"podman with GPUs": {func(r *fleet.Resolved) {
			c := fleet.DefaultContainer()
			c.GPUs = "all"
			r.Container, r.Runtime = &c, "podman"
		}, []string{"podman run ", "--device nvidia.com/gpu=all"}, []string{"--gpus"}},
		"a built command": {func(r *fleet.Resolved) { r.Built = true }, []string{"--entrypoint vllm img@sha256:1 serve --port 8100"}, nil},
		"a further rank":  {func(r *fleet.Resolved) { r.Rank = 2 }, []string{"--name narwhal-tern-p0-2 ", "owner=tern/engine-p0-rank-2"}, nil},
	} {
		x := r
		if c.change != nil {
			c.change(&x)
		}
		s, err := Spec(f, x)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Join(s.Argv, " ")
		for _, w := range c.has {
			if !strings.Contains(line, w) {
				t.Errorf("%s: %q is not in %s", name, w, line)
			}
		}
		for _, w := range c.hasNot {
			if strings.Contains(line, w) {
				t.Errorf("%s: %q is in %s", name, w, line)
			}
		}
		if !slices.Equal(s.Before, s.After) || len(s.Before) != 4 || s.Before[2] != "engine-away" {
			t.Errorf("%s: before %v, after %v", name, s.Before, s.After)
		}
	}
}

func TestUnitArgv(t *testing.T) {
	f := testFleet()
	r := resolve(t, f, "p0")
	r.Kind, r.Unit, r.Scope = fleet.LaunchSystemd, "vllm-p0.service", fleet.ScopeUser
	s, err := Spec(f, r)
	line := strings.Join(s.Argv, " ")
	if err != nil || !strings.HasPrefix(line, "systemd-run --user --unit vllm-p0.service --description narwhal tern/engine-p0 --wait --pipe ") ||
		!strings.HasSuffix(line, "--setenv A_KEY --setenv HF_TOKEN --setenv UCX_TLS -- vllm serve --port 8100") || strings.Contains(line, "THE_TOKEN") || strings.Contains(line, "tcp") {
		t.Errorf("%s, %v", line, err)
	}
	if !slices.Contains(s.Inherit, "XDG_RUNTIME_DIR") || s.After == nil {
		t.Errorf("%+v", s)
	}
	r.Scope, r.Secrets = "", nil
	s, err = Spec(f, r)
	if err != nil || slices.Contains(s.Argv, "--user") || slices.Contains(s.Inherit, "XDG_RUNTIME_DIR") {
		t.Errorf("%v, %v", s.Argv, err)
	}
}

// TestContained checks a container's evidence against its launch.
func TestContained(t *testing.T) {
	f := testFleet()
	digest := "sha256:" + strings.Repeat("a", 64)
	l := f.Deploy.Launch["l"]
	l.Kind, l.Image, l.ModelDir = fleet.LaunchContainer, "img@"+digest, "/models/m"
	f.Deploy.Launch["l"] = l
	for name, c := range map[string]struct {
		image  string
		change func(*Container)
		want   string
	}{
		"as launched":          {"", nil, ""},
		"pinned by id":         {"sha256:" + strings.Repeat("b", 64), nil, ""},
		"another id":           {"sha256:" + strings.Repeat("c", 64), nil, "container-image"},
		"another digest":       {"", func(c *Container) { c.Digests = []string{"img@sha256:" + strings.Repeat("d", 64)} }, "container-image"},
		"no digest":            {"", func(c *Container) { c.Digests = nil }, "container-image"},
		"a tag":                {"img:latest", nil, "container-image"},
		"it has ended":         {"", func(c *Container) { c.Running = false }, "container-gone"},
		"somebody else's":      {"", func(c *Container) { c.Owner = "other/engine-p0" }, "container-foreign"},
		"an earlier launch":    {"", func(c *Container) { c.Launch = "l0" }, "container-foreign"},
		"a network of its own": {"", func(c *Container) { c.Network = "bridge" }, "container-network"},
		"it may write":         {"", func(c *Container) { c.Written = []string{"/models/m"} }, "container-writes"},
		"without the model":    {"", func(c *Container) { c.Mounts = nil }, "container-model"},
	} {
		if c.image != "" {
			l.Image = c.image
		} else {
			l.Image = "img@" + digest
		}
		f.Deploy.Launch["l"] = l
		got := Container{ID: strings.Repeat("e", 64), Image: "sha256:" + strings.Repeat("b", 64), Digests: []string{"img@" + digest}, Owner: "tern/engine-p0", Launch: "l",
			PID: 7, Running: true, Network: "host", IPC: "host", Mounts: []string{"/models/m"}}
		if c.change != nil {
			c.change(&got)
		}
		s := seen{iid: "p0", host: "h1", container: got, live: Live{Launch: "l"}}
		findings := s.contained(f)
		switch {
		case c.want == "" && len(findings) != 0, c.want != "" && (len(findings) != 1 || findings[0].Code != c.want || findings[0].Hint == ""):
			t.Errorf("%s: %+v", name, findings)
		}
	}
}
