package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

// shownIDs is how many engines a hint names.
const shownIDs = 20

// problem is what went wrong with an order, with the way on.
func (r *reached) problem(ctx context.Context, verb string, t lifecycle.Target, d lifecycle.Document, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	doing := verb + " " + t.String()
	named := t.IID
	if t.All {
		named = "--all"
	}
	var p *problem.Problem
	var left *lifecycle.Left
	var refusal *lifecycle.Refusal
	var denied *lifecycle.Denied
	var unknown *lifecycle.Unknown
	var late *lifecycle.Late
	var outdated *lifecycle.Outdated
	var stuck *lifecycle.Stuck
	var same *lifecycle.Same
	var untold *lifecycle.Untold
	var failed *relaunched
	switch {
	case errors.As(err, &untold):
		p = problem.Wrap(problem.Degraded, "restart_by_hand", doing, err, "restart the process, then narwhal engines readmit "+named+"; or give the command that does behind --")
	case errors.As(err, &failed):
		p = problem.Wrap(problem.Failed, "relaunch_failed", doing, err, "it stays drained: the same command tries again, narwhal engines readmit "+named+" takes it back")
	case errors.As(err, &same):
		p = problem.Wrap(problem.Degraded, "same_process", doing, err, "let the command behind -- end only after the old process has")
	case errors.As(err, &outdated):
		p = profileOfBefore(r, doing, named, outdated)
	case errors.As(err, &late):
		p = problem.Wrap(problem.Failed, "not_in_time", doing, err, "the order stands, and the same command goes on; narwhal engines release "+named+" takes it back")
	case errors.As(err, &unknown):
		p = problem.Wrap(problem.Invalid, "unknown_engine", doing, err, "known: "+knownIDs(unknown.Known))
	case errors.As(err, &denied):
		p = problem.Wrap(problem.Refused, "control_denied", doing, err, deniedHint(denied))
	case errors.As(err, &refusal):
		p = r.refused(ctx, verb, named, refusal, t, d)
	case errors.As(err, &stuck):
		p = problem.Wrap(problem.Failed, "order_stuck", doing, err, "narwhal engines list shows where it stands")
	case errors.Is(err, context.DeadlineExceeded):
		p = problem.New(problem.Failed, "not_in_time", doing+": the router did not answer in time", "narwhal engines list shows where it stands; --timeout allows more")
	default:
		return r.unanswered(ctx, doing, err)
	}
	if errors.As(err, &left) && !errors.As(err, &untold) {
		p.More = append(p.More, "narwhal engines list shows where it stands")
	}
	p.Engine = t.IID
	return p
}

// profileOfBefore: the engines came back as processes that nobody has measured, which no wait mends.
func profileOfBefore(r *reached, doing, named string, e *lifecycle.Outdated) *problem.Problem {
	return problem.Wrap(problem.FailedGate, "profile_of_before", doing, e, "waiting does not mend this, a new profile does: "+newProfile(r, e.IIDs, ", then narwhal engines readmit "+named))
}

// newProfile says how engines that were started anew get profiles that a router which serves takes up,
// and what takes them back then.
func newProfile(r *reached, ids []string, then string) string {
	ids = ids[:min(len(ids), shownIDs)]
	if r.tunnel != nil {
		return "narwhal gate replace " + strings.Join(ids, " ") + " starts and measures it anew, and takes it back"
	}
	return "narwhal profile -f FLEET --only " + strings.Join(ids, " --only ") + " --overwrite, then narwhal engines activate " + strings.Join(ids, " ") + then
}

// refused words a refusal. Of an engine that no order holds, the router's state says why it is out.
func (r *reached) refused(ctx context.Context, verb, named string, e *lifecycle.Refusal, t lifecycle.Target, d lifecycle.Document) *problem.Problem {
	doing := verb + " " + t.String()
	back := verb == "release" || verb == "readmit" || verb == "restart"
	if old := t.Outdated(d); old != nil && back {
		return profileOfBefore(r, doing, named, old)
	}
	if back && !t.All && !t.Held(d) && !d.Engines[t.IID].Accepts && d.Router.Controls && r.Client != nil {
		s, err := r.State(ctx)
		for _, l := range s.List {
			if err == nil && l.IID == t.IID && l.Ejected {
				return problem.New(problem.Refused, "engine_ejected", doing+": no order holds it, so that none can take it back; it is out, "+l.Reason,
					"the router takes it back by itself once it passes: narwhal check -f FLEET --only "+t.IID+" says at what it fails; start a process anew that does not get well; a new process needs a profile: "+newProfile(r, []string{t.IID}, ""))
			}
		}
	}
	return refusedOrder(verb, named, e, t, d)
}

// unanswered is the problem of a router that said nothing of use.
func (r *reached) unanswered(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var strange *lifecycle.Strange
	if errors.As(err, &strange) {
		return problem.Wrap(problem.Failed, "router_answer", doing+": "+r.url, err, "does a router answer there? --url names another address")
	}
	if errors.Is(err, context.DeadlineExceeded) && r.tunnel == nil {
		return problem.Wrap(problem.Failed, "router_unreachable", doing+": reach "+r.url, err, "something listens there and does not answer: does the router hang? its log and GET /health say more; --url names another address")
	}
	hint := "start the router with narwhal serve, give its address with --url, or a fleet file with deploy with -f"
	if r.tunnel != nil {
		if _, why := r.tunnel.Failures(); why != nil {
			err = why
		}
		hint = "narwhal gate status --live says what holds; narwhal gate run starts the router with gate G"
	}
	return problem.Wrap(problem.Failed, "router_unreachable", doing+": reach "+r.url, err, hint)
}

// refusedOrder words the router's refusal: it does not control the fleet, an engine failed its
// validation, or the order does not fit.
func refusedOrder(verb, named string, e *lifecycle.Refusal, t lifecycle.Target, d lifecycle.Document) *problem.Problem {
	doing, blocked := verb+" "+t.String(), t.Blocked(d)
	text := e.Error()
	if _, fault, _ := strings.Cut(blocked, ": "); blocked != "" && (fault == "" || !strings.Contains(text, fault)) {
		text += ": " + blocked
	}
	switch {
	case e.Status == http.StatusServiceUnavailable && !d.Router.Controls:
		return problem.New(problem.Failed, "not_in_control", doing+": "+text, "give the order to the router that serves, with --url")
	case e.Status == http.StatusServiceUnavailable:
		return problem.New(problem.Failed, "engine_blocked", doing+": "+text, "the engine is held out; narwhal engines drain "+named+" asks again who it is")
	case blocked != "" && (verb == "release" || verb == "readmit"):
		p := problem.New(problem.FailedGate, "validation_failed", doing+": "+text, "mend that, then narwhal engines readmit "+named)
		if done := d.Engines[t.IID].Checks; len(done) > 0 {
			p.More = []string{"passed before: " + strings.Join(done[:min(len(done), shownIDs)], ", ")}
		}
		return p
	}
	return problem.New(problem.Refused, "order_refused", doing+": "+text, "narwhal engines list shows where every engine stands")
}

func deniedHint(e *lifecycle.Denied) string {
	if e.Sent {
		return "the token that was sent is not the router's: --control-token env:NAME or file:PATH names another, deploy.router.http.control_token of the fleet file counts without it"
	}
	return "--control-token env:NAME or file:PATH names the token that the router was started with; a fleet file with deploy.router.http.control_token, given with -f, names it too"
}

func knownIDs(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	if len(ids) > shownIDs {
		ids = append(ids[:shownIDs:shownIDs], "…")
	}
	return strings.Join(ids, ", ")
}
