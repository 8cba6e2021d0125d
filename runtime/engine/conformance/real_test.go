//go:build realengines

package conformance_test

import (
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/realengines"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/conformance"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// The suite on real vLLM: one engine without a connector, and a pair. They start once.
func TestRealVLLM(t *testing.T) {
	// A small cache, so that a handoff's blocks can be overwritten.
	const few = "--num-gpu-blocks-override=96"
	p, d, alone := realengines.New(t, true, few), realengines.New(t, true, few), realengines.New(t, false)
	for _, e := range []*realengines.Engine{p, d, alone} {
		e.Start(t)
	}
	producer, consumer, single := p.Await(t), d.Await(t), alone.Await(t)
	conformance.Run(t, conformance.Target{
		Dialect: vllm.New(), Model: realengines.Model,
		Single: func(*testing.T) *engine.Client { return single },
		Pair:   func(*testing.T) (*engine.Client, *engine.Client) { return producer, consumer },
		Within: 3 * time.Minute, // the first use of an option compiles
		Freed:  time.Minute,
	})
}
