package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/narwhal-fleet/narwhal/bundle"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// bundleRuns are the commands that a collection may run, for the plan to show.
func bundleRuns(f fleet.Fleet) map[string][]gates.HostRun {
	runs := map[string][]gates.HostRun{}
	for _, h := range f.WorkHosts() {
		for _, c := range bundle.Scripts(f, h) {
			runs[h] = append(runs[h], gates.HostRun{Argv: c.Argv, Script: c.Script})
		}
	}
	return runs
}

// collect takes the first bundle while everything of the trial is still there.
func collect(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
	f := env.View().Fleet
	src := bundle.Source{
		Fleet: f, RunDir: env.RunDir(), Tool: "narwhal",
		Host: func(ctx context.Context, id string) (bundle.Host, error) { return env.Host(ctx, id) },
		HTTP: bundle.Getter(func(ctx context.Context, host, address string) (net.Conn, error) { return env.Dial(ctx, host, address) }, bearer(env, f)),
	}
	for _, ref := range f.SecretRefs() {
		if s, err := env.Secret(ref); err == nil {
			src.Literals = append(src.Literals, s)
		}
	}
	var out bytes.Buffer
	sum, err := bundle.Collect(ctx, src, &out)
	if err != nil {
		return nil, fmt.Errorf("collect a bundle: %w", err)
	}
	env.Progress(fmt.Sprintf("%d files of %d hosts, %d missing", sum.Collected, len(sum.Hosts), len(sum.Missing)))
	return out.Bytes(), nil
}

// bearer gives the engines' key to requests that go to an engine.
func bearer(env gates.Env, f fleet.Fleet) func(url string) fleet.Secret {
	return func(url string) fleet.Secret {
		name := f.Engine.EngineAPIKeyEnv
		if name == "" {
			return fleet.Secret{}
		}
		for _, e := range f.Engines {
			if base := strings.TrimRight(e.URL, "/"); url == base || strings.HasPrefix(url, base+"/") {
				s, err := env.Secret(fleet.SecretRef("env:" + name))
				if err != nil {
					return fleet.Secret{}
				}
				return s
			}
		}
		return fleet.Secret{}
	}
}

// judgeBundle proves every byte of the archive against its manifest.
func judgeBundle(v gates.View) []record.Finding {
	b, err := v.Evidence(bundleKey)
	if err != nil {
		return nil // the runner reports missing evidence
	}
	const again = "narwhal gate run --again G collects another"
	fault := func(text string) []record.Finding {
		return []record.Finding{{Code: "bundle-damaged", Evidence: string(bundleKey), Message: "the bundle does not verify: " + text, Hint: again}}
	}
	r, err := bundle.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return fault(err.Error())
	}
	defer r.Close()
	problems, err := r.Verify()
	if err != nil {
		return fault(err.Error())
	}
	if len(problems) > 0 {
		return fault(problems[0].Path + ": " + problems[0].Message)
	}
	return nil
}
