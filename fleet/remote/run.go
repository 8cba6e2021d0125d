package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/ssh"
)

// endGrace is how long a cancelled command may take: the two seconds between TERM and KILL on the
// host, and the way there and back.
const endGrace = 6 * time.Second

// Result is what a command left.
type Result struct {
	Stdout []byte // untrusted bytes; secrets of the command are masked
	Stderr []byte
	// Code is the exit code, 128 + n for signal n, -1 when it is not known.
	Code int
	// Truncated says that stdout or stderr was longer than what is kept.
	Truncated bool
	Duration  time.Duration
}

// Run runs a command to its end. The error is nil only for exit code 0: otherwise *ExitError,
// *LimitError, the context's cause, *LostError (the outcome is unknown), *HopError (not begun),
// *PolicyError or *CommandError (not begun). The result holds what output there is in each case.
// Exit code 125 with a line "narwhal: …" means that the host could not prepare the command.
func (h *Host) Run(ctx context.Context, c Command) (Result, error) {
	if reason := c.check(); reason != "" {
		return Result{Code: -1}, &CommandError{Host: h.id, Reason: reason}
	}
	op := c.operation(h.id)
	if err := h.permit(op); err != nil {
		return Result{Code: -1}, err
	}
	started := h.opts.Now()
	res, err := h.run(ctx, c)
	res.Duration = h.opts.Now().Sub(started)
	h.trace(op, started, Outcome{Err: err, Code: res.Code, Bytes: int64(len(res.Stdout) + len(res.Stderr))})
	return res, err
}

// run is Run without the policy.
func (h *Host) run(ctx context.Context, c Command) (Result, error) {
	none := Result{Code: -1}
	line := c.line()
	if len(line) > maxLine {
		return none, &CommandError{Host: h.id, Reason: fmt.Sprintf("the command line has %d bytes, %d are the most: send it as a file or as input", len(line), maxLine)}
	}
	if err := h.acquire(ctx); err != nil {
		return none, err
	}
	defer h.release()
	s, err := h.session(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	limit := c.MaxOutput
	if limit == 0 {
		limit = h.opts.MaxOutput
	}
	stdout, stderr := newCapture(limit, c.SecretEnv), newCapture(limit, c.SecretEnv)
	s.Stdout, s.Stderr = stdout, stderr
	err = h.wait(ctx, s, c, line)
	res := Result{Code: -1}
	var cutOut, cutErr bool
	res.Stdout, cutOut = stdout.bytes()
	res.Stderr, cutErr = stderr.bytes()
	res.Truncated = cutOut || cutErr
	return res, h.settle(ctx, c, &res, err)
}

// settle turns the end of a session into a code and an error.
func (h *Host) settle(ctx context.Context, c Command, res *Result, err error) error {
	var exit *ssh.ExitError
	var limit *LimitError
	var refused *HopError
	switch {
	case err == nil:
		res.Code = 0
		return nil
	case errors.As(err, &exit):
		res.Code = exit.ExitStatus()
		return &ExitError{Host: h.id, Command: c.name(), Code: res.Code, LastLine: lastLine(res.Stderr)}
	case errors.As(err, &limit), errors.As(err, &refused):
		return err
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return fmt.Errorf("run %s on host %s: %w", printable(c.name()), h.id, err)
	}
	return h.outcomeUnknown(err)
}

// outcomeUnknown is the error of a session that ended without an exit status.
func (h *Host) outcomeUnknown(err error) error {
	select {
	case <-h.conn.lost:
		return h.lostError()
	case <-time.After(parentGrace):
	}
	return &LostError{Host: h.id, Hop: h.id, Err: err}
}

// wait starts the command and waits for its end. A context or limit that ends first closes the
// command's standard input, which makes the wrapper kill the process group.
func (h *Host) wait(ctx context.Context, s *ssh.Session, c Command, line string) error {
	stdin, err := s.StdinPipe()
	if err != nil {
		return h.channelError(err)
	}
	if err := s.Start(line); err != nil {
		return h.channelError(err)
	}
	done := make(chan error, 1)
	h.background.Go(func() { done <- s.Wait() })
	h.background.Go(func() { feed(stdin, c.head()) })
	return h.watch(ctx, s, c, stdin, done)
}

// feed writes what the wrapper reads before the command starts. When that fails the session is
// over, and its end says why.
func feed(stdin io.Writer, head []byte) {
	if len(head) > 0 {
		_, _ = stdin.Write(head)
	}
}

func (h *Host) watch(ctx context.Context, s *ssh.Session, c Command, stdin io.Closer, done <-chan error) error {
	var expired <-chan time.Time
	if c.Limit > 0 {
		timer := time.NewTimer(c.Limit)
		defer timer.Stop()
		expired = timer.C
	}
	var reason error
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		reason = context.Cause(ctx)
	case <-expired:
		reason = &LimitError{Host: h.id, Command: c.name(), Limit: c.Limit}
	}
	_ = stdin.Close()
	select {
	case <-done:
	case <-time.After(endGrace):
		// The server keeps the channel for as long as its process hangs: it is left to that.
		_ = s.Close()
	}
	return reason
}
