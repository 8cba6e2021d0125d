package monitoring

import "time"

// Group holds the alerts.
const Group = "narwhal"

// Severities: somebody has to look now, or within the day.
const (
	Page = "page"
	Warn = "warn"
)

// Alert is one rule.
type Alert struct {
	Name, Expr string
	For        time.Duration
	Severity   string
	// Summary may hold Prometheus's templates; Next is what to do first.
	Summary, Next string
	// Ours is false for the alerts that the reference has, by name and expression.
	Ours bool
}

const minute = time.Minute

// Alerts lists every rule, the reference's first.
var Alerts = []Alert{
	{Name: "NarwhalEngineDown", Expr: `up{job="engines"} == 0`, For: 30 * time.Second, Severity: Page,
		Summary: "engine {{ $labels.iid }} at {{ $labels.instance }} does not answer Prometheus", Next: "narwhal engines list says what the router knows of it; its log is in its host's run folder; narwhal engines restart IID starts it anew"},
	{Name: "NarwhalEngineEjected", Expr: `narwhal_ejected_instances > 0`, For: minute, Severity: Page,
		Summary: "{{ $value }} engines are ejected by the router at {{ $labels.instance }}", Next: "narwhal engines list names them with the cause; narwhal engines readmit IID once the cause is gone"},
	{Name: "NarwhalRouterDown", Expr: `up{job="narwhal-router"} == 0`, For: 2 * minute, Severity: Page,
		Summary: "the router or standby at {{ $labels.instance }} does not answer Prometheus", Next: "see router.log or standby.log in its host's run folder; narwhal gate run starts what is gone"},
	{Name: "NarwhalErrorBurst", Expr: `sum without (reason) (rate(narwhal_failed_total[5m])) > 0.5`, For: 5 * minute, Severity: Warn,
		Summary: "{{ $value }} requests a second fail at {{ $labels.instance }}", Next: "narwhal_failed_total by reason and narwhal_attempt_failures_total by phase say why; the journal's rows name the engine"},
	{Name: "NarwhalRejectedRising", Expr: `sum without (reason) (rate(narwhal_rejected_total[5m])) / rate(narwhal_offered_total[5m]) > 0.01`, For: 5 * minute, Severity: Warn,
		Summary: "more than 1 % of the requests at {{ $labels.instance }} are turned away", Next: "narwhal_rejected_total by reason says why: see serving.max_connections and serving.queue_capacity in the fleet file, or add engines"},
	{Name: "NarwhalExpiredRising", Expr: `sum without (reason) (rate(narwhal_expired_total[5m])) / rate(narwhal_offered_total[5m]) > 0.01`, For: 5 * minute, Severity: Warn,
		Summary: "more than 1 % of the requests at {{ $labels.instance }} run out of time", Next: "narwhal_expired_total by reason says where they waited; compare narwhal_pool_load of both roles"},
	{Name: "NarwhalRetryDeniedRising", Expr: `rate(narwhal_retry_denied_total[5m]) / rate(narwhal_offered_total[5m]) > 0.01`, For: 5 * minute, Severity: Warn,
		Summary: "the retry budget at {{ $labels.instance }} refuses retries of more than 1 % of the requests", Next: "narwhal_router_retry_denials_total by cause says which budget; look for the engine behind narwhal_attempt_failures_total first"},
	{Name: "NarwhalUnservedRising", Expr: `rate(narwhal_unserved_total[10m]) > 0.2`, For: 10 * minute, Severity: Warn,
		Summary: "{{ $value }} placements a second at {{ $labels.instance }} find no engine within the promise", Next: "the fleet is too small for its load or its promise: compare narwhal_pool_load, add engines or relax slo"},
	{Name: "NarwhalPoolStarved", Expr: `narwhal_pool_instances < 1`, For: 2 * minute, Severity: Warn,
		Summary: "no engine has the role {{ $labels.role }} at {{ $labels.instance }}", Next: "narwhal engines list shows roles, ejections and holds; see controller.min_prefill and controller.min_decode"},
	{Name: "NarwhalPrefillBelowFloor", Expr: `narwhal_prefill_below_floor > 0`, For: minute, Severity: Warn,
		Summary: "fewer prefill engines are live at {{ $labels.instance }} than controller.min_prefill", Next: "narwhal engines list shows which are ejected or held"},
	{Name: "NarwhalDecodeBelowFloor", Expr: `narwhal_decode_below_floor > 0`, For: minute, Severity: Warn,
		Summary: "fewer decode engines are live at {{ $labels.instance }} than their floor", Next: "narwhal engines list shows which are ejected or held"},

	{Ours: true, Name: "NarwhalNobodyAdmits", Expr: `sum(narwhal_router_ready{job="narwhal-router"}) < 1`, For: minute, Severity: Page,
		Summary: "no router of the fleet admits requests", Next: "GET /ready of the router says why; with a standby, see the lease's store"},
	{Ours: true, Name: "NarwhalTwoAdmit", Expr: `sum(narwhal_router_ready{job="narwhal-router"}) > 1`, For: 30 * time.Second, Severity: Page,
		Summary: "{{ $value }} routers of the fleet admit requests at once", Next: "both hold a lease: look whether they name the same store, and end the one with the lower narwhal_router_lease_epoch"},
	{Ours: true, Name: "NarwhalNoEngineTargets", Expr: `absent(up{job="engines"})`, For: 2 * minute, Severity: Page,
		Summary: "Prometheus knows no engine of the fleet", Next: "GET /narwhal/targets of the router lists them; Prometheus shows under its service discovery why it does not read that list"},
	{Ours: true, Name: "NarwhalMonitoringDegraded", Expr: `narwhal_monitoring_degraded > 0`, For: 30 * time.Second, Severity: Page,
		Summary: "the monitoring passes of the router at {{ $labels.instance }} fail, and it admits nothing", Next: "narwhal_monitoring_stage_consecutive_failures names the stage; see router.log in its host's run folder"},
	{Ours: true, Name: "NarwhalAttainmentLow", Expr: `rate(narwhal_slo_met_total[10m]) / rate(narwhal_offered_total[10m]) < 0.9`, For: 10 * minute, Severity: Warn,
		Summary: "fewer than 90 % of the requests offered at {{ $labels.instance }} are within the promise", Next: "the dashboard's outcomes and latencies say which limit is missed; narwhal bench report scores the journal"},
	{Ours: true, Name: "NarwhalJournalFailing", Expr: `narwhal_router_journal_failing > 0`, For: minute, Severity: Page,
		Summary: "the router at {{ $labels.instance }} cannot write its journal", Next: "see the disk of its host and router.log in its run folder"},
	{Ours: true, Name: "NarwhalJournalRowsDropped", Expr: `increase(narwhal_router_journal_rows_dropped_total[10m]) > 0`, Severity: Warn,
		Summary: "the journal of the router at {{ $labels.instance }} lost lines", Next: "its disk is too slow: give it a faster one, or set deploy.router.journal.lossless"},
	{Ours: true, Name: "NarwhalEngineAlarm", Expr: `sum by (iid, alarm) (increase(narwhal_router_engine_alarms_total[10m])) > 0`, Severity: Warn,
		Summary: "engine {{ $labels.iid }} counts {{ $labels.alarm }} although its answers are good", Next: "see the engine's log; narwhal gate run --again F measures its pairs again"},
	{Ours: true, Name: "NarwhalConnectionsNearLimit", Expr: `narwhal_router_client_connections / (narwhal_router_client_connections_limit > 0) > 0.9`, For: 5 * minute, Severity: Warn,
		Summary: "clients keep more than 90 % of the connections that the router at {{ $labels.instance }} may have", Next: "raise the limit of open files of its process, or let clients share connections"},
	{Ours: true, Name: "NarwhalLeaseGuardEnds", Expr: `increase(narwhal_router_lease_guard_ends_total[10m]) > 0`, Severity: Warn,
		Summary: "the process that frees the lease of the router at {{ $labels.instance }} ended", Next: "it was started anew; see router.log in its host's run folder and who ends processes there"},
}
