package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// result is what a verb hands back: data for JSON, a printer for people.
type result struct {
	status    problem.Status
	operation string
	data      any
	artifacts []artifact
	problems  []*problem.Problem
	text      func(io.Writer)
	// raw is written as it is in place of the envelope (documents, completion scripts).
	raw []byte
}

// artifact is a file that a verb wrote or used.
type artifact struct {
	Kind  string `json:"kind"`
	Path  string `json:"path"`
	State string `json:"state"` // created | updated | existing | missing
}

// envelope is narwhal.command-result version 1.
type envelope struct {
	Schema        string             `json:"schema"`
	SchemaVersion int                `json:"schema_version"`
	Command       string             `json:"command"`
	Operation     string             `json:"operation"`
	Status        problem.Status     `json:"status"`
	ExitCode      int                `json:"exit_code"`
	Data          any                `json:"data"`
	Artifacts     []artifact         `json:"artifacts"`
	Errors        []*problem.Problem `json:"errors"`
}

// finish prints the result or the problem once and returns the exit code.
func (a *app) finish(path string, err error) int {
	r := a.result
	if r == nil {
		r = &result{status: problem.Success}
	}
	if err != nil {
		r.status = problem.StatusOf(err)
		if ps := problem.All(err); ps != nil {
			r.problems = append(r.problems, ps...)
		} else {
			r.problems = append(r.problems, problem.Of(r.status, "operation_failed", err))
		}
	}
	for _, p := range r.problems {
		if p.Code == "interrupted" && p.Hint == again && strings.HasPrefix(path, "narwhal gate") {
			p.Hint += "; a gate run goes on where its record ends"
		}
	}
	if r.status == "" {
		r.status = problem.Success
	}
	asJSON := a.format == "json" && r.raw == nil
	out, encodeErr := r.bytes(path, asJSON)
	if encodeErr != nil && a.lost == nil {
		a.lost = encodeErr
	}
	if a.lost == nil && len(out) > 0 {
		to := a.out
		if r.raw != nil {
			to = bare(to) // a document, whose bytes are what was asked for
		}
		_, a.lost = to.Write(out)
	}
	if !asJSON {
		printProblems(a.err, r.problems)
	}
	return a.exit(r.status)
}

// exit is the code of a status, unless its result was lost on the way. A reader that went
// away, such as head, had what it wanted.
func (a *app) exit(s problem.Status) int {
	if a.lost == nil || errors.Is(a.lost, syscall.EPIPE) || errors.Is(a.lost, io.ErrClosedPipe) {
		return s.Exit()
	}
	printProblems(a.err, []*problem.Problem{problem.Wrap(problem.Failed, "output_lost", "write the result", a.lost, "check where standard output goes")})
	return problem.Failed.Exit()
}

// bytes is everything that goes to standard output.
func (r *result) bytes(path string, asJSON bool) ([]byte, error) {
	var b bytes.Buffer
	switch {
	case asJSON:
		err := r.writeJSON(&b, path)
		return b.Bytes(), err
	case r.raw != nil:
		return r.raw, nil
	case r.text != nil:
		r.text(&b)
	}
	return b.Bytes(), nil
}

// helpOutput is where help goes: standard output, remembering a failed write.
type helpOutput struct{ a *app }

func (h helpOutput) Write(b []byte) (int, error) {
	n, err := h.a.out.Write(b)
	if err != nil && h.a.lost == nil {
		h.a.lost = err
	}
	return n, err
}

func (r *result) writeJSON(w io.Writer, path string) error {
	op := r.operation
	if op == "" {
		op = strings.TrimSpace(strings.TrimPrefix(path, "narwhal"))
	}
	e := envelope{
		Schema: "narwhal.command-result", SchemaVersion: 1, Command: "narwhal", Operation: op,
		Status: r.status, ExitCode: r.status.Exit(), Data: r.data, Artifacts: r.artifacts, Errors: r.problems,
	}
	if e.Status == problem.Terminated {
		e.Status = problem.Interrupted
	}
	if e.Artifacts == nil {
		e.Artifacts = []artifact{}
	}
	if e.Errors == nil {
		e.Errors = []*problem.Problem{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(e)
}

func printProblems(w io.Writer, ps []*problem.Problem) {
	for _, p := range ps {
		where := ""
		switch {
		case p.File != "" && p.Column > 0:
			where = fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
		case p.File != "" && p.Line > 0:
			where = fmt.Sprintf("%s:%d: ", p.File, p.Line)
		case p.File != "":
			where = p.File + ": "
		}
		where = oneLine(where)
		rule := ""
		if p.Rule != "" {
			rule = " [" + p.Rule + "]"
		}
		fmt.Fprintf(w, "narwhal: error: %s%s%s\n", where, oneLine(p.Message), rule)
		for _, h := range append([]string{p.Hint}, p.More...) {
			if h != "" {
				fmt.Fprintf(w, "narwhal: hint: %s\n", oneLine(h))
			}
		}
	}
}
