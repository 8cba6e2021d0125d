package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/runtime/bench"
)

// Acceptance is what is handed over: what the fleet carried, in which shape, and what nobody
// has looked at.
type Acceptance struct {
	Fleet   string    `json:"fleet"`
	Model   string    `json:"model"`
	SLO     bench.SLO `json:"slo"`
	Needs   float64   `json:"required_attainment"`
	Highest float64   `json:"highest_passing_rate"` // requests/s, 0 = none passed
	Rates   []Carried `json:"rates"`
	// Workload is the trial's section of the fleet file, Offers the digest of what it offered.
	Workload fleet.Trial `json:"workload"`
	Offers   string      `json:"offers_sha256"`
	Revision string      `json:"fleet_sha256"` // of the fleet document
	Release  string      `json:"release_sha256"`
	Profiles string      `json:"profiles_sha256"`
	// Routes are the router's answers to GET, by path; 0 = none.
	Routes map[string]int `json:"routes"`
	// Serves says whether the router lists the fleet's model.
	Serves bool `json:"serves_model"`
	// Roles are the engines of each role when the trial was over.
	Roles      map[string][]string `json:"roles"`
	NotChecked []string            `json:"not_checked"`
}

// Carried is one rate of the trial, as its rows tell it.
type Carried struct {
	Rate       float64           `json:"rate"`
	Passed     bool              `json:"passed"`
	Why        string            `json:"because,omitempty"` // it did not
	Offered    int               `json:"offered"`
	Qualified  int               `json:"qualified"`
	Attainment float64           `json:"attainment"`
	TTFT       bench.Percentiles `json:"ttft_ms"`
	TPOT       bench.Percentiles `json:"tpot_ms"`
}

// routes are what clients and monitoring find at a router.
var routes = []string{"/health", "/ready", "/v1/models", "/metrics", "/narwhal/state", "/narwhal/targets"}

// carried scores the rates again from their rows. A rate counts when every one up to it passed
// through an unbroken tunnel.
func (t Trial) carried(f fleet.Fleet) (out []Carried, highest float64) {
	out = []Carried{}
	whole := true
	for _, p := range t.Points {
		s := bench.Evaluate(p.Rows, bench.SLO{TTFT: f.SLO.TTFTS, TPOT: f.SLO.TPOTS})
		ok, why := p.passes(f)
		if ok && p.Reconnects > 0 {
			ok, why = false, "the tunnel was lost meanwhile"
		}
		if whole = whole && ok; whole {
			highest = max(highest, p.Rate)
		}
		out = append(out, Carried{Rate: p.Rate, Passed: ok, Why: why, Offered: s.Offered, Qualified: s.Qualified, Attainment: s.Attainment, TTFT: s.TTFT, TPOT: s.TPOT})
	}
	for _, r := range t.NotRun {
		out = append(out, Carried{Rate: r, Why: "not run"})
	}
	return out, highest
}

// accept asks the router what it offers and writes the note.
func accept(ctx context.Context, env gates.Env, _ json.RawMessage) ([]byte, error) {
	v := env.View()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	base, _, err := tunnel(ctx, env)
	if err != nil {
		return nil, err
	}
	a, err := note(v)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		status, body, _ := askFor(ctx, base+r) // status 0 tells of an error
		if a.Routes[r] = status; r == "/v1/models" && status == http.StatusOK {
			a.Serves = lists(body, v.Fleet.Model)
		}
	}
	if state, err := get(ctx, base+"/narwhal/state"); err == nil {
		a.Roles = rolesOf(state, v.Fleet)
	}
	return json.Marshal(a)
}

// note is what the record tells.
func note(v gates.View) (Acceptance, error) {
	f := v.Fleet
	var t Trial
	if err := v.Decode(trialKey, &t); err != nil {
		return Acceptance{}, err
	}
	a := Acceptance{Fleet: f.Deploy.Name, Model: f.Model, SLO: bench.SLO{TTFT: f.SLO.TTFTS, TPOT: f.SLO.TPOTS}, Needs: f.Deploy.Trial.Attainment, Workload: f.Deploy.Trial,
		Revision: gates.Inputs(f, v.Release)["fleet/document"], Release: v.Release.SHA256, Profiles: v.Digest(storeKey), Routes: map[string]int{}, Roles: map[string][]string{}}
	a.Rates, a.Highest = t.carried(f)
	sum := sha256.New()
	for _, rate := range f.Deploy.Trial.Rates {
		if arrivals, err := Arrivals(f.Deploy.Trial, rate); err == nil {
			sum.Write(bench.FormatArrivals(arrivals))
		}
	}
	a.Offers = hex.EncodeToString(sum.Sum(nil))
	a.NotChecked = unchecked(f, t)
	return a, nil
}

// unchecked names what this gate does not look at.
func unchecked(f fleet.Fleet, t Trial) []string {
	out := []string{"load above the highest rate of the trial, and longer than its requests took"}
	if f.Deploy.Monitoring == nil {
		out = append(out, "monitoring of the site: the fleet file has no deploy.monitoring")
	} else {
		out = append(out, "who is told when an alert fires: Alertmanager and Grafana of the site")
	}
	switch r := f.Deploy.Router; {
	case standsBy(f) == nil && r.Standby != nil:
		out = append(out, "the standby: without deploy.router.lease it is not started")
	case standsBy(f) == nil:
		out = append(out, "the loss of the router: the fleet has no standby")
	default:
		out = append(out, "a takeover by the standby: it follows, and was not made to take over")
	}
	var blind []string
	for _, e := range f.Engines {
		if r, err := f.Resolve(e.IID); err == nil && r.ModelDir == "" {
			blind = append(blind, e.IID)
		}
	}
	if len(blind) > 0 {
		out = append(out, fmt.Sprintf("the checkpoints of %d engines, of %s first: their launches name no model_dir", len(blind), blind[0]))
	}
	if !f.Deploy.Profile.LeaseDrill {
		out = append(out, "how long a prefill engine keeps KV that nobody reads: deploy.profile.lease_drill is off")
	}
	if f.Engine.FirstTokenTimeoutS == 0 {
		out = append(out, "the deadline of a first token: engine.first_token_timeout_s is 0")
	}
	if f.Supervise(f.Deploy.Router.Host) == fleet.SuperviseOwn {
		out = append(out, "a router that dies: without systemd the next narwhal gate run brings it back, and nothing else")
	}
	for _, rate := range t.NotRun {
		out = append(out, fmt.Sprintf("%g/s: it was not offered", rate))
	}
	if n, all := len(f.HandoffPairs()), len(f.Engines)*(len(f.Engines)-1); n < all {
		out = append(out, fmt.Sprintf("handoffs of %d of %d directed pairs: deploy.profile.pairs is %s", all-n, all, f.Deploy.Profile.Pairs))
	}
	return append(out, "handoffs of pairs beside the ring after the load: gate F asked them before it")
}

// lists reports whether a model list names a model.
func lists(body []byte, model string) bool {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) != nil {
		return false
	}
	for _, m := range list.Data {
		if m.ID == model {
			return true
		}
	}
	return false
}

// rolesOf reads the pools of a state document; it names only engines of the fleet.
func rolesOf(state []byte, f fleet.Fleet) map[string][]string {
	var s struct {
		Pools struct {
			Prefill []string `json:"prefill"`
			Decode  []string `json:"decode"`
		} `json:"pools"`
	}
	out := map[string][]string{"prefill": {}, "decode": {}}
	if json.Unmarshal(state, &s) != nil {
		return out
	}
	for role, ids := range map[string][]string{"prefill": s.Pools.Prefill, "decode": s.Pools.Decode} {
		for _, id := range f.EngineIDs() {
			if slices.Contains(ids, id) {
				out[role] = append(out[role], id)
			}
		}
	}
	return out
}

// AcceptanceOf reads the note of a record, false when there is none that holds.
func AcceptanceOf(v gates.View) (a Acceptance, ok bool) {
	return a, v.Decode(acceptanceKey, &a) == nil
}
