package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// standsBy is the standby that the gate runs, nil for none. Without a lease nothing could
// tell which of two routers serves, so that none is started.
func standsBy(f fleet.Fleet) *fleet.Standby {
	if r := f.Deploy.Router; r.Lease.On() {
		return r.Standby
	}
	return nil
}

// standbySteps start the standby behind the router and look whether it follows.
func standbySteps(v gates.View) ([]gates.Step, error) {
	s := standsBy(v.Fleet)
	steps, err := surfaceSteps(v, surface{name: standbyName, key: standbyKey, host: s.Host, listen: s.Listen, title: "start the standby on " + s.Host, undo: "stop the standby",
		verb: []string{"standby", "--of", primary(v.Fleet)}})
	if err != nil {
		return nil, err
	}
	within := readyWithin(v.Fleet)
	return append(steps, standingStep(within)), nil
}

func standingStep(within fleet.Duration) gates.Step {
	return local("standing", "wait until the standby follows the router", standingKey, "standing", within+shortLimit, readyArgs{Within: within})
}

// endStandby stops a standby before the router that it follows is replaced: it would take the
// router's place meanwhile.
func endStandby(v gates.View, host string) gates.Step {
	u := gates.StopUndo(v.Fleet, host, standbyName, grace(v.Fleet))
	return gates.Step{ID: "G/standby-stop", Title: "stop the standby on " + host, Host: host, Effect: gates.Disrupt, Argv: u.Argv, Limit: u.Limit}
}

// runs reports whether a process was seen to run.
func runs(v gates.View, name string) bool {
	was := v.Facts["proc/"+name+"/launch"]
	return was != "" && was != gates.Gone
}

// primary is the router's address as its standby reaches it.
func primary(f fleet.Fleet) string {
	r := f.Deploy.Router
	host, port, err := net.SplitHostPort(r.Listen)
	if err != nil {
		return "http://" + r.Listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if s := r.Standby; s != nil && s.Host != r.Host {
			host = f.Deploy.Hosts[r.Host].Address
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Standing is what was seen of the standby.
type Standing struct {
	Standing bool            `json:"standing"`
	Reason   string          `json:"reason"` // why not, "" when it stands by
	Epoch    int64           `json:"epoch"`  // of the router's lease
	Holder   string          `json:"holder"` // of the router's lease
	WaitedMS int64           `json:"waited_ms"`
	Health   json.RawMessage `json:"health"` // of the standby
}

// term is what a router says of its lease, and a handoff document too.
type term struct {
	Epoch  int64  `json:"epoch"`
	Holder string `json:"holder"`
	Reason string `json:"reason"`
}

const shadowing = "shadowing"

// standing asks until the standby waits and keeps a handoff document of the very process that
// holds the lease, or the time is up.
func standing(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
	var a readyArgs
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := env.View().Fleet
	s := standsBy(f)
	if s == nil {
		return nil, fmt.Errorf("look at the standby: the fleet has none")
	}
	router, _, err := tunnel(ctx, env)
	if err != nil {
		return nil, err
	}
	addr, _, err := env.Tunnel(ctx, s.Host, s.Listen)
	if err != nil {
		return nil, err
	}
	h, err := env.Host(ctx, s.Host)
	if err != nil {
		return nil, err
	}
	var out Standing
	out.WaitedMS, err = await(ctx, a.Within.D(), func() bool {
		out.look(ctx, router, "http://"+addr, h, pathOn(f, s.Host, standbyName, "state.json"))
		return out.Standing
	})
	if err != nil {
		return nil, err
	}
	if out.Health, err = get(ctx, "http://"+addr+"/health"); err != nil {
		out.Health = json.RawMessage("null")
	}
	return json.Marshal(out)
}

// look asks once.
func (s *Standing) look(ctx context.Context, router, standby string, h gates.Host, state string) {
	s.Standing, s.Reason = false, ""
	holds, err := askTerm(ctx, router)
	if err != nil {
		s.Reason = "the router does not say who holds the lease"
		return
	}
	s.Epoch, s.Holder = holds.Epoch, holds.Holder
	waits, err := askTerm(ctx, standby)
	switch {
	case err != nil:
		s.Reason = "the standby does not answer"
		return
	case holds.Holder == "" || holds.Reason != "":
		s.Reason = "the router does not serve under the lease: " + holds.Reason
		return
	case waits.Reason == "":
		s.Reason = "it serves"
		return
	case waits.Reason != shadowing:
		s.Reason = waits.Reason
		return
	}
	var kept term
	b, err := h.Get(ctx, state, maxState)
	if err != nil || json.Unmarshal(b, &kept) != nil || kept.Epoch != holds.Epoch || kept.Holder != holds.Holder {
		s.Reason = "it has no handoff document of the router"
		return
	}
	s.Standing = true
}

// askTerm reads /ready, whatever its status.
func askTerm(ctx context.Context, base string) (t term, err error) {
	_, b, err := askFor(ctx, base+"/ready")
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(b, &t)
}

// judgeStandby wants a standby where the fleet has one.
func judgeStandby(v gates.View) []record.Finding {
	s := standsBy(v.Fleet)
	var got Standing
	if s == nil || v.Decode(standingKey, &got) != nil || got.Standing {
		return nil
	}
	return []record.Finding{{Code: "standby-not-following", Host: s.Host, Want: "a standby that follows the router", Got: fmt.Sprintf("%.200q", got.Reason), Evidence: string(standingKey),
		Message: fmt.Sprintf("got %.200q, want a standby that follows the router", got.Reason),
		Hint:    "from its host it must reach " + primary(v.Fleet) + " and the lease; its log lies in that host's run folder as standby.log"}}
}
