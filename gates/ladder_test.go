package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// rung is one of seven gates of which each but A and F changes the host as the real ones do.
type rung struct {
	letter string
	keys   []record.Key
}

var rungs = []rung{
	{"A", []record.Key{"A/inputs"}}, {"B", []record.Key{"B/release/h1"}}, {"C", []record.Key{"C/launch/e"}}, {"D", []record.Key{"D/budget"}},
	{"E", []record.Key{"E/sidecar/e"}}, {"F", []record.Key{"F/engine/e"}}, {"G", []record.Key{"G/router", "G/standby"}},
}

func (g rung) Info() Info                      { return Info{Letter: g.letter, Name: g.letter, Title: g.letter} }
func (g rung) Expect(fleet.Fleet) []record.Key { return g.keys }
func (g rung) Judge(View) []record.Finding     { return nil }

var rungProcs = map[record.Key]string{"C/launch/e": "engine-e", "D/budget": TesterProcess, "E/sidecar/e": "sidecar-e", "G/router": routerProcess, "G/standby": standbyProcess}

func (g rung) Facts(k record.Key, data []byte) map[string]string {
	if k == "B/release/h1" {
		return map[string]string{"host/h1/release": "new"}
	}
	var l Launched
	if rungProcs[k] == "" || json.Unmarshal(data, &l) != nil {
		return nil
	}
	return l.ProcessFacts()
}

func (g rung) Plan(_ context.Context, v View) (Plan, error) {
	var p Plan
	for _, k := range g.keys {
		if !v.Wants(k) {
			continue
		}
		s := Step{ID: string(k), Title: "look", Host: "h1", Effect: Observe, Argv: HostCommand(v.Fleet, "h1", "look", nil), Limit: second}
		switch name := rungProcs[k]; {
		case k == "B/release/h1":
			s.Effect, s.Argv, s.Check = Mutate, HostCommand(v.Fleet, "h1", "switch", nil), HostCommand(v.Fleet, "h1", "release", nil)
			s.Undo = &Undo{Title: "switch back", Argv: HostCommand(v.Fleet, "h1", "switch-back", nil), Limit: second, Restores: "current on h1"}
		case name != "":
			s = LaunchStep(v.Fleet, string(k), "h1", process.Spec{Name: name, Argv: []string{name}, Launch: "launch-of-" + name}, second)
			if g.letter == "G" {
				s.Undo = DrainUndo(v.Fleet, "h1", name, RouterGrace(v.Fleet))
			}
		}
		s.Yields = k
		if n := len(p.Steps); n > 0 {
			s.Needs = []string{p.Steps[n-1].ID}
		}
		p.Steps = append(p.Steps, s)
	}
	return p, nil
}

// ladder is the host of the seven gates.
type ladder struct {
	*world
	mu      sync.Mutex
	procs   map[string]Launched
	release string
	unowned []Unowned
	frozen  map[string]bool // what comes up again although it was stopped
	cut     *int            // requests that a drain cuts
	n       int
	acts    []string     // what changed the host
	ended   func(string) // after an undo took effect
	broken  map[string]error
	lost    map[string]error // after it took effect
}

func (l *ladder) Run(ctx context.Context, c remote.Command) (remote.Result, error) {
	name := nameOf(c)
	if name == "lease" || name == "release-lease" || name == "digest" {
		return l.world.Run(ctx, c)
	}
	op := remote.Operation{Kind: remote.KindRun, Host: "h1", Argv: c.Argv, Script: c.Script, Limit: c.Limit}
	if err := l.policy(op); err != nil {
		return remote.Result{Code: -1}, &remote.PolicyError{Operation: op, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return remote.Result{Code: -1}, context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out, err := l.do(name, c)
	return remote.Result{Stdout: out}, err
}

func (l *ladder) do(name string, c remote.Command) ([]byte, error) {
	var q struct {
		Name string
		Spec process.Spec
	}
	if name != "observe" && json.Unmarshal([]byte(c.Argv[3]), &q) != nil {
		return nil, fmt.Errorf("not scripted: %q", c.Argv)
	}
	subject := strings.TrimSpace(name + " " + q.Name + q.Spec.Name)
	if err := l.broken[subject]; err != nil {
		return nil, err
	}
	switch name {
	case "observe":
		facts := map[string]string{"boot": "b", "release": l.release}
		for n, p := range l.procs {
			facts["proc/"+n+"/id"], facts["proc/"+n+"/launch"] = p.ID, p.Launch
		}
		seen := Seen{Facts: facts}
		if strings.Contains(c.Script, `"listen"`) {
			seen.Unowned = l.unowned
		}
		return mustJSON(seen), nil
	case "launch":
		l.n++
		p := Launched{Name: q.Spec.Name, ID: fmt.Sprint("b:", l.n), Launch: q.Spec.Launch, PID: l.n}
		l.procs[p.Name] = p
		return mustJSON(p), nil
	case "switch":
		l.release = "new"
	case "switch-back":
		l.release = "old"
	case "look", "status", "release":
		return []byte("{}"), nil
	case "stop", "drain":
		p, was := l.procs[q.Name]
		if !l.frozen[q.Name] {
			delete(l.procs, q.Name)
		}
		l.acts = append(l.acts, subject)
		defer l.after(subject)
		if err := l.lost[subject]; err != nil {
			return nil, err
		}
		if name == "drain" {
			return mustJSON(Drained{Stopped: process.Stopped{Name: q.Name, Was: was, PID: p.PID}, ID: p.ID, Cut: l.cut}), nil
		}
		return mustJSON(process.Stopped{Name: q.Name, Was: was, PID: p.PID}), nil
	default:
		return nil, errors.New("not scripted: " + name)
	}
	l.acts = append(l.acts, subject)
	l.after(subject)
	return []byte("{}"), nil
}

func (l *ladder) after(subject string) {
	if l.ended != nil {
		l.ended(subject)
	}
}

// newLadder is a fleet with a router, a standby and one engine on one host.
func newLadder(t testing.TB) (*rig, *ladder) {
	r := newRig(t)
	r.fleet.Engines[0].AttestationURL = "http://192.0.2.11:8110/v1/attestation"
	r.fleet.Deploy.Router.Standby = &fleet.Standby{Host: "h1", Listen: "127.0.0.1:8001"}
	r.fleet.Deploy.Router.Lease.Path = "/srv/lease.json"
	r.gates = nil
	for _, g := range rungs {
		r.gates = append(r.gates, g)
	}
	l := &ladder{world: r.world, procs: map[string]Launched{}, release: "old", frozen: map[string]bool{}, broken: map[string]error{}}
	r.host = l
	return r, l
}
