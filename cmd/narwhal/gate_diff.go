package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/gates/record"
)

// difference is one thing in which two runs differ.
type difference struct {
	What string `json:"what"` // gate | evidence
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

func gateDiffVerb(a *app) *cobra.Command {
	var f gateFlags
	c := &cobra.Command{
		Use: "diff RUN RUN", Short: "Says what differs between two runs", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.run = args[0]
			v, err := a.readRun(cmd, f)
			if err != nil {
				return err
			}
			other, err := readSnapshot(v.state, v.fleet.Deploy.Name, args[1])
			if err != nil {
				return err
			}
			diffs := compareStates(v.snap.State, other.State)
			a.result = &result{data: map[string]any{"a": v.snap.State.Run, "b": other.State.Run, "differences": diffs}, text: func(w io.Writer) {
				for _, d := range diffs {
					fmt.Fprintf(w, "%-8s %-28s %-16.16s %-16.16s\n", d.What, d.Name, d.A, d.B)
				}
				if len(diffs) == 0 {
					fmt.Fprintln(w, "the runs do not differ")
				}
			}}
			return nil
		},
	}
	fleetFlag(c, &f.fleet)
	return c
}

func compareStates(a, b record.State) []difference {
	out := []difference{}
	if a.Fleet.SHA256 != b.Fleet.SHA256 {
		out = append(out, difference{"input", "fleet", a.Fleet.SHA256, b.Fleet.SHA256})
	}
	for _, g := range pipeline() {
		letter := g.Info().Letter
		x, y := a.Gates[letter], b.Gates[letter]
		if x.State != y.State {
			out = append(out, difference{"gate", letter, x.State, y.State})
		}
		keys := map[record.Key]bool{}
		for k := range x.Evidence {
			keys[k] = true
		}
		for k := range y.Evidence {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			p, q := x.Evidence[k].Ref.SHA256, y.Evidence[k].Ref.SHA256
			if p != q {
				out = append(out, difference{"evidence", string(k), p, q})
			}
		}
	}
	return out
}
