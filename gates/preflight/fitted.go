package preflight

import (
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Fitted is what the points of one engine say.
type Fitted struct {
	IID string `json:"iid"`
	// Row is nil where no curve can be trusted: a finding that is no note says why.
	Row      *profile.Row     `json:"row"`
	Prefill  int              `json:"prefill_samples"`
	Decode   int              `json:"decode_samples"`
	Rounds   int              `json:"rounds"`
	Ended    string           `json:"ended"`
	TookMS   int64            `json:"took_ms"`
	Report   profile.Report   `json:"fit"`
	Findings []record.Finding `json:"findings"`
}

// refusing are the findings without which an engine gets no row.
var refusing = []string{"profile-unfit", "decode-fit", "decode-cross-validation", "profile-noisy"}

// Fit finds the row of each engine by the gate's rules, in the fleet's order and then by id, and
// compares engines as the gate does.
func Fit(f fleet.Fleet, all map[string]Measured) []Fitted {
	profiled := map[string]Profiled{}
	ids := slices.DeleteFunc(f.EngineIDs(), func(e string) bool { _, ok := all[e]; return !ok })
	for e, m := range all {
		profiled[e] = m.Points
		if _, ok := f.ByID(e); !ok {
			ids = append(ids, e)
		}
	}
	slices.Sort(ids[len(ids)-strangers(f, all):])
	peers := judgePeers(gates.View{Fleet: f}, profiled)
	out := []Fitted{}
	for _, e := range ids {
		m := all[e].Points
		one := Fitted{IID: e, Prefill: len(m.Samples.Prefill), Decode: len(m.Samples.Decode), Rounds: m.Rounds, Ended: m.Ended, TookMS: m.TookMS, Findings: append([]record.Finding{}, judgeProfile(f, e, m)...)}
		refused := slices.ContainsFunc(one.Findings, func(x record.Finding) bool { return !x.Note && slices.Contains(refusing, x.Code) })
		for _, x := range peers {
			if x.Engine == e {
				one.Findings = append(one.Findings, x)
			}
		}
		if _, rep, err := m.fit(); err == nil {
			one.Report = rep
		}
		if row, err := m.row(e, all[e].Generation); err == nil && !refused {
			one.Row = &row
		}
		one.Findings = direct(f, one.Findings)
		out = append(out, one)
	}
	return out
}

// Refused are the findings for which the engine has no row.
func (x Fitted) Refused() (out []record.Finding) {
	for _, f := range x.Findings {
		if x.Row == nil && !f.Note && slices.Contains(refusing, f.Code) {
			out = append(out, f)
		}
	}
	return out
}

func strangers(f fleet.Fleet, all map[string]Measured) (n int) {
	for e := range all {
		if _, ok := f.ByID(e); !ok {
			n++
		}
	}
	return n
}
