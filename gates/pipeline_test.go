package gates_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/attestation"
	"github.com/narwhal-fleet/narwhal/gates/discover"
	"github.com/narwhal-fleet/narwhal/gates/engines"
	"github.com/narwhal-fleet/narwhal/gates/fabric"
	"github.com/narwhal-fleet/narwhal/gates/install"
	"github.com/narwhal-fleet/narwhal/gates/preflight"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/gates/serve"
)

// seven are the gates in their order, as the command line has them.
func seven() []gates.Gate {
	return []gates.Gate{discover.Gate{}, install.Gate{}, engines.Gate{}, fabric.Gate{}, attestation.Gate{}, preflight.Gate{}, serve.Gate{}}
}

func threeEngines() fleet.Fleet {
	f := fleet.Fleet{
		Schema: fleet.Schema, SchemaVersion: fleet.Version, Model: "tiny", SLO: fleet.SLO{TTFTS: 1, TPOTS: 0.1},
		Engine: fleet.Backend{Dialect: "vllm", Connector: "nixl"},
		Deploy: &fleet.Deploy{
			Name: "tern", Hosts: map[string]fleet.Host{}, Engines: map[string]fleet.Place{}, Defaults: fleet.Defaults{Launch: "l"},
			Launch: map[string]fleet.Launch{"l": {Kind: fleet.LaunchProcess, Argv: []string{"serve", "{port}"}, Env: map[string]string{"B": "1", "A": "2", "C": "3"}}},
			Router: fleet.Router{Host: "h0", Listen: "127.0.0.1:8000"},
			Fabric: fleet.Fabric{PromptTokens: 64, HandoffsPerS: 1, Headroom: 1, Sample: fleet.Duration(time.Second), Streams: 1, Port: 5201, Tool: "iperf3", Incast: true},
			Trial:  fleet.Trial{Rates: []float64{1}, Requests: 2, Trace: "azure"},
		},
	}
	for i := range 3 {
		h, e := fmt.Sprint("h", i), fmt.Sprint("e", i)
		f.Deploy.Hosts[h] = fleet.Host{Address: fmt.Sprint("192.0.2.", i+1), Root: "/opt/n"}
		f.Deploy.Engines[e] = fleet.Place{Host: h}
		f.Engines = append(f.Engines, fleet.Engine{IID: e, URL: fmt.Sprintf("http://192.0.2.%d:8100", i+1), AttestationURL: fmt.Sprintf("http://192.0.2.%d:8110/v1/attestation", i+1)})
	}
	return f
}

// TestSevenGates holds the order and the letters.
func TestSevenGates(t *testing.T) {
	var letters, names []string
	for _, g := range seven() {
		i := g.Info()
		letters, names = append(letters, i.Letter), append(names, i.Name)
		if i.Title == "" || i.Promise == "" {
			t.Errorf("gate %s says too little: %+v", i.Letter, i)
		}
	}
	if strings.Join(letters, "") != "ABCDEFG" || strings.Join(names, " ") != "discover install engines fabric attest preflight serve" {
		t.Errorf("gates %v %v", letters, names)
	}
}

// TestEveryEvidenceIsBound: a row of the invalidation table for each expected key, and a
// key for each row. Evidence without a row would never go stale.
func TestEveryEvidenceIsBound(t *testing.T) {
	used := map[string]int{}
	f := threeEngines()
	f.Deploy.Launch["c"] = fleet.Launch{Kind: fleet.LaunchContainer, Image: "sha256:0", ModelDir: "/models/tiny"}
	f.Deploy.Engines["e1"] = fleet.Place{Host: "h1", Launch: "c", Workers: []string{"h2"}}
	f.Deploy.Router.Standby, f.Deploy.Router.Lease.Path = &fleet.Standby{Host: "h2"}, "/srv/lease.json"
	f.Deploy.Supervise = fleet.SuperviseSystem
	f.Deploy.Monitoring = &fleet.Monitoring{}
	f.Deploy.Profile.LeaseDrill, f.Deploy.Policy.RestartDrill, f.Deploy.Fabric.UnderDecode = true, true, true
	for _, g := range seven() {
		for _, k := range g.Expect(f) {
			if k.Gate() != g.Info().Letter {
				t.Errorf("gate %s expects %s", g.Info().Letter, k)
			}
			rows := 0
			for _, row := range gates.Invalidation {
				if fits(row.Evidence, string(k)) {
					rows++
					used[row.Evidence]++
				}
			}
			if rows != 1 {
				t.Errorf("%s has %d rows in the table", k, rows)
			}
		}
	}
	for _, row := range gates.Invalidation {
		if used[row.Evidence] == 0 {
			t.Errorf("row %s is for nothing", row.Evidence)
		}
	}
}

func fits(pattern, key string) bool {
	ps, ks := strings.Split(pattern, "/"), strings.Split(key, "/")
	if len(ps) != len(ks) {
		return false
	}
	for i := range ps {
		if !strings.HasPrefix(ps[i], "{") && ps[i] != ks[i] {
			return false
		}
	}
	return true
}

// TestPlansOfAFreshRun yield each expected piece of evidence once, touch known hosts, name
// limits, and have the same digest each time.
func TestPlansOfAFreshRun(t *testing.T) {
	f := threeEngines()
	r, err := record.Create(t.TempDir()+"/run", record.Header{Run: "r", FleetName: "tern", Fleet: []byte("{}")}, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	run := &gates.Runner{Gates: seven(), Fleet: f, Record: r, Progress: gates.Quiet{}, Release: gates.Release{SHA256: strings.Repeat("a", 64), Bytes: 9},
		Connect: func(context.Context, string) (gates.Host, error) { return nil, errors.New("planning asks no host") }}
	first, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := run.Forecast(t.Context(), gates.Options{})
	if err != nil || again.Digest != first.Digest {
		t.Errorf("digests %s and %s, %v", first.Digest, again.Digest, err)
	}
	for i, g := range first.Gates {
		yields := map[record.Key]int{}
		for _, s := range g.Plan.Steps {
			if s.Yields != "" {
				yields[s.Yields]++
			}
			if _, known := f.Deploy.Hosts[s.Host]; s.Host != "" && !known {
				t.Errorf("step %s is for host %q", s.ID, s.Host)
			}
			if s.Limit <= 0 || s.Title == "" {
				t.Errorf("step %s: limit %s, title %q", s.ID, s.Limit, s.Title)
			}
			if s.Effect != gates.Observe && s.Argv != nil && s.Check == nil {
				t.Errorf("step %s changes a host and cannot be looked at again", s.ID)
			}
			if s.Undo != nil && s.Undo.Limit <= 0 {
				t.Errorf("step %s: its undo has no limit", s.ID)
			}
		}
		want := seven()[i].Expect(f)
		for _, k := range want {
			if yields[k] != 1 {
				t.Errorf("%s is made by %d steps", k, yields[k])
			}
		}
		if len(yields) != len(want) || len(g.Needs) != len(want) || len(g.Reuses) != 0 {
			t.Errorf("gate %s: %d made, %d needed, %d reused, want %d, %d and 0", g.Info.Letter, len(yields), len(g.Needs), len(g.Reuses), len(want), len(want))
		}
	}
}
