package preflight

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// TestRecordedSweeps judges sweeps of real engines on processors that other work had too. No noise
// is taken for a wrong curve, and a fleet that allows it is told how well each curve is known.
func TestRecordedSweeps(t *testing.T) {
	for name, c := range map[string]struct {
		usual   string // findings of a fleet that says nothing, and of one that allows all
		allowed string
	}{
		"sweep-together": {"profile-noisy profile-noisy", "decode-fit (note) profile-noisy"},
		"sweep-short":    {"profile-noisy profile-noisy profile-noisy", "prefill-fit (note) decode-fit (note) profile-noisy"},
		"sweep-alone-p":  {"profile-noisy profile-noisy", "decode-fit (note) decode-cross-validation (note)"},
		"sweep-alone-d":  {"profile-noisy", "decode-fit (note)"},
	} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var m Profiled
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		f := testFleet()
		f.SLO = fleet.SLO{TTFTS: 10, TPOTS: 1}
		f.Profiles = fleet.Profiles{MaxDecodeFitMAPE: 0.05, MaxDecodeCVMAPE: 0.13}
		if got := noteCodes(judgeProfile(f, "d0", m)); got != c.usual {
			t.Errorf("%s: found %s, want %s", name, got, c.usual)
		}
		f.Deploy.Profile.Uncertainty = 1
		found := judgeProfile(f, "d0", m)
		if got := noteCodes(found); got != c.allowed {
			t.Errorf("%s, where noise may: found %s, want %s", name, got, c.allowed)
		}
		if !slices.ContainsFunc(found, func(x record.Finding) bool { return strings.Contains(x.Got, "known to ±") }) {
			t.Errorf("%s: nothing says how well the curve is known", name)
		}
	}
}

func noteCodes(found []record.Finding) string {
	var out []string
	for _, x := range found {
		code := x.Code
		if x.Note {
			code += " (note)"
		}
		out = append(out, code)
	}
	return strings.Join(out, " ")
}
