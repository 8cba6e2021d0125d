package main

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/fabric"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// exitUndone tells a check's caller that the effect is not there.
const exitUndone = problem.Degraded

// hostVerb is the hidden command that the same binary answers on a fleet's hosts.
func hostVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "host", Short: "Verbs that run on a fleet's hosts", Hidden: true}
	for name, verb := range hostVerbs() {
		c.AddCommand(&cobra.Command{
			Use: name + " REQUEST", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				answer, err := verb(cmd.Context(), json.RawMessage(args[0]))
				if errors.Is(err, gates.ErrUndone) {
					return problem.New(exitUndone, "undone", "the effect is not there", "")
				}
				if err != nil {
					return err
				}
				b, err := json.Marshal(answer)
				if err != nil {
					return err
				}
				a.result = &result{raw: append(b, '\n')}
				return nil
			},
		})
	}
	c.AddCommand(
		&cobra.Command{
			Use: "become DIR SPEC", Args: cobra.ExactArgs(2),
			RunE: func(_ *cobra.Command, args []string) error { return process.Become(args[0], args[1]) },
		},
		&cobra.Command{
			Use: "fabric-serve ADDRESS [TOOLS]", Args: cobra.RangeArgs(1, 2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return fabric.Serve(cmd.Context(), args[0], strings.Join(args[1:], ""))
			},
		},
	)
	return c
}
