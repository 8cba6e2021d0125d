package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

// TakenOut is what became of engines that were taken out of service. Left are requests that
// were not waited for.
type TakenOut struct {
	Engines  map[string]lifecycle.Engine `json:"engines"`
	TookMS   int64                       `json:"took_ms"`
	Left     int                         `json:"left_requests"`
	Deadline bool                        `json:"deadline_passed"`
}

// TakenBack is what the router found of engines that serve again.
type TakenBack struct {
	Engines map[string]lifecycle.Engine `json:"engines"`
	TookMS  int64                       `json:"took_ms"`
}

// Activated is whose profiles of which store the routers took up.
type Activated struct {
	Engines  []string `json:"engines"`
	Profiles string   `json:"profiles_sha256"`
	Routers  []string `json:"routers"`
}

// control opens the way to a router's orders.
func control(ctx context.Context, env gates.Env, host, listen string) (*lifecycle.Client, error) {
	var token fleet.Secret
	if ref := env.View().Fleet.Deploy.Router.HTTP.ControlToken; ref != "" {
		var err error
		if token, err = env.Secret(ref); err != nil {
			return nil, fmt.Errorf("read the control token: %w", err)
		}
	}
	addr, _, err := env.Tunnel(ctx, host, listen)
	if err != nil {
		return nil, err
	}
	return lifecycle.New("http://"+addr, token, nil)
}

func theControl(ctx context.Context, env gates.Env) (*lifecycle.Client, error) {
	r := env.View().Fleet.Deploy.Router
	return control(ctx, env, r.Host, r.Listen)
}

// targetsOf are what is ordered in its turn: the whole fleet as one, or each engine.
func targetsOf(o gates.Outing) (out []lifecycle.Target) {
	if o.All {
		return []lifecycle.Target{{All: true}}
	}
	for _, id := range o.Engines {
		out = append(out, lifecycle.Target{IID: id})
	}
	return out
}

// outing is an operation on engines of an outing, by orders to the router.
func outing(do func(context.Context, gates.Env, *lifecycle.Client, gates.Outing) ([]byte, error)) gates.Local {
	return func(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
		var o gates.Outing
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c, err := theControl(ctx, env)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return do(ctx, env, c, o)
	}
}

// takeOut drains the engines. What is out already stays as it is.
func takeOut(ctx context.Context, env gates.Env, c *lifecycle.Client, o gates.Outing) ([]byte, error) {
	if err := mayTakeOut(ctx, c, env.View().Fleet, o); err != nil {
		return nil, err
	}
	begin, out := time.Now(), TakenOut{}
	var d lifecycle.Document
	var err error
	for _, t := range targetsOf(o) { // none gets new requests before any is waited for
		if d, err = c.Drain(ctx, t, o.Drain.D()); err != nil {
			return nil, ordered("drain", t, err)
		}
	}
	waiting, stop := context.WithTimeout(ctx, o.Drain.D())
	defer stop()
	for _, t := range targetsOf(o) {
		if t.Ready(d) || out.Deadline {
			continue
		}
		d, err = c.WaitReady(waiting, t, func(d lifecycle.Document) { env.Progress(fmt.Sprintf("%d requests in flight", residents(o, d))) })
		var late *lifecycle.Late
		switch {
		case errors.As(err, &late) && o.Cut:
			out.Deadline = true
		case errors.As(err, &late):
			return nil, problem.Wrap(problem.Failed, "drain_late", fmt.Sprintf("%s still has %d requests after %s", t, residents(o, d), o.Drain), err,
				"it gets no new ones: the same command waits on; --drain gives more time, --cut ends them")
		case err != nil:
			return nil, ordered("wait for", t, err)
		}
	}
	if out.Deadline {
		out.Left = residents(o, d)
	}
	out.Engines, out.TookMS = named(o, d), time.Since(begin).Milliseconds()
	return json.Marshal(out)
}

// takeBack readmits the engines, which the router examines first.
func takeBack(ctx context.Context, env gates.Env, c *lifecycle.Client, o gates.Outing) ([]byte, error) {
	begin := time.Now()
	var d lifecycle.Document
	for _, t := range targetsOf(o) {
		var err error
		if d, err = c.Look(ctx); err == nil && t.Held(d) {
			limited, stop := context.WithTimeout(ctx, backWithin.D())
			d, err = c.ReadmitUntil(limited, t, func(d lifecycle.Document) { env.Progress("not yet: " + clean(t.Blocked(d), 200)) })
			stop()
		}
		if err != nil {
			return nil, ordered("readmit", t, err)
		}
	}
	return json.Marshal(TakenBack{Engines: named(o, d), TookMS: time.Since(begin).Milliseconds()})
}

// activate tells the router, and the standby, to take the profiles up.
func activate(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
	var a activateArgs
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, err
	}
	f := env.View().Fleet
	out := Activated{Engines: a.Engines, Profiles: env.View().Digest(storeKey), Routers: []string{}}
	surfaces := []surface{theRouter(f)}
	if standsBy(f) != nil {
		surfaces = append(surfaces, theStandby(f))
	}
	for _, s := range surfaces {
		if err := activateOn(ctx, env, s, out); err != nil {
			return nil, err
		}
		out.Routers = append(out.Routers, s.name)
	}
	return json.Marshal(out)
}

func activateOn(ctx context.Context, env gates.Env, s surface, a Activated) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := control(ctx, env, s.host, s.listen)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Activate(ctx, a.Engines, a.Profiles); err != nil {
		p := ordered("activate the profiles of", lifecycle.Target{IID: a.Engines[0], All: len(a.Engines) > 1}, err)
		p.Host = s.host
		return p
	}
	return nil
}

// ordered words what a router said to an order.
func ordered(what string, t lifecycle.Target, err error) *problem.Problem {
	var no *lifecycle.Refusal
	var denied *lifecycle.Denied
	var lost *lifecycle.Unreachable
	text := fmt.Sprintf("%s %s", what, t)
	switch {
	case errors.As(err, &no):
		return problem.Wrap(problem.Refused, "router_refused", text, err, "narwhal engines list -f FILE shows what the router holds")
	case errors.As(err, &denied):
		return problem.Wrap(problem.Refused, "router_denied", text, err, "deploy.router.http.control_token names the token that the router was started with")
	case errors.As(err, &lost):
		return problem.Wrap(problem.Failed, "router_silent", text, err, "narwhal gate status --live says whether the router runs")
	}
	return problem.Wrap(problem.Failed, "router_order", text, err, "narwhal engines list -f FILE shows what the router holds; its log on its host tells why")
}

// named are the engines of an outing as the router tells of them.
func named(o gates.Outing, d lifecycle.Document) map[string]lifecycle.Engine {
	out := map[string]lifecycle.Engine{}
	for _, id := range o.Engines {
		out[id] = d.Engines[id]
	}
	return out
}

func residents(o gates.Outing, d lifecycle.Document) (n int) {
	for _, e := range named(o, d) {
		n += e.Resident.Prefill + e.Resident.Decode
	}
	return n
}
