package replay

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/sched"
)

// Report is what came of a journal.
type Report struct {
	Placements  int `json:"placements"`  // made again
	Evaluations int `json:"evaluations"` // of the controller, made again
	// Without are decisions whose inputs the journal does not have.
	Without int `json:"without_inputs"`
	// Differ are decisions that came out another way, or could not be made again.
	Differ      int          `json:"differ"`
	Differences []Difference `json:"differences"` // the first of them
	Lines       int          `json:"lines"`
	BadLines    int          `json:"bad_lines"`
}

// maxDifferences bounds what a report lists.
const maxDifferences = 200

// controllerEvent is the event of an evaluation, inputsKey its member with what it was made from.
const (
	controllerEvent = "controller_decision"
	inputsKey       = "inputs"
)

// Path makes the decisions of the journal at path again, with its ended files.
func Path(path string) (Report, error) {
	p := player{Report: Report{Differences: []Difference{}}}
	st, err := journal.ReadPath(path, p.line)
	p.Lines, p.BadLines = st.Lines, st.Bad
	return p.Report, err
}

// player goes through a journal.
type player struct {
	Report
	meta    journal.Meta
	changed []activation // in the journal's order
	scratch sched.Scratch
	row     string // the line in work
	found   bool   // it differs
}

func (p *player) line(l journal.Line) error {
	p.found = false
	switch {
	case l.Meta != nil:
		p.meta, p.changed = *l.Meta, nil
	case l.Row != nil:
		p.row = l.Row.RID
		for i, raw := range l.Row.Earlier {
			p.placement(raw, fmt.Sprintf("earlier_decisions[%d]", i), nil)
		}
		if len(l.Row.Decision) > 0 {
			p.placement(l.Row.Decision, "decision", l.Row)
		}
	case l.Event != nil && l.Event.Name == controllerEvent:
		p.row = fmt.Sprintf("%s at %.3f s", controllerEvent, l.Event.At)
		p.evaluation(l.Event)
	case l.Event != nil && l.Event.Name == activatedEvent:
		p.activated(l.Event)
	}
	return nil
}

// differs notes a difference; a decision counts once.
func (p *player) differs(field, was, now string) {
	if !p.found {
		p.found = true
		p.Differ++
	}
	if len(p.Differences) < maxDifferences {
		p.Differences = append(p.Differences, Difference{p.row, field, short(was), short(now)})
	}
}

// placement makes one placement again. r is the row whose other members tell of it; nil = none.
func (p *player) placement(raw json.RawMessage, field string, r *journal.Row) {
	p.found = false
	var d Decision
	var was map[string]any
	if err := errors.Join(json.Unmarshal(raw, &d), json.Unmarshal(raw, &was)); err != nil {
		p.differs(field, short(string(raw)), err.Error())
		return
	}
	if d.Inputs == nil {
		p.Without++
		return
	}
	p.Placements++
	snap, asked, err := d.Inputs.snapshot(p.meta.Params, p.curves(d.Inputs.Now))
	if err != nil {
		p.differs(field+"."+inputsKey, "", err.Error())
		return
	}
	again := place(&snap, &d.Inputs.Request, d.Inputs.First, &p.scratch)
	if asked.missing != nil {
		p.differs(field+"."+inputsKey+".asked", "", asked.missing.Error())
	}
	now, err := plain(again)
	if err != nil {
		p.differs(field, "", err.Error())
		return
	}
	delete(was, inputsKey)
	compare(field, was, now, p.differs)
	if r != nil {
		p.told(r, again)
	}
}

func place(s *model.Snapshot, r *model.Request, first bool, x *sched.Scratch) sched.Decision {
	if first {
		return sched.Admit(s, r, s.At, x)
	}
	return sched.Place(s, r, s.At, x)
}

// told compares what the row tells of its last placement elsewhere.
func (p *player) told(r *journal.Row, d sched.Decision) {
	if d.Placed {
		compare("prefill_iid", text(r.Prefill), any(d.Prefill), p.differs)
		compare("decode_iid", text(r.Decode), any(d.Decode), p.differs)
	}
	if r.Price != nil && d.Refused != model.ReasonNoEngine {
		compare("admission_price.price_s", any(r.Price.Price), any(d.Price), p.differs)
	}
}

func text(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

// evaluation makes one decision of the controller again.
func (p *player) evaluation(e *journal.Event) {
	raw, ok := e.Fields[inputsKey]
	if !ok {
		p.Without++
		return
	}
	p.Evaluations++
	var in Evaluation
	b, err := json.Marshal(raw)
	if err == nil {
		err = json.Unmarshal(b, &in)
	}
	var snap model.Snapshot
	var asked *answers
	if err == nil {
		snap, asked, err = in.snapshot(p.meta.Params, p.curves(in.Now))
	}
	if err != nil {
		p.differs(inputsKey, "", err.Error())
		return
	}
	_, actions := control.Step(in.State, control.Tick{Snapshot: snap})
	if asked.missing != nil {
		p.differs(inputsKey+".asked", "", asked.missing.Error())
	}
	d, ok := recorded(actions)
	if !ok {
		p.differs("result", shown(e.Fields["result"]), "nothing is evaluated")
		return
	}
	now, err := plain(d)
	if err != nil {
		p.differs("result", "", err.Error())
		return
	}
	again := now.(map[string]any)
	again["at"] = d.At
	was := map[string]any{"at": e.At}
	for k := range again { // the other members are what the router knew beside it
		if v, ok := e.Fields[k]; ok {
			was[k] = v
		}
	}
	compare("", was, again, p.differs)
}

func recorded(actions []control.Action) (control.Decision, bool) {
	for _, a := range actions {
		if r, ok := a.(control.Record); ok {
			return r.Decision, true
		}
	}
	return control.Decision{}, false
}
