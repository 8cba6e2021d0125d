package gates

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// former finds what engines ran before a replacement. Everything of it is taken by its digest.
type former struct {
	r      *Runner
	events []record.Event // those before it
	state  record.State   // then
	docs   []fleet.Fleet  // documents of then, the newest first; nil until they are read
	err    error          // of a document that does not hold
}

func profileKey(engine string) record.Key { return record.NewKey("F", "profile", engine) }

func refOf(b []byte) record.Ref {
	sum := sha256.Sum256(b)
	return record.Ref{SHA256: hex.EncodeToString(sum[:]), Media: "application/json", Bytes: int64(len(b))}
}

func damagedBefore(what string, err error) *problem.Problem {
	return problem.Wrap(problem.Unverified, "before_damaged", what+" is not as it was recorded", err, "narwhal gate verify names every object that does not hold; restore it from a copy of the run")
}

func notBefore(e, format string, args ...any) *problem.Problem {
	return about(e, problem.New(problem.Refused, "before_unrecorded", fmt.Sprintf(format, args...), "put the former launch into the fleet file, then narwhal gate replace "+e))
}

// fleet is a fleet with the former launches of engines. All else stays as it is.
func (b *former) fleet(now fleet.Fleet, engines []string) (fleet.Fleet, error) {
	out := now
	d := *now.Deploy
	d.Engines, d.Launch = maps.Clone(d.Engines), maps.Clone(d.Launch)
	out.Deploy = &d
	wants := map[string]string{}
	for i, e := range engines {
		entry, ok := b.state.Evidence(record.NewKey("C", "launch", e))
		want := entry.Bonds["fleet/launch/"+e]
		if !ok || want == "" {
			return out, notBefore(e, "the record holds no launch of %s from before", clean(e, 128))
		}
		doc, err := b.document(e, want)
		if err != nil {
			return out, err
		}
		put(&d, doc, e, engines[:i], engines)
		wants[e] = want
	}
	for _, e := range engines {
		got, err := out.Resolve(e)
		if err != nil || got.Digest() != wants[e] {
			return out, about(e, problem.New(problem.Refused, "before_differs", fmt.Sprintf("the former launch of %s comes out as another under the fleet file of now: what it is made of, as its host, its URL or the served model, changed too", clean(e, 128)),
				"narwhal gate diff and narwhal gate log tell what changed; put that back first"))
		}
	}
	return out, nil
}

// document is the newest recorded fleet in which an engine has the launch.
func (b *former) document(e, launch string) (fleet.Fleet, error) {
	if b.docs == nil {
		b.read()
	}
	for _, f := range b.docs {
		if got, err := f.Resolve(e); err == nil && got.Digest() == launch {
			return f, nil
		}
	}
	if b.err != nil {
		return fleet.Fleet{}, about(e, damagedBefore("the fleet document from before", b.err))
	}
	return fleet.Fleet{}, notBefore(e, "no recorded fleet document has the launch that %s had, SHA-256 %.16s", clean(e, 128), launch)
}

// read loads the fleet documents that gate A froze, and the one with which the run began.
func (b *former) read() {
	seen := map[string]bool{}
	load := func(ref record.Ref, decode func([]byte) (fleet.Fleet, error)) {
		if seen[ref.SHA256] {
			return
		}
		seen[ref.SHA256] = true
		raw, err := b.r.Record.Load(ref)
		if err != nil {
			b.err = cmp.Or(b.err, err)
			return
		}
		if f, err := decode(raw); err == nil && f.Deploy != nil {
			b.docs = append(b.docs, f)
		}
	}
	b.docs = []fleet.Fleet{}
	for _, ev := range slices.Backward(b.events) {
		if ev.Kind != record.KindEvidence {
			continue
		}
		if body, err := record.Body[record.Evidence](ev); err == nil && body.Key == "A/inputs" {
			load(body.Ref, func(raw []byte) (fleet.Fleet, error) {
				var in struct {
					Fleet fleet.Fleet `json:"fleet"`
				}
				err := json.Unmarshal(raw, &in)
				return in.Fleet, err
			})
		}
	}
	load(b.state.Fleet, func(raw []byte) (f fleet.Fleet, err error) { return f, json.Unmarshal(raw, &f) })
}

// put gives an engine the place and launch that it has in another document. done are those of
// the engines that have theirs; a launch of the same name that they use, or engines that stay
// as they are, is left to them.
func put(d *fleet.Deploy, from fleet.Fleet, e string, done, engines []string) {
	place := from.Deploy.Engines[e]
	name := cmp.Or(place.Launch, from.Deploy.Defaults.Launch)
	launch := from.Deploy.Launch[name]
	used := false
	for other, p := range d.Engines {
		kept := slices.Contains(done, other) || !slices.Contains(engines, other)
		used = used || kept && cmp.Or(p.Launch, d.Defaults.Launch) == name
	}
	free := name
	for n := 1; ; n++ {
		has, ok := d.Launch[free]
		if !ok || reflect.DeepEqual(has, launch) || free == name && !used {
			break
		}
		free = fmt.Sprintf("%.50s-before-%d", name, n)
	}
	d.Launch[free] = launch
	if free != d.Defaults.Launch || place.Launch != "" {
		place.Launch = free
	}
	d.Engines[e] = place
}

// profiles are the profiles that engines had, by digest, as far as their gate wants any.
func (b *former) profiles(engines []string) (map[string]string, error) {
	wanted, facts, out := map[record.Key]bool{}, Inputs(b.r.Fleet, b.r.Release), map[string]string{}
	for _, g := range b.r.Gates {
		for _, k := range g.Expect(b.r.Fleet) {
			wanted[k] = true
		}
	}
	const measure = "--profile measures it on the former launch instead"
	for _, e := range engines {
		if !wanted[profileKey(e)] {
			continue
		}
		entry, ok := b.state.Evidence(profileKey(e))
		if !ok {
			return nil, about(e, problem.New(problem.Refused, "before_unrecorded", fmt.Sprintf("the record holds no profile of %s from before", clean(e, 128)), measure))
		}
		if _, err := b.r.Record.Load(entry.Ref); err != nil {
			p := damagedBefore("the profile of "+clean(e, 128)+" from before", err)
			p.Hint = measure + "; " + p.Hint
			return nil, about(e, p)
		}
		why := aged(b.r.Fleet, entry)
		for _, name := range sortedKeys(entry.Bonds) {
			if is, known := facts[name]; known && strings.HasPrefix(name, "fleet/") && is != entry.Bonds[name] {
				why = because(name, entry.Bonds[name], is)
			}
		}
		if why != "" {
			return nil, about(e, problem.New(problem.Refused, "before_differs", fmt.Sprintf("the profile of %s from before does not hold any more: %s", clean(e, 128), why), measure))
		}
		out[e] = entry.Ref.SHA256
	}
	return out, nil
}
