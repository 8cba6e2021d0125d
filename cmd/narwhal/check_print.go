package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// subject is what a check is about, in words.
func subject(c preflight.Check) string {
	switch {
	case c.From != "":
		return fmt.Sprintf("%s %s → %s", c.Check, c.From, c.To)
	case c.Engine != "":
		return c.Check + " " + c.Engine
	}
	return c.Check
}

var checkMarks = map[string]string{preflight.CheckPassed: "passed", preflight.CheckFailed: "FAILED", preflight.CheckSkipped: "skipped"}

func printCheck(w io.Writer, c preflight.Checked) {
	passed := 0
	for _, x := range c.Checks {
		says := ""
		if x.Says != "" {
			says = ": " + x.Says
		}
		fmt.Fprintf(w, "%-8s %s%s\n", checkMarks[x.State], oneLine(subject(x)), oneLine(says))
		if x.State == preflight.CheckPassed {
			passed++
		}
	}
	printNotes(w, c.Warnings)
	if k := c.Calibration; k != nil {
		deadline := "none is set"
		if k.Configured > 0 {
			deadline = fmt.Sprintf("engine.first_token_timeout_s is %.3g s", k.Configured)
		}
		fmt.Fprintf(w, "first tokens of %d handoffs: 99 %% within %.3g s, all within %.3g s; a deadline above %.3g s keeps them, %s\n", k.Samples, k.P99, k.Maximum, k.Candidate, deadline)
	}
	fmt.Fprintf(w, "%d checks: %d passed, %d failed, %d skipped\n", len(c.Checks), passed, len(c.Checks)-passed-len(c.Skipped), len(c.Skipped))
}

func printNotes(w io.Writer, notes []record.Finding) {
	for _, f := range notes {
		fmt.Fprintf(w, "note     %s: %s\n", f.Code, oneLine(f.Message))
		if f.Hint != "" {
			fmt.Fprintf(w, "         %s\n", oneLine(f.Hint))
		}
	}
}

func problemOf(s problem.Status, f record.Finding) *problem.Problem {
	return &problem.Problem{Status: s, Code: f.Code, Message: f.Message, Hint: f.Hint, Host: f.Host, Engine: f.Engine, Evidence: f.Evidence, Got: f.Got, Want: f.Want}
}

// skippedHint is what to do about the first reason.
func skippedHint(c preflight.Checked) string {
	switch {
	case slices.ContainsFunc(c.Skipped, func(s preflight.Check) bool { return s.Check == "profiles" }):
		return "narwhal profile -f FLEET measures the engines and writes the store; --profiles FILE names another one"
	case slices.ContainsFunc(c.Engines, func(e preflight.CheckedEngine) bool { return e.Load.Busy() }):
		return "ask again while the engines are idle, or give --yes"
	}
	return "mend what the skipped checks name, and ask again"
}
