package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// serve checks a launch whose command is built.
func (c checker) serve(p trail, l fleet.Launch) {
	s := l.Serve
	if s == nil {
		return
	}
	if len(l.Argv) > 0 {
		c.add("serve-model", p.add(key("argv")), "serve builds the command", "remove argv, or serve")
	}
	if l.ModelDir == "" {
		c.add("serve-model", p.add(key("model_dir")), "the built command names no model", "set the checkpoint's absolute folder on the host")
	}
	if l.Kind == fleet.LaunchSimulated {
		c.add("launch-needs", p.add(key("serve")), "the simulated engine has a command of its own", "remove it, or set another kind")
	}
	backend := c.f.Engine.Backend
	for i := range s.Args {
		if says := fleet.ArgumentFault(backend, s.Args, i); says != "" {
			list := fleet.ServeArguments[backend]
			c.add("serve-args", p.add(key("serve"), key("args"), at(i)), says, "allowed: "+strings.Join(slices.Sorted(slices.Values(append(slices.Clone(list.Values), list.Flags...))), " "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Env)) {
		if says := fleet.VariableFault(backend, name); says != "" {
			c.add("serve-env", p.add(key("env"), key(name)), name+": "+says, "see deploy.launch.…serve")
		}
	}
}

// ranks checks the hosts and GPUs of an engine's ranks.
func (c checker) ranks(d *fleet.Deploy, iid string, place fleet.Place) {
	p := deployPath("engines", iid)
	seen := map[string]bool{place.Host: true}
	for i, w := range place.Workers {
		at := p.add(key("workers"), at(i))
		if _, ok := d.Hosts[w]; !ok {
			unknownName(c, "host-unknown", at, "host", w, d.Hosts)
		} else if seen[w] {
			c.add("worker-hosts", at, fmt.Sprintf("host %s carries another rank of the engine", w), "give each rank its own host")
		}
		seen[w] = true
	}
	l, ok := d.Launch[cmp.Or(place.Launch, d.Defaults.Launch)]
	if !ok {
		return
	}
	ports := l.Ports
	if place.Ports != nil {
		ports = *place.Ports
	}
	if len(place.Workers) > 0 && ports.Rendezvous == 0 {
		c.add("worker-hosts", p.add(key("workers")), "the ranks have no port to meet on", "set ports.rendezvous")
	}
	if len(place.Workers) > 0 && l.Kind == fleet.LaunchSimulated {
		c.add("worker-hosts", p.add(key("workers")), "the simulated engine has one rank", "remove workers")
	}
	for i, g := range place.GPUs {
		if slices.Contains(place.GPUs[:i], g) {
			c.add("gpus-ranks", p.add(key("gpus"), at(i)), fmt.Sprintf("GPU %s is given twice", g), "")
		}
	}
	if s := l.Serve; s != nil && len(place.GPUs) > 0 {
		if n := len(place.GPUs) * (1 + len(place.Workers)); n != s.TensorParallel {
			c.add("gpus-ranks", p.add(key("gpus")), fmt.Sprintf("%d GPUs over %d hosts, and tensor_parallel is %d", n, 1+len(place.Workers), s.TensorParallel), "")
		}
	}
}
