package gates_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/fabric"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestFabricNeedsTheLeastRounds: pairs that all take as long are done in n−1 rounds, n when n
// is odd, also where they take a little more or less; and with a fan-out below n÷2 in as many
// as the pairs need at that width.
func TestFabricNeedsTheLeastRounds(t *testing.T) {
	for _, c := range []struct{ hosts, fanOut, rounds int }{
		{2, 16, 1}, {3, 16, 3}, {5, 16, 5}, {8, 16, 7}, {9, 16, 9}, {16, 16, 15}, {32, 16, 31}, {33, 17, 33}, {64, 32, 63}, {64, 64, 63}, {8, 1, 28}, {8, 2, 14},
	} {
		for _, jitter := range []float64{0, 0.05} {
			r := rand.New(rand.NewPCG(1, 2))
			whole, ran := gates.Makespan(pairsOnly(t, c.hosts), c.fanOut, func(gates.Step) time.Duration {
				return time.Duration(float64(time.Second) * (1 + jitter*r.Float64()))
			})
			limit := time.Duration(float64(c.rounds) * (1 + jitter) * float64(time.Second))
			if ran != c.hosts*(c.hosts-1)/2 || whole > limit || whole < time.Duration(c.rounds)*time.Second {
				t.Errorf("%d hosts, fan-out %d, jitter %g: %d pairs in %s, want %d rounds of a second", c.hosts, c.fanOut, jitter, ran, whole, c.rounds)
			}
		}
	}
}

// pairsOnly is gate D's plan of n hosts without what stands around the pairs.
func pairsOnly(t *testing.T, n int) gates.Plan {
	t.Helper()
	f := fleet.Fleet{Deploy: &fleet.Deploy{Hosts: map[string]fleet.Host{}, Engines: map[string]fleet.Place{},
		Fabric: fleet.Fabric{Sample: fleet.Duration(time.Second), Streams: 1, Port: 5201}}}
	for i := range n {
		h, e := fmt.Sprintf("h%02d", i), fmt.Sprint("e", i)
		f.Deploy.Hosts[h] = fleet.Host{Root: "/opt/n", FabricAddress: "192.0.2.1"}
		f.Deploy.Engines[e] = fleet.Place{Host: h}
		f.Engines = append(f.Engines, fleet.Engine{IID: e, URL: "http://192.0.2.1:8100"})
	}
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	run := &gates.Runner{Gates: []gates.Gate{fabric.Gate{}}, Fleet: f, Record: r, Progress: gates.Quiet{}}
	forecast, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var p gates.Plan
	for _, s := range forecast.Gates[0].Plan.Steps {
		if strings.HasPrefix(s.ID, "D/pair/") {
			s.Needs = nil
			p.Steps = append(p.Steps, s)
		}
	}
	return p
}
