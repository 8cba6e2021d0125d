package conformance_test

import (
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/conformance"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated/simulatedtest"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
)

// start runs an engine and checks at the test's end that it holds nothing.
func start(t *testing.T, side string, change func(*simulated.Config)) (*simulated.Server, *engine.Client) {
	t.Helper()
	cfg := simulated.Config{
		Model: "tiny", Root: "/srv/tiny", SideChannel: side,
		Simulated: fleet.Simulated{
			PrefillA: 0.0005, PrefillB: 1e-6, DecodeD: 0.0005, BlockSize: 16, Blocks: 300, MaxModelLen: 2048,
			MaxNumSeqs: 16, MaxBatched: 2048, LeaseS: 30, HandshakeS: 0.01, TransferS: 0.001, PrefixCaching: true,
		},
	}
	s := simulatedtest.Start(t, cfg, change)
	c, err := engine.NewClient(s.URL(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c
}

func TestSimulated(t *testing.T) {
	conformance.Run(t, conformance.Target{
		Dialect: vllm.New(), Model: "tiny",
		// The recordings of single engines were made without a connector.
		Single: func(t *testing.T) *engine.Client { _, c := start(t, "", nil); return c },
		Pair: func(t *testing.T) (p, d *engine.Client) {
			_, p = start(t, "127.0.0.1:0", nil)
			_, d = start(t, "127.0.0.1:0", nil)
			return p, d
		},
	})
}

func TestSimulatedSGLang(t *testing.T) {
	var ports sync.Map // base url of a prefilling engine → port of its bootstrap server
	role := func(t *testing.T, role string) *engine.Client {
		s, c := start(t, "127.0.0.1:0", func(c *simulated.Config) {
			c.Dialect, c.Role, c.RoleSwitch = "sglang", role, true
			c.HandshakeLimit = fleet.Duration(200 * time.Millisecond)
		})
		ports.Store(c.Base(), s.SidePort())
		t.Cleanup(func() {
			for end := time.Now().Add(10 * time.Second); !t.Failed() && !s.Account().Idle(); time.Sleep(2 * time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("%s engine holds %+v", role, s.Account())
				}
			}
		})
		return c
	}
	conformance.Run(t, conformance.Target{
		Dialect: sglang.New(), Model: "tiny",
		Single: func(t *testing.T) *engine.Client { return role(t, engine.RoleNone) },
		Pair: func(t *testing.T) (p, d *engine.Client) {
			return role(t, engine.RolePrefill), role(t, engine.RoleDecode)
		},
		Meet: func(t *testing.T, p *engine.Client) engine.Rendezvous {
			u, err := url.Parse(p.Base())
			if err != nil {
				t.Fatal(err)
			}
			port, _ := ports.Load(p.Base())
			return engine.Rendezvous{Host: u.Hostname(), Port: port.(int)}
		},
	})
}
