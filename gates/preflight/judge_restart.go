package preflight

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// judgeRestarts judges the drills that the fleet asks for.
func judgeRestarts(v gates.View) (out []record.Finding) {
	engines, undrilled := drilledOf(v.Fleet)
	for _, e := range engines {
		var r Restarted
		if v.Decode(RestartKey(e.IID), &r) != nil {
			continue // the runner reports missing evidence
		}
		x := &finder{fleet: v.Fleet, engine: e.IID, evidence: RestartKey(e.IID)}
		judgeRestart(x, r)
		out = append(out, x.found...)
	}
	for _, role := range undrilled {
		out = append(out, undrilledNote(role))
	}
	return out
}

func judgeRestart(x *finder, r Restarted) {
	if !r.Back {
		x.add("restart-not-back", "an engine that answers after it was launched again", r.Reason, "see engine-"+r.IID+".log; narwhal gate run C launches it and names the cause")
		return
	}
	if b, a := r.Before, r.After; a.Identity == b.Identity || a.Launch != b.Launch || a.ProcessStart != 0 && a.ProcessStart == b.ProcessStart || a.Version != b.Version {
		x.add("restart-generation", fmt.Sprintf("another process of launch %.12s and version %s", b.Launch, b.Version),
			fmt.Sprintf("process %s after %s, launch %.12s, version %s, process start %.6f after %.6f", a.Identity, b.Identity, a.Launch, a.Version, a.ProcessStart, b.ProcessStart),
			"something else answers on the engine's port, or its launcher ran another command: narwhal gate run --again C")
	}
	if s := r.Signed[0]; s.Status != http.StatusOK {
		x.add("restart-unattested", "a signed statement over the first process", s.said(), "narwhal gate run --again E starts the sidecar anew")
	} else if s := r.Signed[1]; s.Status == http.StatusOK || s.Status == 0 {
		x.add("restart-still-attested", "a sidecar that refuses to sign once its process is gone", s.said(), "a sidecar that does not notice a restart would vouch for any process: check the release on the host, narwhal gate run --again E")
	}
	for _, g := range []struct {
		when string
		g    *Given
	}{{"while nothing ran", r.Down}, {"after the restart", r.Old}} {
		if g.g != nil && (g.g.Error == "" || g.g.Tokens > 0) {
			x.add("restart-old-handoff", "a peer that refuses a handoff of a process that is gone", fmt.Sprintf("%s generated %d tokens from it %s", r.Peer, g.g.Tokens, g.when),
				"it computed the prompt itself, or read somebody else's cache: check kv_load_failure_policy and engine_id of the connector")
		}
	}
	if id := r.After.EngineID; id != "" && id == r.Before.EngineID {
		x.add("restart-engine-id", "another engine id in the handoffs of another process", id, "leave engine_id out of the connector's configuration: with one id, an old handoff reads new cache")
	}
	if why := r.Failed[checkUnsplit]; why != "" || len(r.Unsplit[1]) == 0 || !slices.Equal(r.Unsplit[0], r.Unsplit[1]) {
		x.add("restart-output", fmt.Sprintf("tokens %v as before", r.Unsplit[0]), fmt.Sprintf("%v %s", r.Unsplit[1], why), "the launch is not the same, or the engine is not deterministic: compare its log with the one before")
	}
	for _, c := range []struct {
		h              *Handed
		check, to, end string
	}{{r.From, checkFrom, r.IID, r.Peer}, {r.To, checkTo, r.Peer, r.IID}} {
		why := r.Failed[c.check]
		if c.h == nil || why == "" && c.h.equal() && c.h.moved() && !c.h.Restarted {
			continue
		}
		if why == "" {
			why = fmt.Sprintf("tokens %v, %v unsplit, %.0f by transfer, %.0f failed", c.h.Split, c.h.Unsplit, c.h.Moved, c.h.Failed)
		}
		x.add("restart-handoff", fmt.Sprintf("a handoff %s → %s with the tokens of an unsplit run", c.to, c.end), why,
			"the peer did not meet the new process: see engine-"+r.Peer+".log; restart it too, and plan restarts as a wave")
	}
}

func (s Signing) said() string {
	if s.Status == 0 {
		return "no answer: " + s.Error
	}
	return fmt.Sprintf("status %d %s", s.Status, s.Code)
}
