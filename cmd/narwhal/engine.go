package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// decodeKnown reads one JSON document whose members are all known.
func decodeKnown(text string, to any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands after the document")
	}
	return nil
}

// engineVerb is the hidden command that runs the simulated engine as a process.
func engineVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "engine", Short: "Engines that this binary contains", Hidden: true}
	var listen, name, params string
	var side int
	sim := &cobra.Command{
		Use: "simulated", Short: "The simulated engine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := simulated.Config{ShutdownTimeout: fleet.Duration(5 * time.Second)}
			if err := decodeKnown(params, &cfg); err != nil {
				return problem.Wrap(problem.Invalid, "invalid_params", "read --params", err, "give the simulated section of a launch as JSON, and the dialect beside it")
			}
			cfg.Model, cfg.Listen, cfg.APIKey = name, listen, fleet.NewSecret(a.getenv(fleet.EngineKeyVariable))
			if side > 0 {
				host, _, err := net.SplitHostPort(listen)
				if err != nil {
					return problem.Wrap(problem.Invalid, "invalid_listen", "read --listen", err, "give address:port")
				}
				cfg.SideChannel = net.JoinHostPort(host, strconv.Itoa(side))
			}
			return simulated.Serve(cmd.Context(), cfg, a.err)
		},
	}
	sim.Flags().StringVar(&listen, "listen", "127.0.0.1:8100", "HTTP address")
	sim.Flags().IntVar(&side, "side-channel", 0, "port of the side channel, 0 for none")
	sim.Flags().StringVar(&name, "model", "sim", "served model name")
	sim.Flags().StringVar(&params, "params", "{}", "latency and cache model as JSON")
	c.AddCommand(sim)
	return c
}
