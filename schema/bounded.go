package schema

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// Bounds of one evaluation of CUE. Time and memory have no limit of their own in CUE.
const (
	maxEvaluation = 10 * time.Second
	maxHeap       = 1 << 30 // bytes above what was in use at the start
	watchHeap     = 20 * time.Millisecond
)

// budget bounds the work of a load.
type budget struct {
	time time.Duration // 0 = no limit
	heap uint64        // bytes, 0 = no limit
}

// budgetOf bounds documents with CUE, which computes; the others are bounded by their size.
func budgetOf(srcs []Source) budget {
	for _, s := range srcs {
		if format(s.Name) == formatCUE {
			return budget{maxEvaluation, maxHeap}
		}
	}
	return budget{}
}

type outcome struct {
	doc *Document
	err error
}

// within runs a load until it ends, its budget is spent or ctx ends. CUE cannot be
// interrupted: what was given up goes on until it ends or the process does, and touches
// nothing that a caller sees.
func within(ctx context.Context, b budget, name string, do func() (*Document, error)) (*Document, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	done := make(chan outcome, 1)
	var start uint64
	if b.heap > 0 {
		runtime.GC() // garbage of earlier work would hide as much growth when it goes
		start = heapInUse()
	}
	go func() {
		doc, err := do()
		done <- outcome{doc, err}
	}()
	var end, look <-chan time.Time
	if b.time > 0 {
		t := time.NewTimer(b.time)
		defer t.Stop()
		end = t.C
	}
	if b.heap > 0 {
		t := time.NewTicker(watchHeap)
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case o := <-done:
			return o.doc, o.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-end:
			return nil, spent(name, fmt.Sprintf("evaluating this document takes longer than %s", b.time))
		case <-look:
			if heapInUse() > start+b.heap {
				return nil, spent(name, fmt.Sprintf("evaluating this document takes more than %d MiB of memory", b.heap>>20))
			}
		}
	}
}

func spent(name, says string) error {
	p := problem.New(problem.Invalid, "invalid_fleet", says, "write the values out, or shorten the lists that comprehensions and expressions go through")
	p.File, p.Line, p.Column, p.Rule = name, 1, 1, "cue-bounds"
	return problem.Set{p}
}

func heapInUse() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
