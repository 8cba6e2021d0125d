package gates

import (
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// takeUp says in the record, once and before anything else, who took the run up.
func (r *Runner) takeUp() error {
	r.mu.Lock()
	first := !r.resumed
	r.resumed = true
	r.mu.Unlock()
	if first && r.Record.State().Seq > 1 {
		if _, err := r.Record.Append(record.KindResumed, "", "", "", resumedBy()); err != nil {
			return writeError(err)
		}
	}
	return nil
}

func (r *Runner) append(kind record.Kind, gate, step, host string, body any) (record.Event, error) {
	if err := r.takeUp(); err != nil {
		return record.Event{}, err
	}
	ev, err := r.Record.Append(kind, gate, step, host, body)
	if err != nil {
		return ev, writeError(err)
	}
	return ev, nil
}

func (r *Runner) store(media string, b []byte) (record.Ref, error) {
	ref, err := r.Record.Store(media, b)
	if err != nil {
		return ref, writeError(err)
	}
	return ref, nil
}

func writeError(err error) error {
	return problem.Wrap(problem.Failed, "record_write", "write the record", err, "check that the state folder is whole and has space, then run the same command again")
}
