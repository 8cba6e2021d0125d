package engines

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Plan checks the ports, launches and captures what is wanted. Engines of one host that
// may share a GPU start one after another; the others at once.
func (Gate) Plan(_ context.Context, v gates.View) (gates.Plan, error) {
	var p gates.Plan
	var turns turns
	for _, e := range v.Fleet.EngineIDs() {
		r, err := v.Fleet.Resolve(e)
		if err != nil {
			return p, problem.Wrap(problem.Invalid, "launch_unresolved", "plan gate C", err, "narwhal validate names the line")
		}
		steps, err := engineSteps(v, r, &turns)
		if err != nil {
			return p, err
		}
		p.Steps = append(p.Steps, steps...)
	}
	return p, nil
}

func dialectOf(f fleet.Fleet) string { return cmp.Or(f.Engine.Dialect, f.Engine.Backend) }

// chain is the steps of one engine: each needs the one before it.
type chain struct {
	r      fleet.Resolved
	steps  []gates.Step
	before []string
}

func (c *chain) add(s gates.Step) {
	s.Host, s.Engine, s.Needs = c.r.Host, c.r.IID, append(slices.Clone(c.before), s.Needs...)
	c.steps, c.before = append(c.steps, s), []string{s.ID}
}

func engineSteps(v gates.View, r fleet.Resolved, t *turns) ([]gates.Step, error) {
	e, f := r.IID, v.Fleet
	root := f.Deploy.Hosts[r.Host].Root
	c := &chain{r: r}
	launch := v.Wants(launchKey(e))
	for rank := 1; rank <= len(r.Workers); rank++ {
		launch = launch || v.Wants(rankKey(e, rank)) // ranks that began apart do not meet
	}
	observe := func(kind, title, verb string, key record.Key, limit fleet.Duration, request any) {
		if v.Wants(key) || launch {
			s := gates.Step{ID: "C/" + kind + "/" + e, Title: title, Effect: gates.Observe, Yields: key, Limit: limit, Argv: gates.HostCommand(f, r.Host, verb, request)}
			if name := f.Engine.EngineAPIKeyEnv; name != "" && (kind == "live" || kind == "cache") {
				s.Secrets = map[string]fleet.SecretRef{name: fleet.SecretRef("env:" + name)}
			}
			c.add(s)
		}
	}
	minute := fleet.Duration(time.Minute)
	if v.Wants(portsKey(e)) || (launch && !v.Current(portsKey(e))) {
		c.add(gates.Step{
			ID: "C/ports/" + e, Title: "check the ports of " + e, Effect: gates.Observe, Yields: portsKey(e), Limit: minute,
			Argv: gates.HostCommand(f, r.Host, "ports", PortsRequest{Root: root, Name: ProcessName(e), Listen: listens(r)}),
		})
	}
	if launch {
		if err := c.launches(v, t); err != nil {
			return nil, err
		}
	}
	within := r.Within
	if within <= 0 {
		within = fleet.Duration(10 * time.Minute)
	}
	holder := holderOf(f, r)
	if err := c.joins(v, launch, within); err != nil {
		return nil, err
	}
	observe("live", "wait until engine "+e+" generates", "engine-live", liveKey(e), within+minute,
		LiveRequest{Root: root, Name: ProcessName(e), URL: r.URL, Model: f.Model, Within: within, Unit: holder, Key: f.Engine.EngineAPIKeyEnv, Dialect: dialectOf(f)})
	observe("listener", "see who listens for "+e, "engine-listener", listenerKey(e), minute,
		ListenerRequest{Root: root, Name: ProcessName(e), Listen: answersOn(r), Unit: holder})
	if r.Kind == fleet.LaunchContainer {
		observe("container", "look at the container of "+e, "engine-container", containerKey(e), minute, ContainerRequest{Unit: holder})
	}
	observe("cache", "capture the cache layout of "+e, "engine-cache", cacheKey(e), minute, CacheRequest{Root: root, Name: ProcessName(e), URL: r.URL, Geometry: geometryOf(f.EngineContract), Key: f.Engine.EngineAPIKeyEnv, Dialect: dialectOf(f)})
	return c.steps, nil
}

// joins adds a watch of each further rank, beside that of the engine.
func (c *chain) joins(v gates.View, launch bool, within fleet.Duration) error {
	f, e := v.Fleet, c.r.IID
	for rank := 1; rank <= len(c.r.Workers); rank++ {
		if !launch && !v.Wants(joinedKey(e, rank)) {
			continue
		}
		r, err := f.ResolveRank(e, rank)
		if err != nil {
			return problem.Wrap(problem.Invalid, "launch_unresolved", "plan gate C", err, "narwhal validate names the line")
		}
		c.steps = append(c.steps, gates.Step{
			ID: fmt.Sprintf("C/joined/%s/%d", e, rank), Title: fmt.Sprintf("watch rank %d of engine %s", rank, e), Host: r.Host, Engine: e, Effect: gates.Observe,
			Yields: joinedKey(e, rank), Limit: within + fleet.Duration(time.Minute), Needs: slices.Clone(c.before),
			Argv: gates.HostCommand(f, r.Host, "engine-live", LiveRequest{Root: f.Deploy.Hosts[r.Host].Root, Name: fleet.RankProcess(e, rank), URL: r.URL,
				Model: f.Model, Within: within, Unit: holderOf(f, r), Joins: true}),
		})
	}
	return nil
}

// launches adds the start of each rank: the further ones at once, the first one with them.
func (c *chain) launches(v gates.View, t *turns) error {
	f, e := v.Fleet, c.r.IID
	begin := c.before
	var ids []string
	for rank := len(c.r.Workers); rank >= 0; rank-- {
		r, err := f.ResolveRank(e, rank)
		if err != nil {
			return problem.Wrap(problem.Invalid, "launch_unresolved", "plan gate C", err, "narwhal validate names the line")
		}
		spec, err := Spec(f, r)
		if err != nil {
			return err
		}
		name, key, id, title := spec.Name, launchKey(e), "C/launch/"+e, "launch engine "+e
		if rank > 0 {
			key, id, title = rankKey(e, rank), fmt.Sprintf("C/rank/%s/%d", e, rank), fmt.Sprintf("launch rank %d of engine %s", rank, e)
		}
		s := gates.LaunchStep(f, id, r.Host, spec, stopWithin(r))
		s.Title, s.Yields, s.Secrets, s.Engine = title, key, r.Secrets, e
		if was := v.Facts["proc/"+name+"/launch"]; was != "" && was != gates.Gone && was != spec.Launch {
			s.Effect, s.Title = gates.Disrupt, strings.Replace(title, "launch", "replace", 1)
		}
		s.Needs = append(slices.Clone(begin), t.after(r)...)
		c.steps = append(c.steps, s)
		ids = append(ids, id)
	}
	for rank := range len(c.r.Workers) + 1 {
		r, _ := f.ResolveRank(e, rank)
		t.take(r, "C/live/"+e)
	}
	c.before = ids
	return nil
}

func stopWithin(r fleet.Resolved) fleet.Duration {
	if r.StopAfter > 0 {
		return r.StopAfter
	}
	return fleet.Duration(30 * time.Second)
}

// answersOn are the addresses on which an engine takes connections by a known protocol.
func answersOn(r fleet.Resolved) []string {
	return listens(fleet.Resolved{Listen: r.Listen, Side: r.Side})
}

// listens are the addresses that an engine binds.
func listens(r fleet.Resolved) []string {
	host := r.Listen[:strings.LastIndex(r.Listen, ":")]
	out := []string{r.Listen}
	if r.Side > 0 {
		out = append(out, host+":"+strconv.Itoa(r.Side))
	}
	if len(r.Workers) > 0 && r.Meet > 0 {
		out = append(out, host+":"+strconv.Itoa(r.Meet))
	}
	if lo, hi, ok := strings.Cut(r.UCX, "-"); ok {
		a, aerr := strconv.Atoi(lo)
		b, berr := strconv.Atoi(hi)
		for p := a; aerr == nil && berr == nil && p <= b && p-a < 1024; p++ {
			out = append(out, host+":"+strconv.Itoa(p))
		}
	}
	return out
}
