package gates

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// sixth restarts what gate C launched.
type sixth struct{}

func (sixth) Info() Info                      { return Info{Letter: "F", Name: "sixth", Title: "Sixth"} }
func (sixth) Expect(fleet.Fleet) []record.Key { return []record.Key{"F/restart/e"} }
func (sixth) Judge(View) []record.Finding     { return nil }

func (sixth) Plan(_ context.Context, v View) (p Plan, err error) {
	if v.Wants("F/restart/e") {
		p.Steps = []Step{{ID: "F/restart", Host: "h1", Engine: "e", Effect: Disrupt, Argv: verb("launch", v.Facts["fleet/launch/e"]), Yields: "F/restart/e", Limit: second}}
	}
	return p, nil
}

func (sixth) Facts(_ record.Key, data []byte) map[string]string {
	var l Launched
	if json.Unmarshal(data, &l) != nil {
		return nil
	}
	return l.ProcessFacts()
}

// TestReturnsAfterADrill: what a later gate interrupts is looked at again by the same command,
// once, and the drill is not repeated.
func TestReturnsAfterADrill(t *testing.T) {
	r := newRig(t)
	r.gates = append(r.gates, sixth{})
	out := r.pass(Options{})
	if got := strings.Join(r.world.took(), " "); strings.Count(got, "launch") != 2 || !strings.Contains(got, "launch live lease launch live") {
		t.Errorf("the host saw %s", got)
	}
	letters := ""
	for _, g := range out.Gates {
		if letters += g.Info.Letter; g.State != record.VerdictPassed {
			t.Errorf("gate %s is %s", g.Info.Letter, g.State)
		}
	}
	if letters != "ACF" {
		t.Errorf("told of %s", letters)
	}
	if out := r.pass(Options{}); out.Changed {
		t.Error("a second run repeats something")
	}
	r.world.took()
	r.pass(Options{Again: map[string]bool{"F": true}})
	if got := strings.Join(r.world.took(), " "); strings.Count(got, "launch") != 1 {
		t.Errorf("the host saw %s", got)
	}
	r.pass(Options{Only: "F", Again: map[string]bool{"F": true}})
	if got := strings.Join(r.world.took(), " "); strings.Contains(got, "live") {
		t.Errorf("one gate alone goes back: %s", got)
	}
}
