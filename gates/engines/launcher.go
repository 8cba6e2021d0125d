package engines

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
)

// Spec is the process that runs one rank of an engine. A container and a unit run in the
// foreground of their client, so that they have a process like any other; what the client
// leaves behind is taken away before the next start and after a stop.
func Spec(f fleet.Fleet, r fleet.Resolved) (process.Spec, error) {
	s := process.Spec{Name: fleet.RankProcess(r.IID, r.Rank), Env: r.Env, Launch: r.Digest()}
	for name := range r.Secrets {
		s.Inherit = append(s.Inherit, name)
	}
	slices.Sort(s.Inherit)
	if len(r.Argv) == 0 && r.Kind != fleet.LaunchSimulated {
		return s, problem.New(problem.Invalid, "launch_empty", fmt.Sprintf("engine %s: its launch has no argv", r.IID), "set deploy.launch.…argv, or serve")
	}
	switch r.Kind {
	case fleet.LaunchProcess:
		s.Argv = r.Argv
	case fleet.LaunchSimulated:
		argv, err := simulatedArgv(f, r)
		if err != nil {
			return s, err
		}
		s.Argv = argv
	case fleet.LaunchContainer:
		if strings.HasPrefix(r.Image, "-") || strings.ContainsAny(r.ModelDir, ":,") {
			return s, problem.New(problem.Invalid, "launch_container_words", fmt.Sprintf("engine %s: image %q or model folder %q would be read otherwise by the runtime", r.IID, r.Image, r.ModelDir), "an image begins with no dash, and a folder has no colon or comma")
		}
		s.Argv = containerArgv(f, r)
		s.Before = gates.HostCommand(f, r.Host, "engine-away", AwayRequest{Unit: holderOf(f, r), Owner: owner(f, r)})
		s.After = s.Before
	case fleet.LaunchSystemd:
		if len(r.Secrets) > 0 && r.Scope != fleet.ScopeUser {
			return s, problem.New(problem.Invalid, "launch_unit_secrets", fmt.Sprintf("engine %s: the system's manager would show its secrets to every user of the host", r.IID), `set deploy.launch.…scope: "user"`)
		}
		s.Argv = unitArgv(f, r)
		s.Before = gates.HostCommand(f, r.Host, "engine-away", AwayRequest{Unit: holderOf(f, r), Owner: owner(f, r)})
		s.After = s.Before
		for _, name := range userBus {
			if r.Scope == fleet.ScopeUser {
				s.Inherit = append(s.Inherit, name)
			}
		}
	default:
		return s, problem.New(problem.Invalid, "launch_kind_unsupported", fmt.Sprintf("engine %s: launch kind %q is not known", r.IID, r.Kind),
			"use kind process, container, systemd or simulated")
	}
	return s, nil
}

// userBus are the variables by which systemd's clients find the user's manager.
var userBus = []string{"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"}

func simulatedArgv(f fleet.Fleet, r fleet.Resolved) ([]string, error) {
	sim := fleet.Simulated{}
	if r.Simulated != nil {
		sim = *r.Simulated
	}
	params, err := json.Marshal(simulatedParams(f, r, sim))
	if err != nil {
		return nil, fmt.Errorf("plan launch of %s: %w", r.IID, err)
	}
	return []string{path.Join(f.Deploy.Hosts[r.Host].Root, gates.LinkCurrent, "narwhal"), "engine", "simulated", "--listen", r.Listen,
		"--side-channel", strconv.Itoa(r.Side), "--model", f.Model, "--params", string(params)}, nil
}

// simulatedParams are the latencies, and of a dialect whose processes have roles the engine's.
func simulatedParams(f fleet.Fleet, r fleet.Resolved, sim fleet.Simulated) any {
	if f.Engine.Dialect != sglang.Name {
		return sim
	}
	e, _ := f.ByID(r.IID)
	return struct {
		fleet.Simulated
		Dialect    string `json:"dialect"`
		Role       string `json:"disaggregation_mode"`
		RoleSwitch bool   `json:"enable_pd_role_switch"`
	}{sim, sglang.Name, cmp.Or(e.Role, engine.RoleDecode), true}
}

// owner is the mark by which a container or unit is known to be this fleet's.
func owner(f fleet.Fleet, r fleet.Resolved) string {
	return f.Deploy.Name + "/" + fleet.RankProcess(r.IID, r.Rank)
}

// holderOf is what runs a rank apart from the recorded process.
func holderOf(f fleet.Fleet, r fleet.Resolved) Holder {
	switch r.Kind {
	case fleet.LaunchContainer:
		return Holder{Runtime: containerRuntime(r), Container: containerName(f, r)}
	case fleet.LaunchSystemd:
		return Holder{Unit: r.Unit, User: r.Scope == fleet.ScopeUser}
	}
	return Holder{}
}

// names of the variables of a launch, sorted: values come from the client's environment.
func variables(r fleet.Resolved) []string {
	var names []string
	for name := range r.Env {
		names = append(names, name)
	}
	for name := range r.Secrets {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// labelOwner and labelLaunch are what a container says of where it came from.
const (
	labelOwner  = "io.narwhal.owner"
	labelLaunch = "io.narwhal.launch"
)

func containerName(f fleet.Fleet, r fleet.Resolved) string {
	name := "narwhal-" + f.Deploy.Name + "-" + r.IID
	if r.Rank > 0 {
		name += "-" + strconv.Itoa(r.Rank)
	}
	return name
}

func containerRuntime(r fleet.Resolved) string {
	if r.Runtime == "" {
		return "docker"
	}
	return r.Runtime
}

// containerArgv runs a container in the foreground. No shell has a part in it, no image is
// pulled, and no value of a variable is on the command line. The container stays when it
// ends, to be asked why.
func containerArgv(f fleet.Fleet, r fleet.Resolved) []string {
	runtime := containerRuntime(r)
	c := fleet.DefaultContainer()
	if r.Container != nil {
		c = *r.Container
	}
	argv := []string{runtime, "run", "--pull", "never", "--name", containerName(f, r), "--log-driver", "none", "--network", "host",
		"--label", labelOwner + "=" + owner(f, r), "--label", labelLaunch + "=" + r.Digest()}
	if c.Init {
		argv = append(argv, "--init")
	}
	if c.IPC == fleet.IPCPrivate {
		argv = append(argv, "--ipc", "private")
		if c.ShmSize > 0 {
			argv = append(argv, "--shm-size", strconv.FormatInt(int64(c.ShmSize), 10)+"b")
		}
	} else {
		argv = append(argv, "--ipc", "host")
	}
	if c.Memlock != fleet.MemlockInherit {
		argv = append(argv, "--ulimit", "memlock=-1:-1")
	}
	if c.Seccomp == fleet.SeccompOpen {
		argv = append(argv, "--security-opt", "seccomp=unconfined")
	}
	if c.GPUs == "all" && runtime == "docker" {
		argv = append(argv, "--gpus", "all")
	} else if c.GPUs == "all" {
		argv = append(argv, "--device", "nvidia.com/gpu=all")
	}
	for _, d := range c.Devices {
		argv = append(argv, "--device", d)
	}
	if r.ModelDir != "" {
		argv = append(argv, "--volume", r.ModelDir+":"+r.ModelDir+":ro")
	}
	for _, inside := range sortedMounts(c.Mounts) {
		argv = append(argv, "--volume", c.Mounts[inside]+":"+inside+":ro")
	}
	for _, name := range variables(r) {
		argv = append(argv, "--env", name)
	}
	if r.Built {
		return append(append(argv, "--entrypoint", r.Argv[0], r.Image), r.Argv[1:]...)
	}
	return append(append(argv, r.Image), r.Argv...)
}

func sortedMounts(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// unitArgv runs a transient unit and waits for it; what it prints comes to the client.
func unitArgv(f fleet.Fleet, r fleet.Resolved) []string {
	argv := []string{"systemd-run"}
	if r.Scope == fleet.ScopeUser {
		argv = append(argv, "--user")
	}
	argv = append(argv, "--unit", r.Unit, "--description", "narwhal "+owner(f, r), "--wait", "--pipe", "--quiet", "--service-type", "exec",
		"--property", "LimitMEMLOCK=infinity", "--property", "KillMode=mixed")
	for _, name := range variables(r) {
		argv = append(argv, "--setenv", name)
	}
	return append(append(argv, "--"), r.Argv...)
}
