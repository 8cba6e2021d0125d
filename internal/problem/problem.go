// Package problem carries what went wrong, where, and what to do next.
//
// It promises one error type that every room may return and that the edge prints
// once, and the one table from status to exit code. It refuses to decide anything.
package problem

import (
	"errors"
	"fmt"
)

// Status is the outcome of a command.
type Status string

// The outcomes that cli.md §3 fixes.
const (
	Success     Status = "success"
	FailedGate  Status = "failed_gate"
	Invalid     Status = "invalid_input"
	Degraded    Status = "degraded"
	Failed      Status = "error"
	Locked      Status = "locked"
	Refused     Status = "refused"
	Residue     Status = "residue"
	Unverified  Status = "unverified"
	Interrupted Status = "interrupted"
	Terminated  Status = "terminated"
)

// Code is one row of the exit code table.
type Code struct {
	Exit    int
	Status  Status
	Meaning string
}

// Codes is the whole table; documentation is generated from it.
var Codes = []Code{
	{0, Success, "done; every gate or check passed"},
	{1, FailedGate, "a gate, check or threshold said no"},
	{2, Invalid, "flags, fleet file or required inputs are wrong; nothing was started"},
	{3, Degraded, "done in part: something could not be checked, was skipped, or is missing"},
	{4, Failed, "an operation failed: unreachable host, I/O, time limit"},
	{5, Locked, "another run holds the fleet"},
	{6, Refused, "approval missing, policy says no, or the plan is stale"},
	{7, Residue, "a rollback or clean-up left things behind"},
	{8, Unverified, "a signature, digest, chain or attestation does not hold"},
	{130, Interrupted, "SIGINT, after an orderly stop"},
	{143, Terminated, "SIGTERM, after an orderly stop"},
}

// Exit returns the exit code of a status; an unknown status is an error (4).
func (s Status) Exit() int {
	for _, c := range Codes {
		if c.Status == s {
			return c.Exit
		}
	}
	return Failed.Exit()
}

// Problem is one thing that is wrong. Empty fields do not apply.
type Problem struct {
	Status   Status   `json:"-"`
	Code     string   `json:"code"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Field    string   `json:"field,omitempty"`
	Rule     string   `json:"rule,omitempty"`
	Got      string   `json:"got,omitempty"`
	Want     string   `json:"want,omitempty"`
	Gate     string   `json:"gate,omitempty"`
	Host     string   `json:"host,omitempty"`
	Engine   string   `json:"engine,omitempty"`
	Evidence string   `json:"evidence,omitempty"`
	More     []string `json:"more_hints,omitempty"`
	cause    error
}

func (p *Problem) Error() string { return p.Message }

// Unwrap returns the cause, if any.
func (p *Problem) Unwrap() error { return p.cause }

// New makes a problem. The message is complete; a hint says what to do next.
func New(s Status, code, message, hint string) *Problem {
	return &Problem{Status: s, Code: code, Message: message, Hint: hint}
}

// Wrap makes a problem of a cause: "<doing>: <cause>".
func Wrap(s Status, code, doing string, cause error, hint string) *Problem {
	return &Problem{Status: s, Code: code, Message: doing + ": " + words(cause), Hint: hint, cause: cause}
}

// Set is several problems found at once.
type Set []*Problem

func (s Set) Error() string {
	switch len(s) {
	case 0:
		return "no problem"
	case 1:
		return s[0].Message
	}
	return fmt.Sprintf("%s (and %d more)", s[0].Message, len(s)-1)
}

// All returns the problems in err, or nil when it carries none.
func All(err error) []*Problem {
	var set Set
	if errors.As(err, &set) {
		return set
	}
	var p *Problem
	if errors.As(err, &p) {
		return []*Problem{p}
	}
	return nil
}

// StatusOf returns the status that err asks for: Failed unless it carries one.
func StatusOf(err error) Status {
	if err == nil {
		return Success
	}
	for _, p := range All(err) {
		if p.Status != "" {
			return p.Status
		}
	}
	return Failed
}
