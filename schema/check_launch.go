package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// placeholders of a launch's argv and env.
var placeholders = []string{"port", "listen", "iid", "model", "host", "side_channel", "ucx", "root", "run_dir", "rank", "nodes", "head", "rendezvous"}

var (
	placeholder = regexp.MustCompile(`\{([a-z][a-z_]*)\}`)
	pinnedImage = regexp.MustCompile(`(^|@)sha256:[0-9a-f]{64}$`)
)

func (c checker) launch(name string, l fleet.Launch) {
	p := deployPath("launch", name)
	needs := func(field, says string) {
		c.add("launch-needs", p.add(key(field)), fmt.Sprintf("a launch of kind %s needs %s", l.Kind, says), "")
	}
	switch l.Kind {
	case fleet.LaunchProcess:
		if len(l.Argv) == 0 && l.Serve == nil {
			needs("argv", "the engine's command, or serve, which builds it")
		}
	case fleet.LaunchContainer:
		if l.Image == "" {
			needs("image", "an image")
		} else if !pinnedImage.MatchString(l.Image) {
			c.rep.add(fault{rule: "image-pinned", path: p.add(key("image")), got: quote(l.Image), want: "NAME@sha256:DIGEST or sha256:ID",
				hint: "docker inspect --format '{{index .RepoDigests 0}}' IMAGE prints it"})
		}
	case fleet.LaunchSystemd:
		if l.Unit == "" {
			needs("unit", "the name of a unit")
		}
		if len(l.Argv) == 0 && l.Serve == nil {
			needs("argv", "the command that the unit runs, or serve, which builds it")
		}
		if len(l.Secrets) > 0 && l.Scope != fleet.ScopeUser {
			c.add("unit-secrets", p.add(key("secrets")), "the system's manager shows a unit's variables to every user of the host", `set scope: "user", or let the unit read a file of its own`)
		}
	}
	c.serve(p, l)
	if l.Container != nil && l.Kind != fleet.LaunchContainer {
		c.add("launch-needs", p.add(key("container")), fmt.Sprintf("a launch of kind %s is no container", l.Kind), "remove it, or set kind: container")
	}
	if l.Simulated != nil && l.Kind != fleet.LaunchSimulated {
		c.add("launch-needs", p.add(key("simulated")), fmt.Sprintf("a launch of kind %s has no simulated model", l.Kind), "remove it, or set kind: simulated")
	}
	for i, a := range l.Argv {
		c.placeholder(p.add(key("argv"), at(i)), a)
	}
	for _, v := range slices.Sorted(maps.Keys(l.Env)) {
		c.placeholder(p.add(key("env"), key(v)), l.Env[v])
	}
	c.launchSecrets(name, l)
	if l.ModelDir != "" {
		c.remotePath(p.add(key("model_dir")), l.ModelDir)
	}
}

func (c checker) placeholder(p trail, text string) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if contains(placeholders, m[1]) {
			continue
		}
		hint := "known: {" + strings.Join(placeholders, "}, {") + "}"
		if near := nearest(m[1], placeholders); near != "" {
			hint = fmt.Sprintf("did you mean {%s}?", near)
		}
		c.add("argv-placeholder", p, fmt.Sprintf("{%s} is no placeholder", clip(m[1])), hint)
	}
}

// layoutFlags are options that shape the KV cache, with their other spellings.
var layoutFlags = map[string]string{
	"--block-size": "--block-size", "--page-size": "--block-size",
	"--kv-cache-dtype": "--kv-cache-dtype", "--dtype": "--dtype",
	"--tensor-parallel-size": "--tensor-parallel-size", "-tp": "--tensor-parallel-size", "--tp-size": "--tensor-parallel-size", "--tp": "--tensor-parallel-size",
}

// trait is one property in which all launches agree.
type trait struct{ name, field, value string }

// layout compares each launch that an engine uses with the first one.
func (c checker) layout(d *fleet.Deploy) {
	var first string
	base := map[string]trait{}
	seen := map[string]bool{}
	for _, e := range c.f.Engines {
		name := d.Engines[e.IID].Launch
		if name == "" {
			name = d.Defaults.Launch
		}
		l, ok := d.Launch[name]
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		traits := traitsOf(l)
		if first == "" {
			first = name
			for _, t := range traits {
				base[t.name] = t
			}
			continue
		}
		for _, t := range traits {
			if b := base[t.name]; b.value != t.value {
				c.rep.add(fault{rule: "kv-layout", path: deployPath("launch", name, t.field), got: orNone(t.value), want: orNone(b.value),
					says: fmt.Sprintf("%s is %s, but %s in launch %s: engines could not read each other's KV", t.name, orNone(t.value), orNone(b.value), first)})
			}
		}
	}
}

func orNone(s string) string {
	if s == "" {
		return "unset"
	}
	return quote(s)
}

func traitsOf(l fleet.Launch) []trait {
	real := "real"
	if l.Kind == fleet.LaunchSimulated {
		real = "simulated"
	}
	out := []trait{{"the kind of engine", "kind", real}, {"model_dir", "model_dir", l.ModelDir}}
	if s := l.Simulated; s != nil && l.Kind == fleet.LaunchSimulated {
		for _, g := range []struct {
			name  string
			value int
		}{{"block_size", s.BlockSize}, {"layers", s.Layers}, {"kv_heads", s.KVHeads}, {"head_size", s.HeadSize}, {"element_bytes", s.ElementBytes}} {
			out = append(out, trait{"simulated." + g.name, "simulated", fmt.Sprint(g.value)})
		}
		return out
	}
	flags := map[string]string{}
	if v := l.Serve; v != nil {
		block := fmt.Sprint(v.BlockSize)
		return append(out, trait{"--block-size", "serve", block}, trait{"--kv-cache-dtype", "serve", v.KVCacheDtype}, trait{"--dtype", "serve", v.Dtype},
			trait{"--tensor-parallel-size", "serve", fmt.Sprint(v.TensorParallel)})
	}
	for i, a := range l.Argv {
		option, value, inline := strings.Cut(a, "=")
		name, ok := layoutFlags[option]
		if !ok {
			continue
		}
		if !inline && i+1 < len(l.Argv) {
			value = l.Argv[i+1]
		}
		flags[name] = value
	}
	for _, name := range []string{"--block-size", "--kv-cache-dtype", "--dtype", "--tensor-parallel-size"} {
		out = append(out, trait{name, "argv", flags[name]})
	}
	return out
}
