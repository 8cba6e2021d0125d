package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/loglines"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// version is set by the linker.
var version = "0.1.0-dev"

// app is what every verb may use of its surroundings.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	environ  func() []string
	dir      string // working directory

	format string
	state  string
	result *result
	lost   error           // why standard output no longer takes text
	log    *loglines.Queue // before standard error, of a router; nil = none
}

func system() *app {
	dir, _ := os.Getwd()
	// A reader that goes away is a failed write, not the end of the process. (Ignoring the
	// signal instead would pass on to every program that is started.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, environ: os.Environ, dir: dir}
}

// verbs is the whole command line, in the order that help shows.
func verbs(a *app) []*cobra.Command {
	return []*cobra.Command{
		validateVerb(a), schemaVerb(a), presetVerb(a),
		gateVerb(a), serveVerb(a), standbyVerb(a), tunnelVerb(a), monitoringVerb(a),
		enginesVerb(a), checkVerb(a), profileVerb(a), benchVerb(a), simulateVerb(a),
		sandboxVerb(a), demoVerb(a),
		attestVerb(a), keysVerb(a), bundleVerb(a),
		versionVerb(a), hostVerb(a), engineVerb(a), guardVerb(a), docsVerb(a),
	}
}

func root(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:           "narwhal",
		Short:         "From a fleet file to served, measured LLM traffic",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.PersistentFlags().StringVar(&a.format, "format", "text", "output format: text or json")
	c.PersistentFlags().StringVar(&a.state, "state", "", "folder of the records (default $NARWHAL_STATE, $XDG_STATE_HOME/narwhal, ~/.local/state/narwhal)")
	c.PersistentPreRunE = a.knownFormat
	c.SetIn(a.in)
	c.SetOut(helpOutput{a})
	c.SetErr(a.err)
	c.AddCommand(verbs(a)...)
	c.SetHelpCommand(helpVerb())
	c.InitDefaultHelpFlag()
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if p := usage(cmd, err); p != nil {
			return p
		}
		return problem.Wrap(problem.Invalid, "invalid_arguments", "read flags", err, cmd.CommandPath()+" --help lists the flags")
	})
	strict(c)
	return c
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, a *app) int {
	a.out, a.err = visible{bare(a.out)}, visible{bare(a.err)}
	c := root(a)
	c.SetArgs(args)
	ran, err := c.ExecuteContextC(ctx)
	if err != nil && problem.All(err) == nil && a.result == nil {
		if p := usage(ran, err); p != nil {
			err = p
		}
	}
	if err != nil && asksJSON(args) {
		a.format = "json" // the flag may stand behind what was refused
	}
	code := a.finish(ran.CommandPath(), err)
	if a.log != nil {
		a.log.Close(lastLines)
	}
	return code
}

// stateDir resolves --state, the environment and the home directory.
func (a *app) stateDir() (string, error) {
	if a.state != "" {
		return filepath.Abs(a.state)
	}
	if s := a.getenv("NARWHAL_STATE"); s != "" {
		return filepath.Abs(s)
	}
	if s := a.getenv("XDG_STATE_HOME"); s != "" {
		return filepath.Join(s, "narwhal"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", problem.Wrap(problem.Invalid, "no_state_folder", "find the state folder", err, "give --state DIR or set NARWHAL_STATE")
	}
	return filepath.Join(home, ".local", "state", "narwhal"), nil
}
