package gates

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"
	"unicode"

	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Progress is told what happens, for a person. Its methods are called from several
// goroutines.
type Progress interface {
	Gate(info Info, state, why string, findings []record.Finding)
	Step(gate string, s Step, took time.Duration, err error, ended bool)
	Note(s Step, text string)
}

// Quiet is a Progress that says nothing.
type Quiet struct{}

func (Quiet) Gate(Info, string, string, []record.Finding)   {}
func (Quiet) Step(string, Step, time.Duration, error, bool) {}
func (Quiet) Note(Step, string)                             {}

// mustJSON marshals plain data, which always succeeds.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("marshal %T: %v", v, err))
	}
	return b
}

// clean makes foreign text printable and bounds it.
func clean(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	if len(s) > max {
		s = strings.ToValidUTF8(s[:max], "") + "…"
	}
	return s
}

// withStderr adds what a failed command said to its error.
func withStderr(err error, res remote.Result) error {
	var exit *remote.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	said := strings.TrimSpace(clean(strings.TrimPrefix(string(res.Stderr), "narwhal: error: "), 600))
	if said == "" {
		return err
	}
	return &saidError{said: said, err: err}
}

// saidError is a remote command's own account of its failure.
type saidError struct {
	said string
	err  error
}

func (e *saidError) Error() string { return e.said }
func (e *saidError) Unwrap() error { return e.err }

func hintOf(err error) string {
	for _, p := range problem.All(err) {
		if p.Hint != "" {
			return p.Hint
		}
	}
	return remote.Hint(err)
}

// statusOf picks the status of a gate whose steps failed: an operation failed, unless
// an identity did not hold.
func statusOf(errs []StepError) problem.Status {
	status := problem.Failed
	for _, e := range errs {
		if s := StatusOf(e.Err); s == problem.Unverified || s == problem.Refused {
			status = s
		}
	}
	return status
}

// StatusOf classifies an error of a host operation.
func StatusOf(err error) problem.Status {
	var changed *remote.ChangedHostKeyError
	var unknown *remote.UnknownHostKeyError
	var policy *remote.PolicyError
	switch {
	case problem.All(err) != nil:
		return problem.StatusOf(err)
	case errors.As(err, &changed), errors.As(err, &unknown):
		return problem.Unverified
	case errors.As(err, &policy):
		return problem.Refused
	}
	return problem.Failed
}

func resumedBy() record.Resumed {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		name += "@" + h
	}
	return record.Resumed{PID: os.Getpid(), By: name}
}
