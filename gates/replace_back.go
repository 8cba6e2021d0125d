package gates

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// turnBack makes a plan one that takes a replacement back: the fleet becomes that of the file
// with the former launches of its engines.
func (r *Runner) turnBack(p *ReplacePlan) error {
	snap, err := record.Read(r.Dir)
	if err != nil {
		return problem.Wrap(problem.Failed, "record_unreadable", "read the record", err, "narwhal gate verify names what does not hold")
	}
	of, err := chosen(pastReplacements(snap.Events), p.options)
	if err != nil {
		return err
	}
	whole := of.touched()
	if len(p.Engines) == 0 {
		p.Engines, p.Wave, p.Only = whole, p.Wave || of.Wave && len(whole) == len(of.Engines), p.Only || of.Only
	}
	relaunched := slices.Clone(p.Engines)
	if open := r.Record.State().Replacement; open != nil {
		if open.Seq != of.Seq {
			return unfinished(*open)
		}
		waits, err := abandoned(*open, p.Engines)
		if err != nil {
			return err
		}
		relaunched = append(relaunched, waits...)
	}
	p.Back = &record.WayBack{Of: of.Seq, From: map[string]string{}, Profiles: map[string]string{}}
	past := former{r: r, events: snap.Events[:of.at], state: record.FoldAll(snap.Events[:of.at])}
	now := r.Fleet
	if r.Fleet, err = past.fleet(now, relaunched); err != nil {
		return err
	}
	facts := Inputs(now, r.Release)
	for _, e := range relaunched {
		p.Back.From[e] = facts["fleet/launch/"+e]
	}
	runs := Inputs(r.Fleet, r.Release)
	maps.DeleteFunc(p.Back.From, func(e, launch string) bool { return runs["fleet/launch/"+e] == launch }) // it is not left
	if !p.Profile {
		if p.Back.Profiles, err = past.profiles(p.Engines); err != nil {
			return err
		}
	}
	p.Back.Fleet = refOf(mustJSON(r.Fleet))
	return nil
}

// abandoned are the engines of an unfinished replacement that still wait. Those that it took
// out of service must be among the engines that return.
func abandoned(open record.Replacement, engines []string) (waits []string, err error) {
	for _, e := range open.Engines {
		s, begun := open.Last(e, "")
		switch {
		case slices.Contains(engines, e) || begun && s.Stage == stageBack && s.Status == record.ReplaceOK:
		case begun:
			return nil, about(e, problem.New(problem.Refused, "replacement_unfinished", fmt.Sprintf("engine %s is out of service in the replacement that was begun, and is not named", clean(e, 128)),
				"narwhal gate replace --back takes all of it back; narwhal gate replace finishes it"))
		default:
			waits = append(waits, e)
		}
	}
	return waits, nil
}

// goOnBack takes a way back up again that was cut off, with the fleet that it recorded.
func (r *Runner) goOnBack(p *ReplacePlan, b record.WayBack) error {
	raw, err := r.Record.Load(b.Fleet)
	var f fleet.Fleet
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		return damagedBefore("the fleet document of the way back", err)
	}
	p.Back, r.Fleet = &b, f
	return nil
}

// stillBefore are engines whose process is the one that ran before the unfinished replacement
// that is taken back: they need no other.
func (r *Runner) stillBefore(p ReplacePlan) (out []string) {
	open := r.Record.State().Replacement
	if p.Back == nil || p.Resumes || open == nil || open.Seq != p.Back.Of {
		return nil
	}
	facts := r.currentFacts()
	for _, e := range p.Engines {
		if was := open.Was[e]; was != "" && was != Gone && was != Silent && facts["proc/"+fleet.RankProcess(e, 0)+"/id"] == was {
			out = append(out, e)
		}
	}
	return out
}

// kept reports whether engines of a way back go on with the processes that they have: their
// requests are not waited for.
func (r *Runner) kept(p ReplacePlan, engines []string) bool {
	b := r.begun(p)
	return !slices.ContainsFunc(engines, func(e string) bool {
		if b != nil {
			return b.Back == nil || b.Was[e] != ""
		}
		return !slices.Contains(p.keeps, e)
	})
}

// returning are the profiles of engines that come back by their digests.
func (p ReplacePlan) returning(engines []string) map[string]string {
	out := map[string]string{}
	for _, e := range engines {
		if p.Back != nil && !p.Profile && p.Back.Profiles[e] != "" {
			out[e] = p.Back.Profiles[e]
		}
	}
	return out
}

// askedForLeft refuses gates that would bring back, by a fleet file that nobody changed, what a
// way back has left: the router's engines would be stopped under their requests.
func (r *Runner) askedForLeft() error {
	left, facts := r.Record.State().Left, r.currentFacts()
	if id := facts["proc/"+routerProcess+"/id"]; id == "" || id == Gone || id == Silent {
		return nil
	}
	for _, e := range sortedKeys(left.Launches) {
		if _, ok := r.Fleet.ByID(e); ok && facts["fleet/launch/"+e] == left.Launches[e] {
			return about(e, problem.New(problem.Refused, "launch_left", fmt.Sprintf("the fleet file still has the launch of %s that was taken back", clean(e, 128)),
				"narwhal gate replace "+clean(e, 128)+" brings it about again; the fleet document of what runs is objects/"+left.Fleet.SHA256+" of the run: put its launch into the fleet file"))
		}
	}
	return nil
}
