package fabric

import (
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

const (
	// mainBytes is the message of the run that counts as the edge's rate.
	mainBytes = 1 << 20
	// mostBytes is the largest message that another tool is run with. A second on a link of
	// 10 Gbit/s holds 149 of them; memory for twice as many as there are streams is pinned.
	mostBytes = 8 << 20
	// toolRepeats of each run of a tool that is run with several sizes.
	toolRepeats = 3
	// leastRun is as short as one may be: the tools count in whole seconds.
	leastRun = time.Second
	// startsWithin is what one run may take beside its length.
	startsWithin = 5 * time.Second
	maxRuns      = 8
)

// toolSizes are the messages of a tool, ascending: one block, 1 MiB and the budget's payload,
// all at most mostBytes. Without a budget it is 1 MiB alone.
func toolSizes(b Budget) []int64 {
	out := []int64{mainBytes}
	for _, n := range []int64{b.BytesPerBlock, b.Payload} {
		if n > 0 {
			out = append(out, min(n, mostBytes))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// iterations of a tool that counts messages: as many as make 2000 MiB, within limits.
func iterations(bytes int64) int64 { return min(max(2000<<20/max(1, bytes), 100), 100_000) }

// kind is one way to run a tool.
type kind struct {
	bytes int64
	both  bool
}

// server names the kind in the tester's command line and in the asker's request.
func (k kind) server(tool string) string {
	switch {
	case k.bytes == 0:
		return tool
	case k.both:
		return fmt.Sprintf("%s/%d/both", tool, k.bytes)
	}
	return fmt.Sprintf("%s/%d", tool, k.bytes)
}

// kinds are the ways in which a tool is run: with each size, then both directions at once.
func kinds(name string, b Budget) []kind {
	t := tools[name]
	if !t.sized {
		return []kind{{}}
	}
	var out []kind
	for _, n := range toolSizes(b) {
		out = append(out, kind{bytes: n})
	}
	if t.duplex {
		out = append(out, kind{bytes: mainBytes, both: true})
	}
	return out
}

// runRepeats is how often each kind is run.
func runRepeats(name string) int {
	if tools[name].sized {
		return toolRepeats
	}
	return 1
}

// runLength is that of one run: all runs of an edge take the sample together, and at least leastRun each.
func runLength(f fleet.Fleet, name string, b Budget) time.Duration {
	return max(f.Deploy.Fabric.Sample.D()/time.Duration(len(kinds(name, b))*runRepeats(name)), leastRun)
}

// call fills in a tool's call for one edge and kind.
func (k kind) call(f fleet.Fleet, name string, e Edge, b Budget) toolCall {
	c := callOf(f, e)
	c.For, c.Both = runLength(f, name, b), k.both
	if k.bytes > 0 {
		c.Bytes = k.bytes
	}
	return c
}

// runsOf are the commands of one edge. Both directions at once are measured from the pair's A.
func runsOf(f fleet.Fleet, name string, e Edge, b Budget, fromA bool) []ToolRun {
	var out []ToolRun
	for _, k := range kinds(name, b) {
		if k.both && !fromA {
			continue
		}
		out = append(out, ToolRun{Server: k.server(name), Bytes: k.bytes, Both: k.both, Argv: tools[name].client(k.call(f, name, e, b))})
	}
	return out
}

// serversOf are the commands that the tester of a host may start, by name.
func serversOf(f fleet.Fleet, host string, b Budget) map[string][]string {
	out := map[string][]string{}
	for _, name := range toolsOf(f.Deploy.Fabric) {
		for _, k := range kinds(name, b) {
			out[k.server(name)] = tools[name].server(k.call(f, name, Edge{To: host}, b))
		}
	}
	return out
}
