package standby

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
)

// States that a lifecycle record may have.
var states = []string{"active", "draining", "drained", "deadline_exceeded", "validating", "blocked"}

// Bounds of single members.
const (
	maxText    = 4096 // bytes of one name, id or reason
	maxEvents  = 1000 // lifecycle events; the contract keeps 200
	maxSeconds = 1e11
	maxEpoch   = 1 << 53
)

// Validate checks what does not depend on the fleet. Its error is a *MalformedError.
func (d Document) Validate() error {
	switch {
	case d.Schema != Schema || d.Version != Version:
		return malformed("is %.64q version %d", d.Schema, d.Version)
	case !moment(d.At):
		return malformed("at is no time")
	case d.Epoch < 0 || d.Epoch > maxEpoch || (d.Epoch == 0) != (d.Holder == ""):
		return malformed("epoch %d does not go with its holder", d.Epoch)
	case !plain(d.Run, d.Model, d.Holder) || !plain(d.Engines...):
		return malformed("a name is too long or holds control characters")
	case !slices.IsSorted(d.Engines) || len(slices.Compact(slices.Clone(d.Engines))) != len(d.Engines) || slices.Contains(d.Engines, ""):
		return malformed("engines are not sorted, repeated or empty")
	}
	for _, check := range []func() error{d.checkEngines, d.checkCounts, d.checkLifecycle, d.checkRisk} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Fits checks d against the fleet of the router that would apply it: the same engines and
// the same restart policy. Its error is a *MalformedError; order does not matter.
func (d Document) Fits(engines []string, policy string) error {
	if want := slices.Sorted(slices.Values(engines)); !slices.Equal(want, d.Engines) {
		return malformed("is of %d engines, not of the %d of this fleet: %s", len(d.Engines), len(want), difference(want, d.Engines))
	}
	if d.Lifecycle.Policy != policy {
		return malformed("engine restart policy is %q, this fleet has %q", d.Lifecycle.Policy, policy)
	}
	return nil
}

// difference names an engine that only one of two sorted lists has.
func difference(ours, theirs []string) string {
	lacks := func(list []string) func(string) bool {
		return func(iid string) bool { _, has := slices.BinarySearch(list, iid); return !has }
	}
	if i := slices.IndexFunc(theirs, lacks(ours)); i >= 0 {
		return fmt.Sprintf("this fleet has no %.64q", theirs[i])
	}
	if i := slices.IndexFunc(ours, lacks(theirs)); i >= 0 {
		return fmt.Sprintf("it has no %.64q", ours[i])
	}
	return "an engine stands twice"
}

func moment(v float64) bool { return v >= 0 && v < maxSeconds && !math.IsNaN(v) }

func plain(texts ...string) bool {
	return !slices.ContainsFunc(texts, func(s string) bool { return len(s) > maxText || strings.ContainsFunc(s, unicode.IsControl) })
}

func (d Document) known(iid string) bool {
	_, ok := slices.BinarySearch(d.Engines, iid)
	return ok
}

func (d Document) checkEngines() error {
	if d.Engines == nil || d.Roles == nil || d.Ejected == nil || d.Sources == nil {
		return malformed("engines, roles, ejected or inference_sources is null")
	}
	if len(d.Roles) != len(d.Engines) {
		return malformed("%d roles for %d engines", len(d.Roles), len(d.Engines))
	}
	for iid, role := range d.Roles {
		if !d.known(iid) || role != "prefill" && role != "decode" {
			return malformed("role %.64q of engine %.64q", role, iid)
		}
	}
	seen := map[string]bool{}
	for _, iid := range d.Ejected {
		if !d.known(iid) || seen[iid] {
			return malformed("ejected engine %.64q is unknown or repeated", iid)
		}
		seen[iid] = true
	}
	for suspect, producers := range d.Sources {
		if !d.known(suspect) || producers == nil {
			return malformed("suspect %.64q is unknown or has no list", suspect)
		}
		for _, p := range producers {
			if p != "" && !d.known(p) {
				return malformed("producer %.64q of suspect %.64q is unknown", p, suspect)
			}
		}
	}
	return nil
}

// maxCount is the largest count that every reader of JSON has exactly.
const maxCount = 1<<53 - 1

func (d Document) checkCounts() error {
	c := d.Counters
	for _, n := range []int64{c.Offered, c.Unsized, c.Served, c.SLOMet, c.Expired, c.Invalid, c.Failed, c.Refused, c.Rejected, c.Cancelled, c.Unserved} {
		if n < 0 || n > maxCount {
			return malformed("a counter is %d, want 0 to %d", n, int64(maxCount))
		}
	}
	for _, m := range []map[string]int64{d.Reasons.Failed, d.Reasons.Rejected, d.Reasons.Expired, d.Reasons.Refused} {
		if err := counts("outcome_reasons", m); err != nil {
			return err
		}
	}
	return nil
}

func counts(where string, m map[string]int64) error {
	if m == nil {
		return malformed("%s: a list is null", where)
	}
	for name, n := range m {
		if n < 0 || n > maxCount || name == "" || !plain(name) {
			return malformed("%s: %.64q is %d", where, name, n)
		}
	}
	return nil
}

func (d Document) checkLifecycle() error {
	l := d.Lifecycle
	switch {
	case l.Records == nil || l.Events == nil || l.Starts == nil:
		return malformed("lifecycle: records, events or process_starts is null")
	case l.Policy != "individual" && l.Policy != "whole_wave":
		return malformed("lifecycle: engine restart policy %.64q", l.Policy)
	case !plain(l.Wave) || len(l.Events) > maxEvents:
		return malformed("lifecycle: wave id is no name, or more than %d events", maxEvents)
	}
	for iid, at := range l.Starts {
		if !d.known(iid) || !moment(at) {
			return malformed("lifecycle: process start of engine %.64q", iid)
		}
	}
	seen := map[string]bool{}
	for _, r := range l.Records {
		if !d.known(r.IID) || seen[r.IID] {
			return malformed("lifecycle: record of engine %.64q is unknown or repeated", r.IID)
		}
		seen[r.IID] = true
		if err := r.check(); err != nil {
			return err
		}
	}
	for _, e := range l.Events {
		if err := checkEvent(e); err != nil {
			return err
		}
	}
	return nil
}

func (r Record) check() error {
	ok := slices.Contains(states, r.State) && moment(r.Requested) && r.Checks != nil && plain(r.Wave)
	for _, at := range []*float64{r.Deadline, r.OldStart, r.NewStart} {
		ok = ok && (at == nil || moment(*at))
	}
	if !ok {
		return malformed("lifecycle: record of engine %.64q has a wrong value", r.IID)
	}
	return nil
}

func checkEvent(raw json.RawMessage) error {
	m, err := object("lifecycle.events", raw)
	if err != nil {
		return err
	}
	var name, action string
	var at float64
	if json.Unmarshal(m["event"], &name) != nil || json.Unmarshal(m["action"], &action) != nil || json.Unmarshal(m["at"], &at) != nil ||
		len(raw) > maxText || !plain(name, action) || !moment(at) {
		return malformed("lifecycle.events: an event without event, action and at, or longer than %d bytes", maxText)
	}
	return nil
}

func (d Document) checkRisk() error {
	if d.Risk == nil {
		return nil
	}
	if d.Risk.Kind == "" || !plain(d.Risk.Kind) || !moment(d.Risk.Age) {
		return malformed("demand_risk: kind or age")
	}
	return counts("demand_risk", d.Risk.Events)
}
