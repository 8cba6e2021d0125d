package preflight

import (
	"fmt"
	"slices"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// count fills in what the consumer's counters moved by.
func count(d engine.Dialect, before, after engine.Samples, out *Handed) {
	b, _ := d.State(before) // a missing gauge does not matter here; the counters are compared
	a, _ := d.State(after)
	out.Moved = a.Transferred - b.Transferred
	out.Local = a.LocalCompute - b.LocalCompute
	out.Failed = a.FailedTransfers - b.FailedTransfers
	out.Restarted = a.ProcessStart != b.ProcessStart
}

// moved reports whether the counters show the prompt's KV arriving: all but what the
// consumer recomputes, which is at most one block's rest and the last token.
func (h Handed) moved() bool {
	if h.Dialect != "" {
		return h.Transfers >= 1 && h.Failed == 0
	}
	return h.Moved > 0 && h.Moved >= float64(h.Prompt)/2 && h.Failed == 0
}

func (h Handed) equal() bool {
	want := h.Unsplit
	if h.Dialect != "" {
		want = h.Again
	}
	return len(h.Split) > 0 && slices.Equal(h.Split, want)
}

// wanted says which tokens a handoff had to give.
func (h Handed) wanted() string {
	if h.Dialect != "" {
		return fmt.Sprintf("tokens %v as in another run of the prompt of %d", h.Again, h.Prompt)
	}
	return fmt.Sprintf("tokens %v as unsplit, after %d", h.Unsplit, h.Prompt)
}
