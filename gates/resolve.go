package gates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// recorded is what an intent keeps beside its command: how to look at its effect
// again and how to take it back.
type recorded struct {
	Check []string `json:"check,omitempty"`
	File  *filed   `json:"file,omitempty"`
	Undo  *Undo    `json:"undo,omitempty"`
}

// filed is a placed file without its content.
type filed struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

const (
	observeLimit = 30 * time.Second
	exitUndone   = 3 // of a check: the effect is not there
)

func recordedOf(s Step) json.RawMessage {
	rec := recorded{Check: s.Check, Undo: s.Undo}
	if s.File != nil {
		rec.File = &filed{s.File.Path, s.File.SHA256}
	}
	return mustJSON(rec)
}

// resolveUnknown looks again at every intent without an outcome. What a second look
// cannot tell stays unknown until its step has run again.
func (r *Runner) resolveUnknown(ctx context.Context) error {
	for _, a := range r.Record.State().Unknown {
		if a.Effect == record.EffectObserve || (a.Resolved != nil && a.Resolved.Status == record.ResolvedUnclear) {
			continue
		}
		status, how, err := r.lookAgain(ctx, a)
		if err != nil {
			return fmt.Errorf("observe again what %s did on host %s: %w", a.Step, a.Host, err)
		}
		_, err = r.append(record.KindResolved, a.Gate, a.Step, a.Host, record.Resolved{Intent: a.Seq, Status: status, How: how})
		if err != nil {
			return err
		}
	}
	return nil
}

// lookAgain runs the recorded check of an action.
func (r *Runner) lookAgain(ctx context.Context, a record.Action) (status, how string, err error) {
	var rec recorded
	if err := json.Unmarshal(a.Undo, &rec); err != nil {
		return record.ResolvedUnclear, "the intent holds no check", nil
	}
	cmd := remote.Command{Argv: rec.Check, Limit: observeLimit}
	switch {
	case rec.File != nil:
		cmd = remote.Command{Script: digestScript(*rec.File), Limit: observeLimit}
	case len(rec.Check) == 0 || a.Host == "":
		return record.ResolvedUnclear, "nothing can be looked at again", nil
	}
	h, err := r.host(ctx, a.Host)
	if err != nil {
		return "", "", err
	}
	_, err = h.Run(ctx, r.permit(cmd))
	var exit *remote.ExitError
	switch {
	case err == nil:
		return record.ResolvedDone, "its check found the effect", nil
	case errors.As(err, &exit) && exit.Code == exitUndone:
		return record.ResolvedUndone, "its check found no effect", nil
	case errors.As(err, &exit):
		return record.ResolvedUnclear, fmt.Sprintf("its check ended with %d", exit.Code), nil
	}
	return "", "", err
}

// digestScript exits 0 when the file has the digest, 3 when it has not.
func digestScript(f filed) string {
	return fmt.Sprintf(`s=$(sha256sum %[1]s 2>/dev/null || shasum -a 256 %[1]s 2>/dev/null); [ "${s%%%% *}" = %[2]s ] || exit %[3]d`,
		remote.Quote(f.Path), f.SHA256, exitUndone)
}

// supersede settles older unknown intents of a step that has now run to its end.
func (r *Runner) supersede(letter string, s Step, intent int64) error {
	for _, a := range r.Record.State().Unknown {
		if a.Gate == letter && a.Step == s.ID && a.Host == s.Host && a.Seq < intent {
			_, err := r.append(record.KindResolved, letter, s.ID, s.Host, record.Resolved{
				Intent: a.Seq, Status: record.ResolvedUndone, How: fmt.Sprintf("run again to its end by intent %d", intent),
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
