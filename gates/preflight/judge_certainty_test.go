package preflight

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// TestCertainty notes a curve that is known less well than settled points are, and none for a point
// that the curve does not need.
func TestCertainty(t *testing.T) {
	f := testFleet()
	f.Profiles = fleet.Profiles{MaxDecodeFitMAPE: 9, MaxDecodeCVMAPE: 99}
	quiet := swept(rand.New(rand.NewPCG(1, 1)), plane, noises["quiet"])
	thrice := func(s profile.Samples, wide float64) profile.Samples {
		one := s.Prefill
		s.Prefill = nil
		for i := range 3 {
			for j, p := range one {
				if j == 0 {
					p.Seconds *= 1 + wide*float64(i)
				}
				s.Prefill = append(s.Prefill, p)
			}
		}
		return s
	}
	loosened := thrice(quiet, 0.05)
	wild := thrice(swept(rand.New(rand.NewPCG(8, 1)), plane, func(r *rand.Rand) float64 { return math.Exp(2 * r.NormFloat64()) }), 0)
	for _, c := range []struct {
		name    string
		samples profile.Samples
		ended   string
		says    []string // nil = no finding
		hint    string
	}{
		{"every point settled, the mixed ones did not", thrice(quiet, 0), endedRounds, nil, ""},
		{"one prefill is loose, and the curve is known", loosened, endedRounds, nil, ""},
		{"a prefill was measured once", quiet, endedRounds, []string{"prefills not known and", "measured once"}, "for a surer one"},
		{"decodes are known to little", wild, endedRounds, []string{"that of decodes known to ±", "when the sweep's rounds ended it", "8 of 12", "the least known is ", "want both known to ±3 %"}, "for a surer one"},
		{"the budget ended it", wild, endedBudget, []string{"budget ended it"}, "or raise deploy.profile.budget"},
		{"settled", wild, endedSettled, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := judgeProfile(f, "d0", Profiled{IID: "d0", Samples: c.samples, Ended: c.ended})
			if c.says == nil {
				if len(found) > 0 {
					t.Errorf("%+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Code != "profile-uncertain" || !found[0].Note || !strings.HasSuffix(found[0].Hint, c.hint) {
				t.Fatalf("%+v", found)
			}
			for _, s := range c.says {
				if !strings.Contains(found[0].Message, s) {
					t.Errorf("%q lacks %q", found[0].Message, s)
				}
			}
		})
	}
	if p, _, _ := unsettled(loosened); len(p) != 1 {
		t.Errorf("the loose prefill is not one: %v", p)
	}
}
