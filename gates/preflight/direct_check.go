package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
)

// checkup is one check while it goes on.
type checkup struct {
	*Direct
	Checking
	out      Checked
	evidence map[record.Key][]byte
	found    []record.Finding // beside the judge's
	loads    map[string]Load
	looks    map[string]Looked
	suspect  map[string]string // why no handoff of an engine is asked for
}

// Check asks the engines what they are, compares them, and hands KV over between them. An error
// means that nothing could be judged; what engines do wrong stands in the answer.
func (d *Direct) Check(ctx context.Context, c Checking) (Checked, error) {
	x := &checkup{Direct: d, Checking: c, evidence: map[record.Key][]byte{}, looks: map[string]Looked{}, suspect: map[string]string{},
		out: Checked{Checks: []Check{}, Engines: []CheckedEngine{}, Pairs: []CheckedPair{}, Failed: []record.Finding{}, Warnings: []record.Finding{}, Skipped: []Check{}}}
	d.AsLive(ctx)
	pairs, err := PairsOf(d.asLive(), c.Pairs)
	if err != nil {
		return x.out, err
	}
	x.loads = d.Loads(ctx, d.Fleet.EngineIDs())
	x.noteLoads()
	for _, part := range []func(context.Context) error{x.look, x.ask, x.drills, func(ctx context.Context) error { return x.handoffs(ctx, pairs) }} {
		if err := part(ctx); err != nil {
			return x.out, err
		}
		if ctx.Err() != nil {
			return x.out, context.Cause(ctx)
		}
	}
	v, err := x.view()
	if err != nil {
		return x.out, err
	}
	x.out.settle(direct(d.Fleet, append(x.within(Gate{}.Judge(v)), x.found...)))
	return x.out, nil
}

// view shows the judge evidence that no run recorded.
func (x *checkup) view() (gates.View, error) {
	return gates.ViewOf(x.Fleet, gates.Release{}, time.Time{}, x.evidence)
}

// within makes what is said of engines that the check is not about a note.
func (x *checkup) within(found []record.Finding) []record.Finding {
	for i, f := range found {
		if f.Engine != "" && !x.names(f.Engine) && record.Key(f.Evidence).Kind() != "pair" {
			found[i].Note = true
		}
	}
	return found
}

// idle says why a step may not measure, "" when it may.
func (x *checkup) idle(s gates.Step) string {
	if x.Busy {
		return ""
	}
	for _, e := range enginesOf(s) {
		if l := x.loads[e]; l.Busy() {
			return fmt.Sprintf("engine %s has %v; --yes measures it beside them", e, l)
		}
	}
	return ""
}

func (x *checkup) noteLoads() {
	for _, e := range x.Fleet.EngineIDs() {
		if l := x.loads[e]; l.Busy() && x.Busy {
			x.found = append(x.found, record.Finding{Code: "engine-busy", Host: x.Fleet.HostOf(e), Engine: e, Want: "an idle engine", Got: l.String(), Evidence: string(LookKey(e)), Note: true,
				Message: fmt.Sprintf("engine %s: got %v, want an idle engine", e, l), Hint: "its requests and the check slow each other down: times and counters are of both"})
		}
	}
}

// look asks every engine what it is, and such as the check is about for their pace.
func (x *checkup) look(ctx context.Context) error {
	unpaced := map[string]string{}
	steps := x.steps(func(k record.Key) bool { return k.Kind() == "engine" })
	for i, s := range steps {
		why := x.idle(s)
		if x.names(s.Engine) {
			unpaced[s.Engine] = why
		}
		if why != "" || !x.names(s.Engine) {
			argv, err := withoutPace(s.Argv)
			if err != nil {
				return err
			}
			steps[i].Argv = argv
		}
	}
	for _, a := range x.run(ctx, steps, x.Direct.ask) {
		if a.err != nil {
			x.failed(a)
			x.suspect[a.step.Engine] = "it could not be asked"
			continue
		}
		var l Looked
		if err := json.Unmarshal(a.data, &l); err != nil {
			return err
		}
		x.evidence[a.step.Yields], x.looks[a.step.Engine] = a.data, l
	}
	v, err := x.view()
	if err != nil {
		return err
	}
	for _, f := range judgeLooks(v) {
		if !f.Note && x.suspect[f.Engine] == "" && f.Code != slowEngine {
			x.suspect[f.Engine] = f.Code
		}
	}
	for _, e := range x.Fleet.Engines {
		l := x.looks[e.IID]
		x.out.Engines = append(x.out.Engines, CheckedEngine{IID: e.IID, URL: e.URL, Load: x.loads[e.IID], Looked: l})
		if x.names(e.IID) {
			x.line(Check{Check: "engine", Engine: e.IID, Says: l.says(), key: LookKey(e.IID)})
			if why := unpaced[e.IID]; why != "" && l.Failed[checkReach] == "" {
				x.line(Check{Check: "pace", Engine: e.IID, State: CheckSkipped, Says: why})
			}
		}
	}
	return nil
}

func (l Looked) says() string {
	if l.Version == "" || l.Failed[checkReach] != "" {
		return "it does not say what it is"
	}
	out := fmt.Sprintf("version %s, model path %s, context %d, blocks of %d tokens, cache %s", l.Version, l.Root, l.Context, l.Block, l.Dtype)
	if b := l.best(); b > 0 {
		out += fmt.Sprintf(", %d tokens in %.3g s", l.PaceTokens, b)
	}
	return out
}

// withoutPace is the command of a look that measures nothing.
func withoutPace(argv []string) ([]string, error) {
	var q LookRequest
	if err := json.Unmarshal([]byte(argv[3]), &q); err != nil {
		return nil, err
	}
	q.PaceTokens = 0
	b, err := json.Marshal(q)
	return append(slices.Clone(argv[:3]), string(b)), err
}

func (x *checkup) line(c Check) {
	if c.State == "" {
		c.State = CheckPassed
	}
	x.out.Checks = append(x.out.Checks, c)
}

// failed finds a step that did not come to its end: what it asks of an engine is not there.
func (x *checkup) failed(a answer) {
	text := engine.Printable(a.err.Error(), longText)
	x.found = append(x.found, record.Finding{Code: "step-failed", Host: a.step.Host, Engine: a.step.Engine, Want: a.step.Title + " to its end", Got: text, Evidence: string(a.step.Yields),
		Message: fmt.Sprintf("%s: %s", a.step.ID, text), Hint: "see the logs of " + fmt.Sprint(enginesOf(a.step)) + "; the same command asks again"})
}

// drills abort a request on each engine, and let a handoff expire where the fleet file asks for it.
func (x *checkup) drills(ctx context.Context) error {
	if !x.Drills {
		return nil
	}
	steps := x.steps(func(k record.Key) bool {
		return (k.Kind() == "abort" || k.Kind() == "lease") && x.names(k.Subjects()[0])
	})
	var may []gates.Step
	for _, s := range steps {
		why := x.idle(s)
		for _, e := range enginesOf(s) {
			if l := x.loads[e]; l.Busy() { // whatever may be measured, theirs cannot be told from the drill's
				why = fmt.Sprintf("engine %s has %v, which cannot be told from the drill's", e, l)
			}
			if says := x.suspect[e]; why == "" && says != "" {
				why = fmt.Sprintf("engine %s: %s", e, says)
			}
		}
		if why != "" {
			x.line(Check{Check: s.Yields.Kind(), Engine: s.Engine, State: CheckSkipped, Says: why, key: s.Yields})
			continue
		}
		may = append(may, s)
		x.line(Check{Check: s.Yields.Kind(), Engine: s.Engine, key: s.Yields})
	}
	for _, a := range x.run(ctx, may, x.Direct.ask) {
		if a.err != nil {
			x.failed(a)
			continue
		}
		x.evidence[a.step.Yields] = a.data
	}
	return nil
}
