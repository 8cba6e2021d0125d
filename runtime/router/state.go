package router

import (
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
)

func cut(k string) (before, after string) {
	before, after, _ = strings.Cut(k, ":")
	return before, after
}

// object is a JSON object whose members this router does not fill further.
type object = map[string]any

// state is narwhal.state version 1, keys in the contract's order. What this router does
// not have (a queue, a lease, a residency view) stands at its zero.
type state struct {
	Schema         string                    `json:"schema"`
	Version        int                       `json:"schema_version"`
	Run            string                    `json:"journal_run"`
	Served         int                       `json:"served"`
	SLOMet         int                       `json:"slo_met"`
	Offered        int                       `json:"offered"`
	Unsized        int                       `json:"unsized_offered"`
	Expired        int                       `json:"expired"`
	Failed         int                       `json:"failed"`
	Cancelled      int                       `json:"cancelled"`
	Invalid        int                       `json:"invalid_requests"`
	Controller     string                    `json:"controller"`
	Accounting     string                    `json:"token_accounting"`
	Control        object                    `json:"control"`
	Monitoring     object                    `json:"monitoring"`
	HA             object                    `json:"ha"`
	Lifecycle      lifecycleDoc              `json:"lifecycle"`
	Admission      object                    `json:"admission"`
	Outcomes       object                    `json:"outcome_reasons"`
	Seats          object                    `json:"seats"`
	Handoff        object                    `json:"handoff"`
	Serving        object                    `json:"serving"`
	HTTPPools      object                    `json:"http_pools"`
	Pools          map[string][]string       `json:"pools"`
	Load           map[string]float64        `json:"load"`
	Thresholds     object                    `json:"thresholds"`
	SLO            object                    `json:"slo"`
	FirstToken     float64                   `json:"first_token_timeout_s"`
	Calibration    object                    `json:"first_token_calibration"`
	Resident       map[string]map[string]int `json:"resident"`
	Pinned         []string                  `json:"pinned"`
	MinPrefill     int                       `json:"min_prefill"`
	MinDecode      int                       `json:"min_decode"`
	BelowFloor     object                    `json:"below_floor"`
	Ejected        []string                  `json:"ejected"`
	PeerRelease    object                    `json:"peer_release"`
	Draining       []string                  `json:"draining"`
	Probation      []string                  `json:"probation"`
	Health         object                    `json:"health"`
	Unserved       int                       `json:"unserved"`
	PanicBypasses  int                       `json:"panic_bypasses"`
	Attainment     object                    `json:"attainment"`
	DemandHistory  object                    `json:"demand_history"`
	DemandEvidence object                    `json:"demand_evidence"`
	FlipsRefused   []refusedFlip             `json:"flips_refused"`
	Flips          []flip                    `json:"flips"`
	Quarantined    []string                  `json:"quarantined"`
	Holds          object                    `json:"holds"`
	Breaker        object                    `json:"breaker"`
	Residency      object                    `json:"residency"`
	DecodeFloor    object                    `json:"decode_floor"`
}

func (r *Router) stateDoc(w http.ResponseWriter, _ *http.Request) {
	var s state
	if !r.own.ask(beatLimit, func() { s = r.own.state() }) {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"detail": "Router has stopped or does not answer itself"})
		return
	}
	writeJSON(w, http.StatusOK, s)
}

// state copies everything it shows, so that it may be written out afterwards.
func (o *owner) state() state {
	n, f := &o.n, o.set.Fleet
	s := state{Schema: "narwhal.state", Version: 1, Run: o.run, Served: n.served, SLOMet: n.sloMet, Offered: n.offered, Unsized: n.unsized,
		Expired: sum(n.expired), Failed: sum(n.failed), Cancelled: n.cancelled, Invalid: n.invalid, Controller: "reactive", Accounting: journal.AccountUsage,
		Control: o.controlState(), Lifecycle: o.lifecycle(), Admission: o.admissionState(),
		Outcomes: object{"failed": copied(n.failed), "rejected": copied(n.rejected), "expired": copied(n.expired), "refused": copied(n.refused)},
		Serving:  o.servingState(), Load: o.loads(), FirstToken: f.Engine.FirstTokenTimeoutS,
		Monitoring: object{"degraded": false, "reason": nil, "core_consecutive": 0, "core_failures": 0, "stages": object{}},
		HA:         o.haDoc(),
		HTTPPools:  object{"data_connections": o.set.limit, "control_connections": 4 * len(o.nodes), "pool_timeout_s": f.Engine.PoolTimeoutS},
		Thresholds: object{"expand": o.set.control.Expand, "shrink": o.set.control.Shrink, "cooldown_s": o.set.control.Cooldown,
			"sustained_intervals": o.set.control.Sustained, "dwell_s": o.set.control.Dwell, "panic_ratio": f.Controller.Thresholds.PanicRatio},
		SLO:         object{"ttft_s": o.set.params.TTFT, "tpot_s": o.set.params.TPOT},
		Calibration: object{"status": "uncalibrated", "captured_at_unix": nil, "candidate_deadline_s": nil, "engines": object{}},
		MinPrefill:  o.set.control.MinPrefill, MinDecode: o.set.control.MinDecode, Unserved: n.unserved,
		PeerRelease: object{}, Probation: []string{}, Health: object{}, Attainment: object{}, DemandHistory: object{}, DemandEvidence: object{},
		FlipsRefused: append([]refusedFlip{}, o.refusedBy...), Flips: []flip{}, Quarantined: []string{},
		Holds: object{"timed": []any{}, "inference": []any{}}, Breaker: o.breakerState(), Residency: object{}}
	for _, x := range o.flips {
		s.Flips = append(s.Flips, *x)
	}
	total := n.belowFloorTotal
	var since *float64
	if n.belowFloor {
		since = ptr(n.belowFloorSince)
		total += o.now() - n.belowFloorSince
	}
	o.inventoryState(&s)
	s.BelowFloor = object{"active": n.belowFloor, "live_prefill": o.liveOf(model.Prefill), "since": since, "breaches": n.breaches, "cumulative_s": total}
	live := o.liveOf(model.Decode)
	s.DecodeFloor = object{"min_decode": o.set.control.MinDecode, "live_decode": live, "below_floor": live < o.set.control.MinDecode, "restoration_moves": o.moves["decode_floor:decode"]}
	return s
}

func (o *owner) liveOf(role model.Role) (n int) {
	for _, x := range o.nodes {
		if x.live() && x.role == role {
			n++
		}
	}
	return n
}

func (o *owner) inventoryState(s *state) {
	s.Pools = map[string][]string{"prefill": {}, "decode": {}}
	s.Resident = map[string]map[string]int{}
	s.Pinned, s.Ejected, s.Draining = []string{}, []string{}, []string{}
	seats, bounds, mean := object{}, object{}, any(nil)
	if o.n.inputCount > 0 {
		mean = math.Round(o.n.inputSum/float64(o.n.inputCount)*10) / 10
	}
	for _, n := range o.nodes {
		s.Pools[string(n.role)] = append(s.Pools[string(n.role)], n.id)
		p, d := n.resident()
		s.Resident[n.id] = map[string]int{"prefill": p, "decode": d}
		seats[n.id] = object{"prefill": 0, "decode": n.curve.MaxRequests, "sequence_limit": nil}
		bounds[n.id] = object{"kv_lease_s": nil, "renewal_s": nil, "bound_s": nil}
		for _, l := range []struct {
			in bool
			to *[]string
		}{{n.pinned, &s.Pinned}, {n.ejected != "", &s.Ejected}, {n.draining, &s.Draining}} {
			if l.in {
				*l.to = append(*l.to, n.id)
			}
		}
	}
	for _, l := range [][]string{s.Pinned, s.Ejected, s.Draining} {
		slices.Sort(l)
	}
	s.Seats = object{"mean_input_len": mean, "engines": seats}
	s.Handoff = bounds
}

// loads are the mean over each pool's live engines; 1 is the promise. Prefill: resident
// work over the first-token target. Decode: the observed token gap's share of what lies
// between an idle engine's interval and the target.
func (o *owner) loads() map[string]float64 {
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, n := range o.nodes {
		if !n.live() {
			continue
		}
		role := string(n.role)
		counts[role]++
		if n.role == model.Prefill {
			for _, l := range n.prefilling {
				sums[role] += l.own / o.set.params.TTFT
			}
			continue
		}
		if len(n.decoding) > 0 && n.gap > 0 {
			floor, target := n.kappa*n.curve.Interval(0, 0), o.set.params.TPOT
			if floor >= target {
				sums[role] += n.gap / target
			} else {
				sums[role] += max(0, n.gap-floor) / (target - floor)
			}
		}
	}
	out := map[string]float64{"prefill": 0, "decode": 0}
	for role, v := range sums {
		out[role] = math.Round(v/counts[role]*1e4) / 1e4
	}
	return out
}

func (o *owner) controlState() object {
	flips, decisions := map[string]int{}, map[string]int{}
	for k, v := range o.moves {
		flips[k] = v
	}
	for k, v := range o.decisions {
		decisions[k] = v
	}
	c := object{"advisory": o.set.control.Advisory, "last_decision": nil, "decisions": decisions, "flips": flips, "flip_reversals": o.n.reversals,
		"flips_refused": o.n.flipsRefused, "flip_inflight": map[string]int{"prefill": o.n.flipPrefill, "decode": o.n.flipDecode}}
	if o.last != nil {
		c["last_decision"] = *o.last
	}
	return c
}

func (o *owner) admissionState() object {
	mode := "predictive"
	if o.set.params.Open {
		mode = "open"
	}
	auth := "boundary"
	if !o.set.key.Empty() {
		auth = "engine-credential"
	}
	return object{"inflight": o.n.inflight, "queued": 0, "queue_capacity": 0, "queue_high_water": 0, "waiting_prefill": 0, "waiting_decode": 0,
		"limit": o.set.limit, "loop_lag_s": 0.0, "sizing_delay_s": 0.0, "saturation_threshold_s": 0.25 * o.set.params.TTFT,
		"rejected": sum(o.n.rejected), "refused": sum(o.n.refused), "engine_auth": auth, "mode": mode, "margin": o.set.params.Margin}
}

func (o *owner) servingState() object {
	n := &o.n
	failures := []object{}
	for _, k := range sortedKeys(n.attemptFailures) {
		failures = append(failures, object{"phase": k[0], "reason": k[1], "count": n.attemptFailures[k]})
	}
	return object{"http_retained": n.retained, "http_retained_limit": o.set.limit, "http_retained_high_water": n.retainedHigh,
		"prefill_attempts": n.prefillAttempts, "decode_attempts": n.decodeAttempts, "retry_attempts": n.retryAttempts,
		"retry_credits": o.credits, "retry_credits_spent": n.creditsSpent, "retry_denied": n.retryDenied, "served_after_retry": n.servedAfterRetry,
		"attempt_failures": failures, "decode_tokens_observed": n.tokens,
		"upstream_seconds": map[string]float64{"prefill": n.prefillSeconds, "decode": n.decodeSeconds}}
}

func (o *owner) breakerState() object {
	failures := map[string]map[string]int{}
	verifying, ejections, probes, readmissions := []object{}, []object{}, []object{}, []object{}
	for _, n := range o.nodes {
		m := map[string]int{}
		for _, c := range classes {
			m[c] = n.streak[c]
		}
		failures[n.id] = m
		if n.verifying {
			verifying = append(verifying, object{"iid": n.id, "kind": "verify"})
		}
	}
	for _, k := range sortedKeys(o.n.ejections) {
		ejections = append(ejections, object{"iid": k[0], "cause": k[1], "count": o.n.ejections[k]})
	}
	for _, k := range sortedKeys(o.n.readmissions) {
		readmissions = append(readmissions, object{"iid": k[0], "evidence": k[1], "count": o.n.readmissions[k]})
	}
	for k, v := range o.n.probes {
		probes = append(probes, object{"iid": k[0], "kind": k[1], "outcome": k[2], "count": v})
	}
	return object{"failures": failures, "verifying": verifying, "ejections": ejections, "hold_starts": []any{}, "hold_ends": []any{}, "probes": probes, "readmissions": readmissions}
}

func sortedKeys(m map[[2]string]int) [][2]string {
	keys := make([][2]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]string) int {
		if a[0] != b[0] {
			return strings.Compare(a[0], b[0])
		}
		return strings.Compare(a[1], b[1])
	})
	return keys
}

func copied(m map[model.Reason]int) map[string]int {
	out := map[string]int{}
	for k, v := range m {
		out[string(k)] = v
	}
	return out
}
