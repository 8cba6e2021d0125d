package gates

import (
	"maps"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

// recall takes up the profile that an earlier line of the record holds for the launch of now,
// by its digest: an engine that returns to a launch need not be measured again. A way back takes
// the profile that it names, and no other.
func (r *Runner) recall(k record.Key, because string) error {
	if k.Gate() != "F" || k.Kind() != "profile" || strings.HasPrefix(because, "asked to ") {
		return nil
	}
	bonds, want := r.bonds(k), ""
	if r.back != nil {
		want = r.back.Profiles[k.Subjects()[0]]
	}
	snap, err := record.Read(r.Dir)
	if err != nil {
		return nil // it is measured
	}
	for _, ev := range slices.Backward(snap.Events) {
		if ev.Kind != record.KindEvidence {
			continue
		}
		b, err := record.Body[record.Evidence](ev)
		if err != nil || b.Key != k || want != "" && b.Ref.SHA256 != want || !maps.Equal(b.Bonds, bonds) || aged(r.Fleet, record.Entry{Time: ev.Time}) != "" {
			continue
		}
		if _, err := r.Record.Load(b.Ref); err != nil {
			continue
		}
		_, err = r.append(record.KindEvidence, "F", "recall", ev.Host, record.Evidence{Key: k, Ref: b.Ref, Bonds: bonds})
		return err
	}
	if want != "" {
		return about(k.Subjects()[0], problem.New(problem.Refused, "before_differs", "the profile of before does not fit the process that was launched", "--profile measures it instead: narwhal gate replace --profile"))
	}
	return nil
}
