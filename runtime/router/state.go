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

// state is narwhal.state version 1, keys in the contract's order; the last one is ours.
type state struct {
	Schema         string                 `json:"schema"`
	Version        int                    `json:"schema_version"`
	Run            string                 `json:"journal_run"`
	Served         int                    `json:"served"`
	SLOMet         int                    `json:"slo_met"`
	Offered        int                    `json:"offered"`
	Unsized        int                    `json:"unsized_offered"`
	Expired        int                    `json:"expired"`
	Failed         int                    `json:"failed"`
	Cancelled      int                    `json:"cancelled"`
	Invalid        int                    `json:"invalid_requests"`
	Controller     string                 `json:"controller"`
	Accounting     string                 `json:"token_accounting"`
	Control        object                 `json:"control"`
	Monitoring     object                 `json:"monitoring"`
	HA             object                 `json:"ha"`
	Lifecycle      lifecycleDoc           `json:"lifecycle"`
	Admission      object                 `json:"admission"`
	Outcomes       object                 `json:"outcome_reasons"`
	Seats          object                 `json:"seats"`
	Handoff        object                 `json:"handoff"`
	Serving        object                 `json:"serving"`
	HTTPPools      object                 `json:"http_pools"`
	Pools          phases[[]string]       `json:"pools"`
	Load           phases[float64]        `json:"load"`
	Thresholds     object                 `json:"thresholds"`
	SLO            object                 `json:"slo"`
	FirstToken     float64                `json:"first_token_timeout_s"`
	Calibration    object                 `json:"first_token_calibration"`
	Resident       map[string]phases[int] `json:"resident"`
	Pinned         []string               `json:"pinned"`
	MinPrefill     int                    `json:"min_prefill"`
	MinDecode      int                    `json:"min_decode"`
	BelowFloor     object                 `json:"below_floor"`
	Ejected        []string               `json:"ejected"`
	PeerRelease    object                 `json:"peer_release"`
	Draining       []string               `json:"draining"`
	Probation      []string               `json:"probation"`
	Health         object                 `json:"health"`
	Unserved       int                    `json:"unserved"`
	PanicBypasses  int                    `json:"panic_bypasses"`
	Attainment     object                 `json:"attainment"`
	DemandHistory  object                 `json:"demand_history"`
	DemandEvidence object                 `json:"demand_evidence"`
	FlipsRefused   []refusedFlip          `json:"flips_refused"`
	Flips          []flip                 `json:"flips"`
	Quarantined    []string               `json:"quarantined"`
	Holds          object                 `json:"holds"`
	Breaker        object                 `json:"breaker"`
	Residency      object                 `json:"residency"`
	DecodeFloor    object                 `json:"decode_floor"`
	Router         object                 `json:"router"`
}

func (r *Router) stateDoc(w http.ResponseWriter, _ *http.Request) {
	var s state
	seen := r.metrics.look()
	if !r.own.ask(beatLimit, func() { s = r.own.state(seen) }) {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"detail": "Router has stopped or does not answer itself"})
		return
	}
	writeJSON(w, http.StatusOK, s)
}

// state copies everything it shows, so that it may be written out afterwards.
func (o *owner) state(seen seen) state {
	n, f := &o.n, o.set.Fleet
	s := state{Schema: "narwhal.state", Version: 1, Run: o.run, Served: n.served, SLOMet: n.sloMet, Offered: n.offered, Unsized: n.unsized,
		Expired: sum(n.expired), Failed: sum(n.failed), Cancelled: n.cancelled, Invalid: n.invalid, Controller: "reactive", Accounting: journal.AccountUsage,
		Control: o.controlState(), Monitoring: o.monitoringState(seen), Lifecycle: o.lifecycle(), Admission: o.admissionState(seen),
		Outcomes: object{"failed": copied(n.failed), "rejected": copied(n.rejected), "expired": copied(n.expired), "refused": copied(n.refused)},
		Serving:  o.servingState(), Load: o.loads(), FirstToken: f.Engine.FirstTokenTimeoutS,
		HA:        o.haState(),
		HTTPPools: object{"data_connections": o.set.limit, "control_connections": o.set.probes() * len(o.nodes), "pool_timeout_s": f.Engine.PoolTimeoutS},
		Thresholds: object{"expand": o.set.control.Expand, "shrink": o.set.control.Shrink, "cooldown_s": o.set.control.Cooldown,
			"sustained_intervals": o.set.control.Sustained, "dwell_s": o.set.control.Dwell, "panic_ratio": f.Controller.Thresholds.PanicRatio},
		SLO:         object{"ttft_s": o.set.params.TTFT, "tpot_s": o.set.params.TPOT},
		Calibration: object{"status": "uncalibrated", "captured_at_unix": nil, "candidate_deadline_s": nil, "engines": object{}},
		MinPrefill:  o.set.control.MinPrefill, MinDecode: o.set.control.MinDecode, Unserved: n.unserved,
		PeerRelease: o.releaseState(), FlipsRefused: append([]refusedFlip{}, o.refusedBy...), Flips: []flip{},
		Holds: o.holdsState(), Breaker: o.breakerState(), Router: routerState(seen)}
	for _, x := range o.flips {
		s.Flips = append(s.Flips, *x)
	}
	o.inventoryState(&s)
	o.evidenceState(&s)
	o.floorState(&s)
	return s
}

func (o *owner) floorState(s *state) {
	n := &o.n
	var since *float64
	if n.belowFloor {
		since = ptr(n.belowFloorSince)
	}
	s.BelowFloor = object{"active": n.belowFloor, "live_prefill": o.liveOf(model.Prefill), "since": since, "breaches": n.breaches, "cumulative_s": o.belowFloorSeconds()}
	live := o.liveOf(model.Decode)
	s.DecodeFloor = object{"min_decode": o.set.control.MinDecode, "live_decode": live, "below_floor": live < o.set.control.MinDecode, "restoration_moves": o.moves["decode_floor:decode"]}
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
	s.Pools = phases[[]string]{"prefill": {}, "decode": {}}
	s.Resident = map[string]phases[int]{}
	s.Pinned, s.Ejected, s.Draining, s.Probation, s.Quarantined = []string{}, []string{}, []string{}, []string{}, []string{}
	s.Seats, s.Handoff, s.Health, s.Residency = object{"mean_input_len": nil}, object{}, object{}, object{}
	if mean, ok := o.meanInput(); ok {
		s.Seats["mean_input_len"] = math.Round(mean*10) / 10
	}
	seats := object{}
	for _, n := range o.nodes {
		s.Pools[string(n.role)] = append(s.Pools[string(n.role)], n.id)
		p, d := n.resident()
		s.Resident[n.id] = phases[int]{"prefill": p, "decode": d}
		p, d, limit := o.seats(n)
		seats[n.id] = object{"prefill": p, "decode": d, "sequence_limit": limit}
		o.engineState(s, n)
		for _, l := range []struct {
			in bool
			to *[]string
		}{{n.pinned, &s.Pinned}, {n.ejected != "", &s.Ejected}, {n.draining, &s.Draining}, {o.drift(n).probation, &s.Probation},
			{slices.Contains(o.held(n), holdTimed), &s.Quarantined}} {
			if l.in {
				*l.to = append(*l.to, n.id)
			}
		}
	}
	for _, l := range [][]string{s.Pinned, s.Ejected, s.Draining, s.Probation, s.Quarantined} {
		slices.Sort(l)
	}
	s.Seats["engines"] = seats
}

// engineState fills the objects that have a member for each engine.
func (o *owner) engineState(s *state, n *node) {
	bound := object{"kv_lease_s": nil, "renewal_s": nil, "bound_s": nil}
	if b, ok := o.bound(n); ok {
		bound = object{"kv_lease_s": b.lease, "renewal_s": b.renewal, "bound_s": b.bound}
	}
	s.Handoff[n.id] = bound
	h := o.drift(n)
	var ago *float64
	if h.lastScored != nil {
		ago = ptr(o.now() - *h.lastScored)
	}
	s.Health[n.id] = object{"scored": h.scored, "undersampled": h.undersampled, "last_scored_s_ago": ago, "prefill_paused": h.paused, "prefill_pauses": h.pauses}
	block := any(nil)
	if n.facts.blockSize > 0 {
		block = n.facts.blockSize
	}
	s.Residency[n.id] = object{"known": false, "reason": "no cache events are read", "epoch": nil, "sequence": nil, "block_size": block,
		"resident_blocks": object{}, "resyncs": 0}
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

func copied(m map[model.Reason]int) object {
	out := object{}
	for k, v := range m {
		out[string(k)] = v
	}
	return out
}
