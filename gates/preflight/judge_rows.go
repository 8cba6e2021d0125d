package preflight

import (
	"fmt"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

const measureAgain = "narwhal profile -f FLEET --only IID --overwrite measures that engine and keeps the rows of the others"

// judgeBound holds the row of a live engine against the process that runs.
func judgeBound(f fleet.Fleet, e string, s profile.Store, generation string) []record.Finding {
	x := &finder{fleet: f, engine: e, evidence: ProfileKey(e)}
	row, ok := s.Row(e)
	switch {
	case !ok:
		x.add("profile-missing", "a row in the profile store", "none", measureAgain)
	case !row.Bound(generation):
		was := "no generation"
		if row.GenerationDigest != nil {
			was = *row.GenerationDigest
		}
		x.add("profile-stale", "a profile of the live generation "+generation, was, "the engine was restarted, or launched otherwise, since it was measured: "+measureAgain)
	}
	return x.found
}

// judgeRow judges a row of which no samples are there: its limits, its pace, and its errors as
// they stand in it. What noise explains of an error cannot be told, so that it is a note.
func judgeRow(f fleet.Fleet, row profile.Row, l Looked) []record.Finding {
	x := &finder{fleet: f, engine: row.IID, evidence: ProfileKey(row.IID)}
	judgeFloor(x, f.SLO, row.Curve())
	for _, e := range []struct {
		Code, what, field string
		limit, got        float64
	}{
		{Code: "decode-fit", what: "a mean decode error", field: "profiles.max_decode_fit_mape", limit: f.Profiles.MaxDecodeFitMAPE, got: row.DecodeFitMAPE},
		{Code: "decode-cross-validation", what: "a leave-one-out error", field: "profiles.max_decode_cv_mape", limit: f.Profiles.MaxDecodeCVMAPE, got: row.DecodeCVMAPE},
	} {
		if e.got > e.limit {
			x.add(e.Code, fmt.Sprintf("%s up to %.3g", e.what, e.limit), fmt.Sprintf("%.3g, and no samples that tell how much of it is noise", e.got), measureAgain+", or raise "+e.field)
			x.noted()
		}
	}
	if len(l.Pace) > 0 {
		x.evidence = LookKey(row.IID)
		judgeOwn(x, l, row.Curve())
	}
	return x.found
}

// judgeStrangers finds rows of engines that the fleet does not have: a router refuses the store.
func judgeStrangers(f fleet.Fleet, s profile.Store) (out []record.Finding) {
	for _, r := range s.Rows {
		if _, ok := f.ByID(r.IID); !ok {
			out = append(out, record.Finding{Code: "profile-extra", Want: "rows of the fleet's engines alone", Got: fmt.Sprintf("one of %.64q", r.IID), Evidence: string(StoreKey),
				Message: fmt.Sprintf("the profile store has a row of %.64q, which is no engine of the fleet", r.IID), Hint: "narwhal profile -f FLEET --overwrite writes the store anew, or name the store of this fleet"})
		}
	}
	return out
}
