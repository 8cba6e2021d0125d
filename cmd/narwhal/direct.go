package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// direct loads a fleet whose engines are asked from here.
func (a *app) direct(ctx context.Context, files []string) (*preflight.Direct, loaded, error) {
	l, err := a.loadFleet(ctx, files)
	if err != nil {
		return nil, l, err
	}
	printWarnings(a.err, l.doc.Warnings)
	d := preflight.NewDirect(l.fleet)
	side := newSidecars(l.fleet)
	d.Attest, d.Generation = side.attest, side.generation
	return d, l, nil
}

// generation is what the router binds a profile to: what the sidecars attest where every engine has
// one, else version and process start.
func (s sidecars) generation(ctx context.Context, iid string, id engine.Identity) (string, error) {
	if !attested(s.fleet) {
		return router.IdentityDigest(id), nil
	}
	r, err := s.read(ctx, iid, id)
	if err != nil {
		return "", err
	}
	return r.Binding(), nil
}

// known refuses ids that no engine of the fleet has.
func known(f fleet.Fleet, ids []string) error {
	for _, iid := range ids {
		if _, ok := f.ByID(iid); !ok {
			return problem.New(problem.Invalid, "no_such_engine", fmt.Sprintf("--only %q is no engine of the fleet", iid), "its engines are "+strings.Join(f.EngineIDs(), ", "))
		}
	}
	return nil
}

// needsKey refuses to ask engines that demand a key without one.
func (a *app) needsKey(f fleet.Fleet) error {
	name := f.Engine.EngineAPIKeyEnv
	if name == "" || a.getenv(name) != "" {
		return nil
	}
	return problem.New(problem.Invalid, "secret_unset", "the environment variable "+name+a.missing(name)+"; engine.engine_api_key_env names it", "export "+name+" with the engines' key")
}

// follow tells a person which step runs.
func follow(l *lines) func(gates.Step, time.Duration, error, bool) {
	return func(s gates.Step, took time.Duration, err error, ended bool) { l.Step("F", s, took, err, ended) }
}

// samplesBeside is the file of measured points that belongs to a store.
func samplesBeside(store string) string {
	return strings.TrimSuffix(store, filepath.Ext(store)) + ".samples.json"
}

// readSamples reads measured points; fs.ErrNotExist says that there are none.
func readSamples(ctx context.Context, path string) (*preflight.Samples, error) {
	b, err := storeBytes(ctx, path)
	if err != nil {
		return nil, err
	}
	s, err := preflight.ReadSamples(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &s, nil
}

// absent reports whether an error means that there is no such file.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
