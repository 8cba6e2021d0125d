package preflight

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// RestartKey is expected of one engine of each role where deploy.policy.restart_drill asks for it.
func RestartKey(e string) record.Key { return record.NewKey("F", "restart", e) }

// roles in the order in which they are drilled.
var roles = []string{"prefill", "decode"}

// roleOf is the role in which an engine starts.
func roleOf(e fleet.Engine) string {
	if e.Role == roles[0] {
		return roles[0]
	}
	return roles[1]
}

// drilled are the engines that are restarted: the first of each role whose one process is the
// engine. Undrilled are roles that have engines, and none of that kind.
func drilledOf(f fleet.Fleet) (engines []fleet.Engine, undrilled []string) {
	if f.Deploy == nil || !f.Deploy.Policy.RestartDrill {
		return nil, nil
	}
	alike := concurrent(f)
	for _, role := range roles {
		of := func(e fleet.Engine) bool { return roleOf(e) == role }
		i := slices.IndexFunc(f.Engines, func(e fleet.Engine) bool { return !alike && of(e) && len(f.Deploy.Engines[e.IID].Workers) == 0 })
		switch {
		case i >= 0:
			engines = append(engines, f.Engines[i])
		case slices.ContainsFunc(f.Engines, of):
			undrilled = append(undrilled, role)
		}
	}
	return engines, undrilled
}

// peerOf is the engine that a drilled one hands over to: one of the other role, else any.
func peerOf(f fleet.Fleet, e fleet.Engine) (fleet.Engine, bool) {
	other := slices.IndexFunc(f.Engines, func(x fleet.Engine) bool { return x.IID != e.IID && roleOf(x) != roleOf(e) })
	if other < 0 {
		other = slices.IndexFunc(f.Engines, func(x fleet.Engine) bool { return x.IID != e.IID })
	}
	if other < 0 {
		return fleet.Engine{}, false
	}
	return f.Engines[other], true
}

const relaunchLimit = fleet.Duration(10 * time.Minute)

func restartStep(f fleet.Fleet, e fleet.Engine) (gates.Step, error) {
	r, err := f.Resolve(e.IID)
	if err != nil {
		return gates.Step{}, err
	}
	h, name := f.HostOf(e.IID), fleet.RankProcess(e.IID, 0)
	q := RestartRequest{Root: f.Deploy.Hosts[h].Root, Name: name, Launch: r.Digest(), IID: e.IID, URL: e.URL, Dialect: f.Engine.Dialect, Model: f.Model, Tokens: f.Deploy.Profile.PairTokens,
		Attest: e.AttestationURL, Stop: r.StopAfter, Within: r.Within, Key: f.Engine.EngineAPIKeyEnv, Secrets: slices.Sorted(maps.Keys(r.Secrets))}
	if q.Stop <= 0 {
		q.Stop = fleet.Duration(30 * time.Second)
	}
	if q.Within <= 0 {
		q.Within = relaunchLimit
	}
	exclusive := devices(e)
	if p, ok := peerOf(f, e); ok {
		q.Peer, q.PeerURL = p.IID, p.URL
		for _, x := range devices(p) {
			if !slices.Contains(exclusive, x) {
				exclusive = append(exclusive, x)
			}
		}
	}
	undo := RestartRequest{Root: q.Root, Name: q.Name, IID: q.IID, Secrets: q.Secrets}
	s := withKey(f, gates.Step{ID: string(RestartKey(e.IID)), Title: "restart engine " + e.IID, Host: h, Engine: e.IID, Effect: gates.Disrupt, Yields: RestartKey(e.IID),
		Limit: q.Stop + q.Within + fleet.Duration(10*time.Minute), Exclusive: exclusive, Argv: gates.HostCommand(f, h, "restart-drill", q),
		Check: gates.HostCommand(f, h, "status", gates.StatusRequest{Root: q.Root, Name: name, Launch: q.Launch}),
		Undo:  &gates.Undo{Title: "launch engine " + e.IID + " where it does not run", Argv: gates.HostCommand(f, h, "relaunch", undo), Limit: fleet.Duration(time.Minute)}})
	secrets := maps.Clone(r.Secrets)
	if secrets == nil {
		secrets = map[string]fleet.SecretRef{}
	}
	maps.Copy(secrets, s.Secrets)
	if s.Secrets = nil; len(secrets) > 0 {
		s.Secrets = secrets
	}
	return s, nil
}

// restartFacts are the process that a drill launched.
func restartFacts(key record.Key, data []byte) map[string]string {
	var r Restarted
	if key.Kind() != "restart" || json.Unmarshal(data, &r) != nil || r.After.PID == 0 {
		return nil
	}
	name := fleet.RankProcess(key.Subjects()[0], 0)
	return gates.Launched{Name: name, ID: r.After.Identity.String(), Launch: r.After.Launch}.ProcessFacts()
}

// undrilledNote says that a role has no engine that the drill may restart.
func undrilledNote(role string) record.Finding {
	const got = "engines of several ranks, or of a dialect with roles, only"
	return record.Finding{Code: "restart-undrilled", Note: true, Want: "an engine in the role " + role + " that is one process", Got: got, Evidence: "F/restart",
		Message: fmt.Sprintf("no engine in the role %s was restarted: there are %s", role, got), Hint: "restart one by hand, and let narwhal gate run look at it"}
}
