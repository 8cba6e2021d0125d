package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

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
			r.problems = append(r.problems, problem.New(r.status, "operation_failed", err.Error(), ""))
		}
	}
	if r.status == "" {
		r.status = problem.Success
	}
	if a.format == "json" && r.raw == nil {
		a.writeJSON(path, r)
		return r.status.Exit()
	}
	if r.raw != nil {
		_, _ = a.out.Write(r.raw)
	} else if r.text != nil {
		r.text(a.out)
	}
	printProblems(a.err, r.problems)
	return r.status.Exit()
}

func (a *app) writeJSON(path string, r *result) {
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
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(e)
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
		rule := ""
		if p.Rule != "" {
			rule = " [" + p.Rule + "]"
		}
		fmt.Fprintf(w, "narwhal: error: %s%s%s\n", where, p.Message, rule)
		for _, h := range append([]string{p.Hint}, p.More...) {
			if h != "" {
				fmt.Fprintf(w, "narwhal: hint: %s\n", h)
			}
		}
	}
}

// isUsage reports whether cobra refused the command line itself.
func isUsage(err error) bool {
	m := err.Error()
	for _, s := range []string{"unknown command", "unknown flag", "accepts ", "requires ", "invalid argument", "unknown shorthand"} {
		if strings.Contains(m, s) {
			return true
		}
	}
	return false
}
