package main

import (
	"context"
	"os"
	"slices"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// readTraces merges files and embedded traces; a file that exists comes first.
func (a *app) readTraces(ctx context.Context, from []string) (bench.Trace, error) {
	var traces []bench.Trace
	for _, w := range from {
		path := a.abs(w)
		var t bench.Trace
		var err error
		if _, statErr := os.Stat(path); statErr != nil && slices.Contains([]string{"azure", "azure-conv", "azure-code"}, w) {
			t, err = bench.Embedded(w)
		} else {
			t, err = within(ctx, func() (bench.Trace, error) { return bench.Open(path, "") })
		}
		if err != nil {
			return t, problem.Wrap(problem.Invalid, "bad_workload", "read workload "+w, err, "want a CSV with at_s,input,output,class, a public trace, a journal, or azure, azure-conv, azure-code")
		}
		traces = append(traces, t)
	}
	return bench.Merge(traces...), nil
}
