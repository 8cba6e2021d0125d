package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/schema"
)

const maxFleetFile = 16 << 20

// fleetFlag adds -f/--fleet.
func fleetFlag(c *cobra.Command, files *[]string) {
	c.Flags().StringArrayVarP(files, "fleet", "f", nil, "fleet file (.cue, .yaml, .yml, .json, - for standard input); repeat to unify several")
}

// loaded is a fleet document with where its file references start from.
type loaded struct {
	doc   *schema.Document
	fleet fleet.Fleet
	base  string // folder of the first file
}

// loadFleet reads and checks fleet files.
func (a *app) loadFleet(ctx context.Context, files []string) (loaded, error) {
	if len(files) == 0 {
		return loaded{}, problem.New(problem.Invalid, "no_fleet_file", "no fleet file given", "narwhal sandbox up makes a fleet to try and prints its file; name a file with -f FILE")
	}
	l, srcs, err := a.fleetSources(ctx, files)
	if err != nil {
		return l, err
	}
	return a.loadSources(ctx, l, srcs)
}

// fleetSources reads fleet files.
func (a *app) fleetSources(ctx context.Context, files []string) (loaded, []schema.Source, error) {
	l := loaded{base: a.dir}
	var srcs []schema.Source
	for i, f := range files {
		b, err := a.input(ctx, f, "read fleet file")
		if err != nil {
			return l, nil, err
		}
		srcs = append(srcs, schema.Source{Name: f, Data: b})
		if i == 0 && f != "-" {
			if abs, err := filepath.Abs(f); err == nil {
				l.base = filepath.Dir(abs)
			}
		}
	}
	return l, srcs, nil
}

func (a *app) loadSources(ctx context.Context, l loaded, srcs []schema.Source) (loaded, error) {
	doc, err := schema.Load(ctx, srcs, schema.Options{Env: a.lookup})
	if err != nil {
		return l, err
	}
	l.doc, l.fleet = doc, doc.Fleet
	return l, nil
}

// withDeploy demands the section that gates need and settles its file references.
func (l *loaded) withDeploy() error {
	if l.fleet.Deploy == nil {
		return problem.New(problem.Invalid, "no_deploy", "the fleet file has no deploy section, so no host is known", "add deploy: narwhal preset show sandbox is an example")
	}
	d := *l.fleet.Deploy
	d.Hosts = map[string]fleet.Host{}
	for id, h := range l.fleet.Deploy.Hosts {
		h.Identity, h.KnownHosts = l.absolute(h.Identity), l.absolute(h.KnownHosts)
		d.Hosts[id] = h
	}
	l.fleet.Deploy = &d
	return nil
}

// absolute resolves "file:PATH" against the fleet file's folder.
func (l *loaded) absolute(ref string) string {
	p, ok := strings.CutPrefix(ref, "file:")
	if !ok || p == "" || filepath.IsAbs(p) || strings.HasPrefix(p, "~") {
		return ref
	}
	return "file:" + filepath.Join(l.base, p)
}

// path is the file of a reference.
func (l *loaded) path(ref string) string { return strings.TrimPrefix(l.absolute(ref), "file:") }

// secret resolves a reference where its value is needed.
func (l *loaded) secret(a *app) func(fleet.SecretRef) (fleet.Secret, error) {
	return func(ref fleet.SecretRef) (fleet.Secret, error) {
		scheme, name, ok := ref.Split()
		switch {
		case !ok:
			return fleet.Secret{}, problem.New(problem.Invalid, "secret_reference", "a secret is neither env:NAME nor file:PATH", "write a reference into the fleet file")
		case scheme == "env":
			v := a.getenv(name)
			if v == "" {
				return fleet.Secret{}, problem.New(problem.Invalid, "secret_unset", "the environment variable "+name+a.missing(name), "export "+name+" before the run")
			}
			return fleet.NewSecret(v), nil
		}
		b, err := readSecret(l.path(string(ref)))
		if err != nil {
			return fleet.Secret{}, problem.Wrap(problem.Invalid, "secret_unreadable", "read a secret's file", err, "check its path and mode")
		}
		v := strings.TrimRight(string(b), "\r\n")
		if v == "" {
			return fleet.Secret{}, problem.New(problem.Invalid, "secret_empty", "a secret's file is empty", "check "+l.path(string(ref)))
		}
		return fleet.NewSecret(v), nil
	}
}

// missing says how a variable has no value.
func (a *app) missing(name string) string {
	if _, set := a.lookup(name); set {
		return " is empty"
	}
	return " is not set"
}

func (a *app) lookup(name string) (string, bool) {
	for _, kv := range a.environ() {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}
