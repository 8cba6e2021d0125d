package gates

import (
	"errors"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
)

// ErrUnplanned refuses a command that no plan holds.
var ErrUnplanned = errors.New("the command is in no plan")

// permit lets one command pass the guard. Only steps of plans, their checks and undos,
// the live look and the lease come here.
func (r *Runner) permit(c remote.Command) remote.Command {
	r.guard.Store(guardKey(c.Argv, c.Script), true)
	return c
}

// Guard is the policy in front of every operation on a host: commands and files must
// come from a plan; reading and connecting change nothing and pass.
func (r *Runner) Guard(op remote.Operation) error {
	switch op.Kind {
	case remote.KindRun:
		if _, ok := r.guard.Load(guardKey(op.Argv, op.Script)); !ok {
			return ErrUnplanned
		}
	case remote.KindPut:
		if _, ok := r.guard.Load(guardFile(op.Path, op.SHA256)); !ok {
			return ErrUnplanned
		}
	}
	return nil
}

func guardFile(path, digest string) string { return "put\x00" + path + "\x00" + digest }

func guardKey(argv []string, script string) string {
	return "run\x00" + script + "\x00" + strings.Join(argv, "\x00")
}
