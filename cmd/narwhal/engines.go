package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/lifecycle"
)

// holdFor is the deadline of a hold: it has none, and an order names one.
const holdFor = 365 * 24 * time.Hour

// engineFlags say which router is asked, and how an order is followed.
type engineFlags struct {
	url, token        string
	fleet             []string
	all, wait         bool
	deadline, timeout time.Duration
}

func (f *engineFlags) router(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "url", "http://"+fleet.DefaultListen, "router; with a fleet file that has deploy, the one behind the tunnel unless this is given")
	fleetFlag(c, &f.fleet)
}

// orders adds the token that orders need.
func (f *engineFlags) orders(c *cobra.Command) {
	c.Flags().StringVar(&f.token, "control-token", "", "the router's control token, as env:NAME or file:PATH (default: deploy.router.http.control_token of the fleet file)")
}

// order adds the flags of what changes engines.
func (f *engineFlags) order(c *cobra.Command) {
	f.router(c)
	f.orders(c)
	c.Flags().BoolVar(&f.all, "all", false, "the whole fleet, in place of IID")
	c.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "limit of each wait, and of a validation")
}

func (f *engineFlags) waiting(c *cobra.Command, says string) {
	c.Flags().BoolVar(&f.wait, "wait", false, says)
}

func (f *engineFlags) draining(c *cobra.Command) {
	c.Flags().DurationVar(&f.deadline, "deadline", 5*time.Minute, "time after which an engine that still has requests counts as late; nothing is cut off")
}

func enginesVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "engines", Short: "Lists a fleet's engines, takes them out of service and back, through the router"}
	c.AddCommand(enginesListVerb(a), enginesDrainVerb(a), enginesHoldVerb(a), enginesReleaseVerb(a), enginesReadmitVerb(a), enginesRestartVerb(a), enginesActivateVerb(a))
	return c
}

func enginesDrainVerb(a *app) *cobra.Command {
	var f engineFlags
	c := &cobra.Command{
		Use: "drain {IID | --all}", Short: "Takes an engine out, so that its process can be stopped",
		Long: "Takes an engine out of placement: it gets nothing new and finishes what it has. --wait ends when its process may be\n" +
			"stopped. With --all the router admits nothing until narwhal engines readmit --all.",
		RunE: func(cmd *cobra.Command, args []string) error { return a.takeOut(cmd, &f, args, f.deadline) },
	}
	f.order(c)
	f.draining(c)
	f.waiting(c, "end when the engine may be stopped")
	return c
}

func enginesHoldVerb(a *app) *cobra.Command {
	var f engineFlags
	c := &cobra.Command{
		Use: "hold {IID | --all}", Short: "Keeps an engine out of placement until it is released",
		Long: "Keeps an engine out of placement until narwhal engines release: the order of drain, for no time in particular.\n" +
			"In a fleet with an engine contract an engine that was held returns as another process only.",
		RunE: func(cmd *cobra.Command, args []string) error { return a.takeOut(cmd, &f, args, holdFor) },
	}
	f.order(c)
	f.waiting(c, "end when the engine has finished what it had")
	return c
}

func enginesReleaseVerb(a *app) *cobra.Command {
	var f engineFlags
	c := &cobra.Command{
		Use: "release {IID | --all}", Short: "Ends a hold or a drain: the engine serves again",
		Long: "Ends a hold or a drain. The router asks the engine first who it is, and takes back none that fails.",
		RunE: func(cmd *cobra.Command, args []string) error { return a.takeBack(cmd, &f, args) },
	}
	f.order(c)
	return c
}

func enginesReadmitVerb(a *app) *cobra.Command {
	var f engineFlags
	c := &cobra.Command{
		Use: "readmit {IID | --all}", Short: "Takes an engine back after its process was restarted",
		Long: "Takes a drained engine back. The router asks it who it is; with an engine contract it validates the new process.\n" +
			"--wait tries again until the engine is up and passes, and ends with an error where it needs a new profile first:\n" +
			"narwhal profile --only IID --overwrite, then narwhal engines activate IID.",
		RunE: func(cmd *cobra.Command, args []string) error { return a.takeBack(cmd, &f, args) },
	}
	f.order(c)
	f.waiting(c, "try again until the engine is taken back")
	return c
}

// target reads IID or --all.
func (f *engineFlags) target(cmd *cobra.Command, args []string) (lifecycle.Target, error) {
	switch {
	case f.all && len(args) > 0:
		return lifecycle.Target{}, problem.New(problem.Invalid, "invalid_arguments", "an engine and --all are both given", cmd.CommandPath()+" takes one of them")
	case !f.all && len(args) == 0:
		return lifecycle.Target{}, problem.New(problem.Invalid, "invalid_arguments", cmd.CommandPath()+" needs an engine's id", "narwhal engines list shows them; --all is the whole fleet")
	case len(args) > 1:
		return lifecycle.Target{}, problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("%s takes one engine; %d are given", cmd.CommandPath(), len(args)), "the router takes out one engine at a time; --all is the whole fleet")
	case !f.all && args[0] == "":
		return lifecycle.Target{}, problem.New(problem.Invalid, "invalid_arguments", "the engine's id is empty", "narwhal engines list shows them")
	case f.all:
		return lifecycle.Target{All: true}, nil
	}
	return lifecycle.Target{IID: args[0]}, nil
}
