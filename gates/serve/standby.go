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

// runs reports whether a process was seen to run.
func runs(v gates.View, name string) bool {
	was := v.Facts["proc/"+name+"/launch"]
	return was != "" && was != gates.Gone
}

// primary is the router's address as its standby reaches it.
func primary(f fleet.Fleet) string {
	from := ""
	if s := f.Deploy.Router.Standby; s != nil {
		from = s.Host
	}
	return reachedAt(f, f.Deploy.Router.Host, f.Deploy.Router.Listen, from)
}

// reachedAt is the base URL of what listens on a host, as another host reaches it.
func reachedAt(f fleet.Fleet, on, listen, from string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://" + listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if from != "" && from != on {
			host = f.Deploy.Hosts[on].Address
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Standing is what was seen of the standby.
type Standing struct {
	// Before names the process that was about to be ended, "" for the look at the end.
	Before   string          `json:"before,omitempty"`
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

// standingArgs are what the look at the standby is asked; Before as in Standing.
type standingArgs struct {
	Within fleet.Duration `json:"within"`
	Before string         `json:"before,omitempty"`
}

// standingStep looks whether one router follows the other: the standby the router, or the router
// the standby where that one serves and is about to be ended.
func standingStep(within fleet.Duration, before string) gates.Step {
	id, title := "standing", "wait until the standby follows the router"
	switch before {
	case routerName:
		id, title = "follow-router", "wait until the standby can take over from the router"
	case standbyName:
		id, title = "follow-standby", "wait until the router can take over from the standby"
	}
	return local(id, title, standingKey, "standing", within+shortLimit, standingArgs{Within: within, Before: before})
}

// standing asks until the standby waits and keeps a handoff document of the very process that
// holds the lease, or the time is up.
func standing(ctx context.Context, env gates.Env, raw json.RawMessage) ([]byte, error) {
	var a standingArgs
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
	holds, waits, host, name := router, "http://"+addr, s.Host, standbyName
	if a.Before == standbyName {
		holds, waits, host, name = waits, holds, f.Deploy.Router.Host, routerName
	}
	h, err := env.Host(ctx, host)
	if err != nil {
		return nil, err
	}
	out := Standing{Before: a.Before}
	out.WaitedMS, err = await(ctx, a.Within.D(), func() bool {
		out.look(ctx, holds, waits, h, pathOn(f, host, name, "state.json"))
		return out.Standing
	})
	if err != nil {
		return nil, err
	}
	if out.Health, err = get(ctx, waits+"/health"); err != nil {
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
	if s == nil || v.Decode(standingKey, &got) != nil || got.Standing && got.Before == "" {
		return nil
	}
	if got.Standing {
		got.Reason = "the hand-over was not brought to its end"
	}
	return []record.Finding{{Code: "standby-not-following", Host: s.Host, Want: "a standby that follows the router", Got: fmt.Sprintf("%.200q", got.Reason), Evidence: string(standingKey),
		Message: fmt.Sprintf("got %.200q, want a standby that follows the router", got.Reason),
		Hint:    "from its host it must reach " + primary(v.Fleet) + " and the lease; its log lies in that host's run folder as standby.log"}}
}
