package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/replay"
)

// replayed is what came of the decisions of one journal.
type replayed struct {
	Journal string `json:"journal"`
	replay.Report
}

// replayDecisions makes the decisions of journals again.
func (a *app) replayDecisions(cmd *cobra.Command, journals []string) error {
	for _, f := range []string{"engines", "policy", "topology", "html", "compare", "slow", "score", "prefill-at-start", "lengths", "report", "dies", "attempts", "prefix-cache"} {
		if cmd.Flags().Changed(f) {
			return problem.New(problem.Invalid, "invalid_arguments", "--"+f+" with --replay-decisions", "a journal says what its decisions were made from; leave --"+f+" away")
		}
	}
	out, made, differ := []replayed{}, 0, 0
	for _, j := range journals {
		r, err := within(cmd.Context(), func() (replay.Report, error) { return replay.Path(a.abs(j)) })
		if err != nil {
			return problem.Wrap(problem.Invalid, "bad_journal", "read journal "+j, err, "name the journal of a router, as narwhal serve --journal writes it")
		}
		out = append(out, replayed{j, r})
		made, differ = made+r.Placements+r.Evaluations, differ+r.Differ
	}
	a.result = &result{data: map[string]any{"journals": out}, text: func(w io.Writer) { printReplayed(w, out) }}
	switch {
	case differ > 0:
		return problem.New(problem.Unverified, "decisions_differ", fmt.Sprintf("%d of %d decisions come out another way", differ, made),
			"the journal was changed, or written by another version: see its meta line")
	case made == 0:
		return problem.New(problem.Invalid, "nothing_to_replay", "no decision with its inputs is in the journal", "it was written by an older version, or no request came")
	}
	return nil
}

func printReplayed(w io.Writer, out []replayed) {
	for _, j := range out {
		fmt.Fprintf(w, "%s: %d placements and %d decisions of the controller made again, %d came out another way\n", j.Journal, j.Placements, j.Evaluations, j.Differ)
		if j.Without > 0 {
			fmt.Fprintf(w, "  %d decisions stand without their inputs\n", j.Without)
		}
		if j.BadLines > 0 {
			fmt.Fprintf(w, "  %d lines cannot be read\n", j.BadLines)
		}
		for _, d := range j.Differences {
			fmt.Fprintf(w, "  %s: %s is %s in the journal, comes out as %s\n", oneLine(d.Row), oneLine(d.Field), oneLine(d.Journal), oneLine(d.Replayed))
		}
	}
}
