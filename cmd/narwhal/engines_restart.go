package main

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

func enginesRestartVerb(a *app) *cobra.Command {
	var f engineFlags
	c := &cobra.Command{
		Use: "restart {IID | --all} [flags] [-- COMMAND [ARG...]]", Short: "Drains an engine, has its process restarted, and takes it back",
		Long: "Drains an engine and waits until it may be stopped, has its process restarted, and takes it back as soon as it passes.\n\n" +
			"COMMAND, which runs here and not in a shell, restarts the process. Without one somebody else does, while the router is\n" +
			"asked again and again; that needs a fleet with an engine contract, where processes are told apart. When COMMAND fails,\n" +
			"or a wait is too long, the engine stays drained; the same command goes on.\n\n" +
			"A profile that is bound to the process does not hold for the next one: narwhal profile --only IID --overwrite measures\n" +
			"again, narwhal engines activate IID has the router take that up, and narwhal engines readmit IID takes the engine back.",
		Example: "  narwhal engines restart d1 -- ssh 192.0.2.12 sudo systemctl restart vllm",
		RunE: func(cmd *cobra.Command, args []string) error {
			n := cmd.ArgsLenAtDash()
			var command []string
			if n >= 0 {
				if args, command = args[:n], args[n:]; len(command) == 0 || command[0] == "" {
					return problem.New(problem.Invalid, "invalid_arguments", "no command stands behind --", "give the command that restarts the process, or leave -- out")
				}
			}
			return a.ordered(cmd, &f, args, func(ctx context.Context, r *reached, t lifecycle.Target) (lifecycle.Document, error) {
				s := lifecycle.Restart{Target: t, Deadline: f.deadline, Limit: f.timeout, Seen: a.watch(t),
					Step: func(says string) { fmt.Fprintf(a.err, "narwhal: %s\n", cell(says)) }}
				if command != nil {
					s.Relaunch = func(ctx context.Context) error { return a.relaunch(ctx, command, f.timeout) }
				}
				return s.Run(ctx, r.Client)
			})
		},
	}
	f.order(c)
	f.draining(c)
	return c
}

// relaunched is a command that failed.
type relaunched struct{ cause error }

func (e *relaunched) Error() string { return "the command that restarts it: " + e.cause.Error() }
func (e *relaunched) Unwrap() error { return e.cause }

// relaunch runs the operator's command; what it prints is progress.
func (a *app) relaunch(ctx context.Context, argv []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir, c.Env, c.Stdout, c.Stderr = a.dir, a.environ(), a.err, a.err
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	err := c.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded:
		return context.Cause(ctx)
	case ctx.Err() != nil:
		err = fmt.Errorf("it did not end within %s, and got a SIGTERM; what it had started may still run", limit)
	}
	return &relaunched{err}
}
