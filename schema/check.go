package schema

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// checker holds what the rules that compare fields see. Each rule is linear in the
// size of the fleet.
type checker struct {
	rep  *report
	root *node
	f    *fleet.Fleet
	opt  Options
}

// check runs every rule on a document whose shape is right.
func check(ctx context.Context, rep *report, f *fleet.Fleet, opt Options) {
	c := checker{rep, rep.root, f, opt}
	for _, rules := range []func(){
		c.engines, c.sharedDevices, c.contract, c.reach, c.controller, c.roles, c.serving, c.backend, c.recovery, c.paths, c.floor, c.deploy,
	} {
		if ctx.Err() != nil {
			return
		}
		rules()
	}
}

// fault reports at a dotted path that needs no quotes.
func (c checker) fault(rule, field, says, hint string) {
	p, _ := parsePath(field)
	c.rep.add(fault{rule: rule, path: p, says: says, hint: hint})
}

// relation reports two fields that contradict. The rule belongs to field; the place is
// that of the first of the fields that the user wrote.
func (c checker) relation(rule, field string, others []string, says, hint string) {
	p, _ := parsePath(field)
	f := fault{rule: rule, path: p, says: says, hint: hint}
	for _, o := range append([]string{field}, others...) {
		if q, _ := parsePath(o); c.at(q) != nil {
			f.pos = &c.at(q).pos
			break
		}
	}
	c.rep.add(f)
}

func num(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%g", x), ".0") }

// reach warns of numbers that routers refuse or lower.
func (c checker) reach() {
	for _, b := range c.f.OutOfReach() {
		hint := ""
		if b.Refused() {
			hint = "narwhal serve refuses it"
		}
		c.fault("number-reach", b.Path, b.String(), hint)
	}
}

func (c checker) controller() {
	k := c.f.Controller
	if t := k.Thresholds; t.Shrink >= t.Expand {
		c.relation("thresholds-order", "controller.thresholds.shrink", []string{"controller.thresholds.expand"},
			fmt.Sprintf("shrink %s is not below expand %s", num(t.Shrink), num(t.Expand)), "")
	}
	r := k.Reactive
	if c.f.Profiles.MaxDecodeFitMAPE > r.MovementMargin {
		c.relation("margin-covers-fit", "profiles.max_decode_fit_mape", []string{"controller.reactive.movement_margin"},
			fmt.Sprintf("max_decode_fit_mape %s is above controller.reactive.movement_margin %s", num(c.f.Profiles.MaxDecodeFitMAPE), num(r.MovementMargin)), "")
	}
	if r.EvidenceSpanS > r.EvidenceMaxSpanS {
		c.relation("evidence-spans", "controller.reactive.evidence_span_s", []string{"controller.reactive.evidence_max_span_s"},
			fmt.Sprintf("evidence_span_s %s s is above evidence_max_span_s %s s", num(r.EvidenceSpanS), num(r.EvidenceMaxSpanS)), "")
	}
	if r.EvidenceMaxSpanS > r.WindowS {
		c.relation("evidence-spans", "controller.reactive.evidence_max_span_s", []string{"controller.reactive.window_s"},
			fmt.Sprintf("evidence_max_span_s %s s is above window_s %s s", num(r.EvidenceMaxSpanS), num(r.WindowS)), "")
	}
	if r.DecodeCorrectionMax < r.DecodeCorrectionMin {
		c.relation("correction-order", "controller.reactive.decode_correction_max", []string{"controller.reactive.decode_correction_min"},
			fmt.Sprintf("decode_correction_max %s is below decode_correction_min %s", num(r.DecodeCorrectionMax), num(r.DecodeCorrectionMin)), "")
	}
}

func (c checker) serving() {
	s := c.f.Serving
	if s.PrefillTimeoutS > s.RequestTimeoutS {
		c.relation("timeouts-order", "serving.prefill_timeout_s", []string{"serving.request_timeout_s"},
			fmt.Sprintf("prefill_timeout_s %s s is above request_timeout_s %s s", num(s.PrefillTimeoutS), num(s.RequestTimeoutS)), "")
	}
	if s.GracefulTimeoutS != math.Trunc(s.GracefulTimeoutS) {
		c.fault("graceful-whole", "serving.graceful_timeout_s", fmt.Sprintf("got %s s, want whole seconds", num(s.GracefulTimeoutS)), "")
	}
	if s.QueueCapacity > 0 && s.QueueTimeoutS <= 0 {
		c.relation("queue-timeout", "serving.queue_timeout_s", []string{"serving.queue_capacity"},
			fmt.Sprintf("is 0 s although queue_capacity is %d", s.QueueCapacity), "set how long a request may wait, above 0")
	}
	if s.RetryCapS < s.RetryBaseS {
		c.relation("retry-order", "serving.retry_cap_s", []string{"serving.retry_base_s"},
			fmt.Sprintf("retry_cap_s %s s is below retry_base_s %s s", num(s.RetryCapS), num(s.RetryBaseS)), "")
	}
}

func (c checker) backend() {
	e := c.f.Engine
	b := backends[e.Backend]
	if _, ok := b.connectors[e.Connector]; !ok {
		c.fault("backend-connector", "engine.connector", fmt.Sprintf("%s is no connector of %s, want %q", e.Connector, e.Backend, b.connector), "")
	}
	if e.Dialect != b.dialect {
		c.fault("backend-dialect", "engine.dialect", fmt.Sprintf("%s is no dialect of %s, want %q", e.Dialect, e.Backend, b.dialect), "")
	}
	if e.FirstTokenTimeoutS > c.f.Serving.RequestTimeoutS {
		c.relation("timeouts-order", "engine.first_token_timeout_s", []string{"serving.request_timeout_s"},
			fmt.Sprintf("engine.first_token_timeout_s %s s is above serving.request_timeout_s %s s", num(e.FirstTokenTimeoutS), num(c.f.Serving.RequestTimeoutS)), "")
	}
	if e.EngineAPIKeyEnv != "" && !variableName.MatchString(e.EngineAPIKeyEnv) {
		// The text may be the key itself, so it is not shown.
		c.fault("key-variable", "engine.engine_api_key_env", "is not the name of an environment variable", "name the variable that holds the key, not the key")
	}
}

func (c checker) recovery() {
	r := c.f.Recovery
	if r.EngineRestartPolicy == "whole_wave" {
		c.wholeWave()
	}
	if r.LivenessEvery < 0 {
		c.fault("liveness-negative", "recovery.liveness_every", fmt.Sprintf("is %d, which makes the sweep due at every pass", r.LivenessEvery), "0 turns the sweep off")
	}
	h := r.Health
	if limit := math.Floor(h.WindowS / c.f.Controller.MonitorIntervalS); float64(h.MinSamples) > limit {
		c.relation("health-samples", "recovery.health.min_samples", []string{"recovery.health.window_s", "controller.monitor_interval_s"},
			fmt.Sprintf("min_samples %d do not fit a window of %s s at one sample each %s s; at most %s fit",
				h.MinSamples, num(h.WindowS), num(c.f.Controller.MonitorIntervalS), num(limit)), "lower recovery.health.min_samples or lengthen recovery.health.window_s")
	}
	if h.EvictWindows < h.ProbationWindows {
		c.relation("health-order", "recovery.health.evict_windows", []string{"recovery.health.probation_windows"},
			fmt.Sprintf("evict_windows %d is below probation_windows %d", h.EvictWindows, h.ProbationWindows), "")
	}
}

func (c checker) wholeWave() {
	if c.f.Recovery.LivenessEvery <= 0 {
		c.relation("whole-wave-liveness", "recovery.liveness_every", []string{"recovery.engine_restart_policy"}, "must be above 0 with engine_restart_policy whole_wave", "")
	}
	missing := []string{"the whole section"}
	if k := c.f.EngineContract; k != nil {
		missing = k.Missing(c.f.Engine.Backend)
	}
	if len(missing) > 0 {
		c.fault("whole-wave-contract", "recovery.engine_restart_policy",
			"whole_wave needs a complete engine_contract; missing: "+strings.Join(missing, ", "), "fill engine_contract, or use individual")
	}
}
