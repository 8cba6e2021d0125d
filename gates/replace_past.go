package gates

import (
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// past is a replacement that the record tells of.
type past struct {
	record.Replacement
	at   int // of its beginning among the events
	done bool
	open bool // it can go on
	// taken are the engines that were taken back since.
	taken map[string]bool
}

// touched are its engines that may be other than before and were not taken back, the newest
// first. One that was begun and did nothing yet is left as a whole.
func (p past) touched() (out []string) {
	all := p.done || p.open && len(p.Steps) == 0
	for _, e := range slices.Backward(p.Engines) {
		if _, begun := p.Last(e, ""); (begun || all) && !p.taken[e] {
			out = append(out, e)
		}
	}
	return out
}

// pastReplacements are the replacements of a record, the oldest first.
func pastReplacements(events []record.Event) []*past {
	var out []*past
	bySeq := map[int64]*past{}
	var open *past
	for i, ev := range events {
		body, err := ev.Decode()
		if err != nil {
			continue
		}
		switch b := body.(type) {
		case *record.ReplaceStarted:
			open = &past{Replacement: record.Replacement{ReplaceStarted: *b, Seq: ev.Seq, Time: ev.Time}, at: i, taken: map[string]bool{}}
			out, bySeq[ev.Seq] = append(out, open), open
		case *record.ReplaceStep:
			if open != nil {
				open.Steps = append(open.Steps, *b)
			}
		case *record.ReplaceDone:
			if open != nil {
				open.done = true
				open.marks(bySeq)
			}
			open = nil
		case *record.RollbackStarted:
			open = nil
		}
	}
	if open != nil {
		open.open = true
	}
	return out
}

// marks says of what a way back has taken back that it was. A way back of a way back withdraws that.
func (p *past) marks(bySeq map[int64]*past) {
	if p.Back == nil {
		return
	}
	of := bySeq[p.Back.Of]
	if of == nil {
		return
	}
	for _, e := range p.Engines {
		of.taken[e] = true
	}
	if of.Back != nil && bySeq[of.Back.Of] != nil {
		for _, e := range p.Engines {
			delete(bySeq[of.Back.Of].taken, e)
		}
	}
}

// chosen is the replacement that is taken back.
func chosen(all []*past, o ReplaceOptions) (*past, error) {
	const see = "narwhal gate log lists the replacements, each with its line"
	for _, p := range slices.Backward(all) {
		left := p.touched()
		names := func(e string) bool { return slices.Contains(left, e) }
		switch {
		case o.Of != 0 && p.Seq != o.Of, o.Of == 0 && (p.Back != nil || len(left) == 0):
			continue
		case len(left) == 0:
			return nil, problem.New(problem.Refused, "nothing_to_take_back", fmt.Sprintf("the replacement that line %d began was taken back already", p.Seq), see)
		case o.Of == 0 && len(o.Engines) > 0 && !slices.ContainsFunc(o.Engines, names):
			continue
		}
		for _, e := range o.Engines {
			if !names(e) {
				return nil, about(e, problem.New(problem.Refused, "nothing_to_take_back",
					fmt.Sprintf("the replacement that line %d began is of %s, and %s is not to be taken back with it", p.Seq, clean(strings.Join(left, ", "), 200), e), "take them back one after the other; "+see))
			}
		}
		return p, nil
	}
	text := "no replacement is recorded that was not taken back"
	switch {
	case o.Of != 0:
		text = fmt.Sprintf("line %d of the record begins no replacement", o.Of)
	case len(o.Engines) > 0:
		text += ", of " + clean(strings.Join(o.Engines, ", "), 200)
	}
	return nil, problem.New(problem.Refused, "nothing_to_take_back", text, see)
}
