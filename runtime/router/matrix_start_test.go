package router

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// matrixGates are the rows that a router ends before it serves: engines that must not be
// paired. says is part of the error.
var matrixGates = []struct {
	event, how, says string
	each             func(i int, c *simulated.Config)
}{
	{"incompatible engines", "d0 serves the model from another path", "serves the model at", func(i int, c *simulated.Config) { c.Root = fmt.Sprint("/m", i) }},
	{"incompatible engines", "d0 has another version", "has version", func(i int, c *simulated.Config) { c.EngineVersion = fmt.Sprintf("0.3%d.0", 1+i) }},
	{"block size of P > D", "blocks of 32 and 16 tokens", "KV blocks of", func(i int, c *simulated.Config) { c.BlockSize = 32 / (1 + i) }},
	{"block size of P < D", "blocks of 16 and 32 tokens", "KV blocks of", func(i int, c *simulated.Config) { c.BlockSize = 16 * (1 + i) }},
}

// matrixNotes are the rows that no router plays, and why.
var matrixNotes = map[string]string{
	"to free P early": "optional; this router lets the lease end and counts the blocks",
}

// contractEvents are the rows of the engine dialect's failure matrix.
var contractEvents = []string{"leg 1 4xx", "leg 1 aborted", "leg 1 200 without a handoff", "leg 2 400/404 from D's serving layer", "leg 2 400 from the schema",
	"leg 2 aborted while waiting or decoding", "leg 2 never sent", "to free P early", "unknown engine id or unreachable side channel", "incompatible engines",
	"block size of P > D", "block size of P < D", "handoff used twice", "handoff after expiry", "handoff without `remote_host` etc.",
	"block list empty, flat or shorter than D's prompt needs", "other prompt of equal length", "wrong `remote_request_id`", "P frozen", "P killed",
	"P out of blocks", "policy `recompute`", "queue limit", "D's core dies", "side channel thread dead"}

func TestMatrixIsWhole(t *testing.T) {
	played := map[string]bool{}
	kinds := map[string]bool{}
	for _, m := range matrix {
		played[m.event] = true
		for _, s := range m.inject {
			kinds[s.Kind] = true
		}
	}
	for _, g := range matrixGates {
		played[g.event] = true
	}
	for _, e := range contractEvents {
		if played[e] == (matrixNotes[e] != "") {
			t.Errorf("%s: it must be played, or have a note why not", e)
		}
	}
	for _, k := range simulated.Kinds() {
		if !kinds[k] && !slices.Contains(elsewhere, k) {
			t.Errorf("injection %q is in no row", k)
		}
	}
}

// elsewhere are injections that act between the legs, later, or in other tests.
var elsewhere = []string{"status", "switch-failure", "freeze", "terminate", "split", "split-utf8", "utf8", "join", "kill", "core-death", "expire", "recycle", "clock", "clear"}

func TestMatrixGates(t *testing.T) {
	for _, g := range matrixGates {
		t.Run(g.event+"/"+g.how, func(t *testing.T) {
			t.Parallel()
			settles(t)
			b := &testbed{t: t}
			cfg := Config{Fleet: fleetDoc(), Listen: "127.0.0.1:0", Verify: anyProcess, Logger: slog.New(slog.DiscardHandler)}
			var rows []profile.Row
			for i, iid := range []string{"p0", "d0"} {
				c := simulated.Config{Simulated: quick(), Model: modelName, SideChannel: "127.0.0.1:0"}
				g.each(i, &c)
				entry := fleet.Engine{IID: iid, URL: b.launch(c).URL(), Role: []string{fleet.RolePrefill, fleet.RoleDecode}[i]}
				cfg.Fleet.Engines = append(cfg.Fleet.Engines, entry)
				rows = append(rows, profile.NewRow(iid, "sha256:"+strings.Repeat("0", 64), curveOf(c.Simulated), profile.Report{}))
			}
			cfg.Profiles = profile.NewStore(nil, rows...)
			r, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err = r.Start(limit(t)); err == nil {
				_ = r.Stop(limit(t))
			}
			if err == nil || !strings.Contains(err.Error(), g.says) {
				t.Errorf("start: %v, want %q", err, g.says)
			}
		})
	}
}
