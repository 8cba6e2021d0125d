package tenant

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a tenant's numbers: far above any router, and safe to calculate with.
const (
	maxWeight   = 1e6
	minWeight   = 1e-3
	maxSeats    = 1e6
	maxRate     = 1e9  // tokens a second
	maxRequest  = 1e9  // tokens of one request, here and in the limiter
	leastTokens = 1e-3 // of a rate that is not 0
)

// known reports members that are not in the list.
func (r *reader) known(member string, o object, names ...string) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(names, name) {
			r.bad(join(member, name), "is no known member", "known here: "+strings.Join(names, ", "))
		}
	}
}

func (r *reader) limits(member string, o object) Limits {
	l := Limits{Weight: 1}
	if w, given := o["weight"]; given {
		l.Weight = r.number(member+".weight", w, minWeight, maxWeight)
	}
	if n, given := o["max_inflight"]; given {
		v, ok := whole(n)
		if !ok || v < 0 || v > maxSeats {
			r.bad(member+".max_inflight", fmt.Sprintf("is no whole number from 0 to %d", int(maxSeats)), "0 is no limit")
		}
		l.MaxInflight = int(v)
	}
	rate, rated := o["tokens_per_s"]
	if rated {
		l.TokensPerS = r.number(member+".tokens_per_s", rate, 0, maxRate)
		if l.TokensPerS > 0 && l.TokensPerS < leastTokens {
			r.bad(member+".tokens_per_s", fmt.Sprintf("is below %g and not 0", leastTokens), "0 is no limit")
		}
	}
	burst, given := o["burst_tokens"]
	if given {
		l.BurstTokens = r.number(member+".burst_tokens", burst, 0, maxRequest)
	}
	switch {
	case l.TokensPerS > 0 && (!given || l.BurstTokens < 1):
		r.bad(member+".burst_tokens", "is less than 1 although tokens_per_s is set", "it is the most that one request may ask for, prompt and output")
	case l.BurstTokens > 0 && (!rated || rate == json.Number("0")):
		r.bad(member+".burst_tokens", "has no effect without tokens_per_s", "")
	}
	return l
}

// number reads a number within bounds.
func (r *reader) number(member string, v any, least, most float64) float64 {
	n, ok := v.(json.Number)
	f, err := strconv.ParseFloat(n.String(), 64)
	if !ok || err != nil || !(f >= least && f <= most) {
		r.bad(member, fmt.Sprintf("is no number from %g to %g", least, most), "")
		return least
	}
	return f
}

// whole reads an integer that is written as one.
func whole(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	return i, err == nil
}
