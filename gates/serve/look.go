package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// RestsRequest asks what a trial rests on at a host.
type RestsRequest struct {
	Root  string   `json:"root"`
	Files []string `json:"files,omitempty"` // below Root
	Procs []string `json:"procs,omitempty"`
}

// Rests are digests of files and identities of processes, by name; gates.Gone without one.
type Rests struct {
	Values map[string]string `json:"values"`
}

const maxInput = 64 << 20

// trialRests reads them on the host.
func trialRests(_ context.Context, q RestsRequest) (Rests, error) {
	out := Rests{Values: map[string]string{}}
	for _, name := range q.Files {
		if !filepath.IsLocal(name) {
			return out, fmt.Errorf("look at a trial's inputs: %.80q is no path below the root", name)
		}
		sum, err := digestOf(filepath.Join(q.Root, name))
		if err != nil {
			sum = gates.Gone
		}
		out.Values["file/"+name] = sum
	}
	for _, name := range q.Procs {
		out.Values["proc/"+name] = gates.Gone
		if r, ok := process.Read(filepath.Join(q.Root, gates.DirRun), name); ok && r.Alive() {
			out.Values["proc/"+name] = r.Identity.String()
		}
	}
	return out, nil
}

func digestOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxInput)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// rests is what is asked of each host.
func rests(f fleet.Fleet) map[string]RestsRequest {
	out := map[string]RestsRequest{}
	at := func(host string) RestsRequest {
		q := out[host]
		q.Root = f.Deploy.Hosts[host].Root
		return q
	}
	for _, e := range f.Engines {
		q := at(f.HostOf(e.IID))
		q.Procs = append(q.Procs, "engine-"+e.IID)
		out[f.HostOf(e.IID)] = q
	}
	host := f.Deploy.Router.Host
	q := at(host)
	q.Files = []string{path.Join(routerName, "fleet.json"), path.Join(routerName, "profiles.json")}
	q.Procs = append(q.Procs, routerName)
	out[host] = q
	return out
}

func restsArgv(f fleet.Fleet, host string, q RestsRequest) []string {
	return gates.HostCommand(f, host, "trial-rests", q)
}

// lookAtRests asks all hosts. A host that does not answer is an error beside what the others
// said.
func lookAtRests(ctx context.Context, env gates.Env) (map[string]string, error) {
	f := env.View().Fleet
	asked := rests(f)
	hosts := slices.Sorted(maps.Keys(asked))
	answers, errs := make([]map[string]string, len(hosts)), make([]error, len(hosts))
	var g errgroup.Group
	g.SetLimit(max(1, f.Deploy.Limits.FanOut))
	for i, host := range hosts {
		g.Go(func() error { answers[i], errs[i] = askRests(ctx, env, host, asked[host]); return nil })
	}
	_ = g.Wait() // each tells of its own error
	out := map[string]string{}
	for _, a := range answers {
		maps.Copy(out, a)
	}
	return out, errors.Join(errs...)
}

func askRests(ctx context.Context, env gates.Env, host string, q RestsRequest) (map[string]string, error) {
	h, err := env.Host(ctx, host)
	if err != nil {
		return nil, err
	}
	res, err := h.Run(ctx, remote.Command{Argv: restsArgv(env.View().Fleet, host, q), Limit: shortLimit.D()})
	if err != nil {
		return nil, fmt.Errorf("look at what the trial rests on, on host %s: %w", host, err)
	}
	var r Rests
	if err := json.Unmarshal(res.Stdout, &r); err != nil || res.Truncated {
		return nil, fmt.Errorf("look at what the trial rests on: the answer of host %s is none", host)
	}
	out := map[string]string{}
	for _, name := range q.names() { // what was not asked for is left out
		out[name] = clean(r.Values[name], 200)
	}
	return out, nil
}

// names are the keys of the answer.
func (q RestsRequest) names() (out []string) {
	for _, n := range q.Files {
		out = append(out, "file/"+n)
	}
	for _, n := range q.Procs {
		out = append(out, "proc/"+n)
	}
	return out
}
