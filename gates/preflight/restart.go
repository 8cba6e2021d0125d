package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/internal/process"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// RestartRequest asks to stop one engine, launch it again and look at what that does.
type RestartRequest struct {
	Root    string `json:"root"`
	Name    string `json:"name"`             // of its process
	Launch  string `json:"launch,omitempty"` // that must run; "" = any
	IID     string `json:"iid"`
	URL     string `json:"url"`
	Dialect string `json:"dialect"`
	Model   string `json:"model"`
	Tokens  int    `json:"tokens"` // of the prompts
	// Peer is an engine that hands over to this one and takes from it, "" for none.
	Peer    string `json:"peer,omitempty"`
	PeerURL string `json:"peer_url,omitempty"`
	// Attest is the address of the engine's sidecar.
	Attest string `json:"attestation_url,omitempty"`
	// Secrets are the variables without which the engine cannot be launched.
	Secrets []string `json:"secrets,omitempty"`
	// Stop is the time to end by itself, Within that to answer again.
	Stop   fleet.Duration `json:"stop_within"`
	Within fleet.Duration `json:"ready_within"`
	// Key names the variable that holds the engines' key, "" for none.
	Key string `json:"key,omitempty"`
}

// Restarted is what a restart did.
type Restarted struct {
	IID    string     `json:"iid"`
	Peer   string     `json:"peer,omitempty"`
	Before Generation `json:"before"`
	After  Generation `json:"after"`
	// Back is false where the engine did not answer again in time; Reason says why.
	Back      bool    `json:"back"`
	Reason    string  `json:"reason,omitempty"`
	StoppedMS float64 `json:"stopped_ms"`
	BackMS    float64 `json:"back_ms"` // from its launch until it answered
	// Signed are the sidecar's answers to a nonce, before and after.
	Signed [2]Signing `json:"statements"`
	// Down and Old are handoffs of the stopped process that the peer was given while nothing ran
	// and after the restart.
	Down *Given `json:"handoff_while_down,omitempty"`
	Old  *Given `json:"handoff_of_old_process,omitempty"`
	// Unsplit is the answer to one prompt by the old and by the new process.
	Unsplit [2][]int `json:"unsplit_token_ids"`
	// From and To are handoffs of the new process to its peer and from it.
	From *Handed `json:"handoff_from,omitempty"`
	To   *Handed `json:"handoff_to,omitempty"`
	// Failed says what kept a check from being made, by check.
	Failed map[string]string `json:"failed,omitempty"`
}

// Generation tells one process of an engine from the next.
type Generation struct {
	process.Identity
	Launch       string  `json:"launch"`
	Version      string  `json:"version"`
	ProcessStart float64 `json:"process_start"`
	// EngineID is what it calls itself in handoffs.
	EngineID string `json:"engine_id,omitempty"`
}

// Given is what a peer answered to a handoff of a process that is gone.
type Given struct {
	EngineID string `json:"engine_id"`
	Tokens   int    `json:"tokens"` // that it generated from it
	Error    string `json:"error,omitempty"`
}

// hands stop and start the engine.
type hands interface {
	// running is the process that runs now.
	running() (process.Record, bool)
	stop(context.Context) error
	start(context.Context) (process.Record, error)
}

const (
	restartPoll  = 100 * time.Millisecond
	refuseWithin = 30 * time.Second // a peer may take so long to refuse a handoff
)

// errServing keeps the drill from an engine that has requests.
var errServing = errors.New("the engine has requests: drain it first, with POST /narwhal/lifecycle/drain to the router")

// restart stops the engine and launches it again. Once it was stopped it is launched again
// whatever else happens.
func restart(ctx context.Context, q RestartRequest, h hands) (out Restarted, err error) {
	out = Restarted{IID: q.IID, Peer: q.Peer, Failed: map[string]string{}}
	x, err := newRestarter(ctx, q, h)
	if err != nil {
		return out, err
	}
	defer x.close()
	held, err := x.before(ctx, &out)
	if err != nil {
		return out, err
	}
	begin := time.Now()
	down := false
	defer func() {
		if down { // the drill was cut off between stop and start
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.Within.D())
			defer cancel()
			_, serr := h.start(limited)
			err = errors.Join(err, serr)
		}
	}()
	down = true
	if err := h.stop(ctx); err != nil {
		return out, err
	}
	out.StoppedMS = ms(begin)
	x.give(ctx, &out.Down, held, 0)
	if err := ctx.Err(); err != nil {
		return out, err
	}
	begin = time.Now()
	r, err := h.start(ctx)
	if err != nil {
		down = false
		out.Reason = engine.Printable(err.Error(), longText)
		return out, nil
	}
	down = false
	out.After.Identity, out.After.Launch = r.Identity, r.Launch
	if out.Reason = x.untilBack(ctx, &out); out.Reason != "" {
		return out, ctx.Err()
	}
	out.Back, out.BackMS = true, ms(begin)
	x.after(ctx, &out, held)
	return out, ctx.Err()
}

// untilBack waits until the launched process answers; it says why it does not.
func (x *restarter) untilBack(ctx context.Context, out *Restarted) string {
	ctx, cancel := context.WithTimeout(ctx, x.q.Within.D())
	defer cancel()
	for {
		why := x.looks(ctx, &out.After)
		if why == "" {
			return ""
		}
		if r, ok := x.h.running(); !ok || r.Identity != out.After.Identity {
			return "the launched process has ended: " + why
		}
		if !pause.For(ctx, restartPoll) {
			return why
		}
	}
}

// looks fills in what the engine says of itself.
func (x *restarter) looks(ctx context.Context, g *Generation) string {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := x.d.Ready(ctx, x.p.client); err != nil {
		return engine.Printable(err.Error(), longText)
	}
	models, err := x.p.client.Models(ctx)
	if err == nil && !slices.ContainsFunc(models, func(m engine.Model) bool { return m.ID == x.q.Model }) {
		err = fmt.Errorf("it serves no model %s", x.q.Model)
	}
	id, ierr := x.d.Identity(ctx, x.p.client)
	if err = errors.Join(err, ierr); err != nil {
		return engine.Printable(err.Error(), longText)
	}
	g.Version, g.ProcessStart = engine.Printable(id.Version, 64), id.ProcessStart
	return ""
}

// relaunch is the undo: it launches what was launched last, unless it runs.
func relaunch(ctx context.Context, q RestartRequest) (json.RawMessage, error) {
	h := &onHost{q: q}
	if err := h.open(); err != nil {
		return nil, err
	}
	if _, ok := h.running(); !ok {
		if _, err := h.start(ctx); err != nil {
			return nil, err
		}
	}
	return json.RawMessage("{}"), nil
}
