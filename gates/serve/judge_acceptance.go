package serve

import (
	"fmt"
	"net/http"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
)

// judgeAcceptance wants the note to say what the evidence says, and the routes to be there.
func judgeAcceptance(v gates.View, t Trial) (out []record.Finding) {
	var a Acceptance
	if v.Decode(acceptanceKey, &a) != nil {
		return nil // the runner reports missing evidence
	}
	host := v.Fleet.Deploy.Router.Host
	add := func(code, want, got, hint string) {
		out = append(out, record.Finding{Code: code, Host: host, Want: want, Got: got, Evidence: string(acceptanceKey), Hint: hint, Message: fmt.Sprintf("got %s, want %s", got, want)})
	}
	const again = "narwhal gate run --again G writes it anew"
	rates, highest := t.carried(v.Fleet)
	if a.Highest != highest || len(a.Rates) != len(rates) {
		add("acceptance-wrong", fmt.Sprintf("%g/s of %d rates, as the trial's rows tell", highest, len(rates)), fmt.Sprintf("%g/s of %d rates in the acceptance note", a.Highest, len(a.Rates)), again)
	} else {
		for i, r := range rates {
			if a.Rates[i].Passed != r.Passed || a.Rates[i].Qualified != r.Qualified || a.Rates[i].Offered != r.Offered || a.Rates[i].Rate != r.Rate {
				add("acceptance-wrong", fmt.Sprintf("%d of %d at %g/s, as the trial's rows tell", r.Qualified, r.Offered, r.Rate), fmt.Sprintf("%d of %d at %g/s in the acceptance note", a.Rates[i].Qualified, a.Rates[i].Offered, a.Rates[i].Rate), again)
			}
		}
	}
	for _, r := range routes {
		if a.Routes[r] != http.StatusOK {
			add("route-missing", "an answer with status 200 of "+r, fmt.Sprintf("status %d", a.Routes[r]), "clients or monitoring will not find it: see router.log in its host's run folder")
		}
	}
	if a.Routes["/v1/models"] == http.StatusOK && !a.Serves {
		add("route-missing", fmt.Sprintf("a model list that names %q", v.Fleet.Model), "a list without it", "see /v1/models of the router, and model in the fleet file")
	}
	if n := len(a.Roles["prefill"]) + len(a.Roles["decode"]); n != len(v.Fleet.Engines) {
		add("roles-unknown", fmt.Sprintf("a role for each of %d engines after the trial", len(v.Fleet.Engines)), fmt.Sprintf("%d with one", n), "see pools in /narwhal/state of the router: an engine left it during the trial")
	}
	return out
}
