package conformance_test

import (
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/conformance"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

func start(t *testing.T, side string) *engine.Client {
	t.Helper()
	s, err := simulated.New(simulated.Config{
		Model: "tiny", Root: "/srv/tiny", SideChannel: side,
		Simulated: fleet.Simulated{
			PrefillA: 0.0005, PrefillB: 1e-6, DecodeD: 0.0005, BlockSize: 16, Blocks: 300, MaxModelLen: 2048,
			MaxNumSeqs: 16, MaxBatched: 2048, LeaseS: 30, HandshakeS: 0.01, TransferS: 0.001, PrefixCaching: true,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c, err := engine.NewClient(s.URL(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestSimulated(t *testing.T) {
	conformance.Run(t, conformance.Target{
		Dialect: vllm.New(), Model: "tiny",
		// The recordings of single engines were made without a connector.
		Single: func(t *testing.T) *engine.Client { return start(t, "") },
		Pair: func(t *testing.T) (p, d *engine.Client) {
			return start(t, "127.0.0.1:0"), start(t, "127.0.0.1:0")
		},
	})
}
