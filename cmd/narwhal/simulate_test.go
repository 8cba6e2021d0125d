package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/simulate"
	"github.com/narwhal-fleet/narwhal/schema"
)

// A simulation without a fleet file takes the settings that a fleet file takes by default.
func TestSimulationDefaultsAreTheSchemas(t *testing.T) {
	doc, err := schema.Load(t.Context(), []schema.Source{{Name: "fleet.json", Data: []byte(watched)}}, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := doc.Fleet
	h, r, s := f.Controller.Thresholds, f.Controller.Reactive, f.Serving
	want := simulate.Config{
		Slow:     1,
		Relaunch: 120, // no key of a fleet file: the router relaunches nothing
		Params:   model.Params{TTFT: f.SLO.TTFTS, TPOT: f.SLO.TPOTS, Margin: s.AdmissionMargin, Open: s.Admission == "open", Lend: fleet.DefaultLendFrom},
		Control: control.Params{TTFT: f.SLO.TTFTS, TPOT: f.SLO.TPOTS, MinPrefill: max(1, f.Controller.MinPrefill),
			MinDecode: max(1, f.Controller.MinDecode), Advisory: f.Controller.Advisory, Expand: h.Expand, Shrink: h.Shrink,
			Cooldown: h.CooldownS, Dwell: h.DwellS, Sustained: h.SustainedIntervals, ResidentGuard: h.FlipResidentGuard,
			Window: r.WindowS, Step: r.StepS, Confirmations: r.Confirmations, Utilization: r.Utilization, MinArrivals: r.MinArrivals,
			DemandFloor: r.DemandFloor, Margin: r.MovementMargin, EvidenceSpan: r.EvidenceSpanS, Lends: true},
		Correction: simulate.Correction{Alpha: r.DecodeCorrectionAlpha, Min: r.DecodeCorrectionMin, Max: r.DecodeCorrectionMax, MinSamples: r.DecodeCorrectionMinSamples},
		Interval:   f.Controller.MonitorIntervalS,
		Inflight:   s.MaxConnections,
	}
	if diff := cmp.Diff(want, simulate.Defaults(f.SLO.TTFTS, f.SLO.TPOTS), cmpopts.IgnoreUnexported(simulate.Config{})); diff != "" {
		t.Errorf("schema's defaults, simulation's:\n%s", diff)
	}
}

// A page never takes the place of what the simulation reads, nor of what is no file.
func TestPageTakesNobodysPlace(t *testing.T) {
	dir := t.TempDir()
	work := filepath.Join(dir, "w.csv")
	if err := os.WriteFile(work, []byte("at_s,input,output,class\n0,10,2,x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(work, filepath.Join(dir, "same.csv")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(work, filepath.Join(dir, "link.html")); err != nil {
		t.Fatal(err)
	}
	for name, fine := range map[string]bool{"w.csv": false, "same.csv": false, "link.html": false, "absent/x.html": false, ".": false, "page.html": true} {
		s := simulation{html: filepath.Join(dir, name)}
		if err := s.writable(&app{}, []string{work}); (err == nil) != fine {
			t.Errorf("%s: %v", name, err)
		}
	}
}
