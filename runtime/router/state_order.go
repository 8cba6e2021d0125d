package router

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// object is a JSON object that is written with its keys in the contract's order; keys that
// the contract does not have come last, by name.
type object map[string]any

// contractOrder holds the keys of all nested objects of narwhal.state. Each object's own
// order is a subsequence of it.
var contractOrder = func() map[string]int {
	rank := map[string]int{}
	for i, k := range strings.Fields(`
		advisory last_decision decisions flips flip_reversals flips_refused flip_inflight
		phase degraded known reason core_consecutive core_failures event_loop_lag_s event_loop_lag_high_water_s event_loop_busy_s stages
		failures consecutive last_class last_at
		ready standby epoch holder blocked sequence block_size resident_blocks resyncs
		inflight queued queue_capacity queue_high_water waiting_prefill waiting_decode limit loop_lag_s sizing_delay_s saturation_threshold_s
		failed rejected expired refused engine_auth mode margin
		no_engine engine_unreachable engine_connection engine_timeout engine_overloaded engine_rejected engine_error local_pool invalid_response response_limit internal
		inflight_limit saturated not_ready deadline queue_timeout handoff queue prompt aggregate_unpriced slot_wait kv_capacity tpot
		status captured_at_unix candidate_deadline_s mean_input_len engines prefill decode sequence_limit kv_lease_s renewal_s bound_s
		http_retained http_retained_limit http_retained_high_water prefill_attempts decode_attempts retry_attempts retry_credits
		retry_credits_spent retry_denied served_after_retry attempt_failures decode_tokens_observed upstream_seconds
		data_connections control_connections pool_timeout_s
		expand shrink cooldown_s sustained_intervals dwell_s panic_ratio ttft_s tpot_s
		active live_prefill since breaches cumulative_s
		scored undersampled last_scored_s_ago prefill_paused prefill_pauses
		span_s unsized arrivals expected_decode observed_decode residency
		bucket_s retained_s covered_s cell_limit cells buckets outcomes pruned_buckets pruned_outcomes observations overflow_observations pending
		required_span_s required_arrivals max_span_s closed risk_kind risk_age_s risk_events first_token_timeout p_to_d_recovery
		short_decode_engines long_decode_engines trend_ratio envelope_decode_engines blocked_gate
		timed inference verifying ejections hold_starts hold_ends probes readmissions
		connection timeout overload inference_status kv_handoff stream liveness
		iid held_s remaining_s recorded_producers kind evidence outcome cause reasons count
		min_decode live_decode below_floor restoration_moves rounds next_round_s
		journal runtime`) {
		if _, ok := rank[k]; !ok {
			rank[k] = i
		}
	}
	return rank
}()

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	keys := slices.SortedFunc(maps.Keys(o), func(a, b string) int {
		x, known := contractOrder[a]
		y, too := contractOrder[b]
		switch {
		case known && too:
			return x - y
		case known:
			return -1
		case too:
			return 1
		}
		return strings.Compare(a, b)
	})
	return members(keys, func(k string) any { return o[k] })
}

// members writes an object with these keys in this order.
func members(keys []string, value func(string) any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range keys {
		v, err := json.Marshal(value(k))
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(k))
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// phases is an object with members prefill and decode.
type phases[T any] map[string]T

// MarshalJSON writes prefill first.
func (p phases[T]) MarshalJSON() ([]byte, error) {
	keys := slices.SortedFunc(maps.Keys(p), func(a, b string) int { return strings.Compare(b, a) })
	return members(keys, func(k string) any { return p[k] })
}
