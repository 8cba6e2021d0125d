package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// undo runs one step with its own limit. A failure becomes residue, not an end.
func (r *Runner) undo(ctx context.Context, s UndoStep, res *RollbackResult) error {
	note := record.RollbackStep{ID: s.ID, Intent: s.Intent, Summary: s.Title, Status: record.RollbackRunning}
	begun := r.begunBefore(s.ID)
	if _, err := r.append(record.KindRollbackStep, s.Gate, s.ID, s.Host, note); err != nil {
		return err
	}
	step := Step{ID: s.ID, Title: s.Title, Host: s.Host, Effect: Disrupt, Argv: s.Argv, Limit: s.Limit}
	r.Progress.Step(s.Gate, step, 0, nil, false)
	begin := time.Now()
	answer, sent, err := r.runUndo(ctx, s)
	took := time.Since(begin)
	r.Progress.Step(s.Gate, step, took, err, true)
	note.DurationMS, note.Status = took.Milliseconds(), record.RollbackOK
	if len(answer) > 0 {
		ref, serr := r.store("application/json", answer)
		if serr != nil {
			return serr
		}
		note.Output = &ref
	}
	ended, was := readEnded(s, answer)
	switch {
	case err != nil:
		note.Status, note.Error, note.Unsure = record.RollbackFailed, clean(err.Error(), 2000), begun || sent
		if r.closes(s) == 2 {
			res.Residue = append(res.Residue, fmt.Sprintf("%s on host %s: %s", s.Title, s.Host, clean(err.Error(), 300)))
		}
	case was || begun:
		res.Stopped, res.Restored = addNonEmpty(res.Stopped, s.Stops), addNonEmpty(res.Restored, s.Restores)
		if !was && s.drains() {
			res.Findings = append(res.Findings, unseen(s))
		}
	}
	res.Findings = append(res.Findings, ended.notes(s)...)
	if _, werr := r.append(record.KindRollbackStep, s.Gate, s.ID, s.Host, note); werr != nil {
		return werr
	}
	if err != nil && r.closes(s) < 2 && ctx.Err() == nil {
		return stillAdmits(s, err)
	}
	if err != nil {
		return nil
	}
	return r.forgetEarlier(s)
}

// stillAdmits ends a rollback before it takes anything from under a router that serves.
func stillAdmits(s UndoStep, err error) error {
	p := problem.Wrap(problem.Failed, "admission_open", fmt.Sprintf("%s on host %s, so that nothing is taken back under open requests", s.Title, s.Host), err,
		"see that the host is reached and what "+s.Stops+" does there, then run the same rollback again; a standby whose host is lost is left out once the fleet file no longer names it")
	p.Host = s.Host
	return p
}

// readEnded reads what a host says of the end of a process. What says nothing of it did its work.
func readEnded(s UndoStep, answer []byte) (d Drained, was bool) {
	said := struct {
		Was *bool `json:"was_running"`
	}{}
	if json.Unmarshal(answer, &said) != nil || said.Was == nil {
		return d, len(answer) > 0
	}
	if json.Unmarshal(answer, &d) != nil {
		return Drained{}, *said.Was
	}
	return d, *said.Was
}

// drains reports whether what the step stops takes requests.
func (s UndoStep) drains() bool { return s.Stops == routerProcess || s.Stops == standbyProcess }

// unseen tells of an end that came while no attempt looked.
func unseen(s UndoStep) record.Finding {
	return record.Finding{Code: "drain-unseen", Host: s.Host, Note: true, Want: "what the drain cut", Got: "unknown",
		Hint: "its journal has the requests that it ended, and its log below run tells how", Message: s.Stops + " ended under an attempt that was cut off before it said what became of its requests"}
}

// notes tell of a drain that its limit ended.
func (d Drained) notes(s UndoStep) []record.Finding {
	hint := "serving.graceful_timeout_s is what requests get to end"
	switch {
	case d.Killed && s.drains():
		return []record.Finding{{Code: "drain-killed", Host: s.Host, Note: true, Want: "an orderly end", Got: "KILL", Hint: hint, Message: s.Stops + " did not end within its limit and was killed"}}
	case d.Cut != nil && *d.Cut > 0:
		return []record.Finding{{Code: "drain-cut", Host: s.Host, Note: true, Want: "0 requests cut", Got: fmt.Sprint(*d.Cut), Hint: hint, Message: fmt.Sprintf("%s: %d requests were cut by the limit of its drain", s.Stops, *d.Cut)}}
	}
	return nil
}

// begunBefore reports whether an earlier attempt may have had the step's effect: what it
// stopped then no longer runs, and was stopped all the same.
func (r *Runner) begunBefore(id string) bool {
	rb := r.Record.State().Rollback
	if rb == nil {
		return false
	}
	for _, s := range rb.Steps {
		if s.ID == id {
			return s.Status == record.RollbackRunning || s.Unsure
		}
	}
	return false
}

// forgetEarlier settles older actions of the same step: one undo takes them all back.
func (r *Runner) forgetEarlier(s UndoStep) error {
	state := r.Record.State()
	for _, a := range slices.Concat(state.Done, state.Partial, state.Unknown) {
		if a.Gate == s.Gate && "undo/"+a.Step == s.ID && a.Host == s.Host && a.Seq != s.Intent {
			if _, err := r.append(record.KindUndone, s.Gate, a.Step, a.Host, record.Undone{Step: a.Step, Intent: a.Seq, How: "taken back with intent " + fmt.Sprint(s.Intent)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// runUndo runs the undo's command and returns what it printed, and whether the host may have begun it.
func (r *Runner) runUndo(ctx context.Context, s UndoStep) (answer []byte, sent bool, err error) {
	limited, cancel := context.WithTimeout(ctx, s.Limit.D()+graceAfterLimit)
	defer cancel()
	h, err := r.host(limited, s.Host)
	if err != nil {
		return nil, false, err
	}
	out, err := h.Run(limited, r.permit(remote.Command{Argv: s.Argv, Limit: s.Limit.D()}))
	if err != nil {
		return nil, !notBegun(err), withStderr(err, out)
	}
	if out.Truncated || !json.Valid(out.Stdout) {
		return nil, true, errors.New("the host's answer is none")
	}
	return out.Stdout, true, nil
}

// notBegun reports whether a command did not reach its host.
func notBegun(err error) bool {
	var hop *remote.HopError
	var policy *remote.PolicyError
	var command *remote.CommandError
	return errors.As(err, &hop) || errors.As(err, &policy) || errors.As(err, &command)
}

// StopUndo is the undo of a started process: stop it by its recorded identity.
func StopUndo(f fleet.Fleet, host, name string, within fleet.Duration) *Undo {
	return &Undo{
		Title: "stop " + name, Stops: name, Limit: within + fleet.Duration(10*time.Second),
		Argv: HostCommand(f, host, "stop", StopRequest{Root: f.Deploy.Hosts[host].Root, Name: name, Within: within}),
	}
}
