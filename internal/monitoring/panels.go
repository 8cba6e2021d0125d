package monitoring

// Panel is one picture of the dashboard.
type Panel struct {
	Title, Says string
	Kind        string // stat, timeseries, table or state-timeline
	Unit        string // of Grafana, "" = a plain number
	Queries     []Query
	// Steps colour values from each threshold on; nil = no thresholds.
	Steps  []Step
	Width  int // of 24
	Height int
	// Words replace numbers in stat panels and timelines.
	Words []Word
}

// Query is one line of a panel. Expr may hold $router, $iid, $__rate_interval and $__range.
type Query struct {
	Expr, Legend string
	// Unit overrides the panel's for this query, "" = the panel's.
	Unit string
	// Steps override the panel's.
	Steps []Step
	// Instant asks for the newest value alone.
	Instant bool
}

// Step is a colour from a value on; the first one has no value.
type Step struct {
	Colour string
	From   float64
}

// Word names a value.
type Word struct {
	Value  float64
	Text   string
	Colour string
}

const (
	stat     = "stat"
	series   = "timeseries"
	table    = "table"
	timeline = "state-timeline"

	ofRouter = `instance=~"$router"`
	rate     = `[$__rate_interval]`
	span     = `[$__range]`
)

// Thresholds of the dashboard.
var (
	within  = []Step{{"red", 0}, {"yellow", 0.90}, {"green", 0.95}}
	dropped = []Step{{"green", 0}, {"yellow", 0.01}, {"red", 0.05}}
	promise = []Step{{"green", 0}, {"yellow", 0.80}, {"red", 1}}
	cache   = []Step{{"green", 0}, {"orange", 0.80}, {"red", 0.95}}
	load    = []Step{{"green", 0}, {"red", 1}}
)

// grown is how much counters of the routers grew over the picture's range.
func grown(name string) string { return `sum(increase(` + name + `{` + ofRouter + `}` + span + `))` }

// perSecond is the rate of counters of the routers.
func perSecond(name string) string { return `sum(rate(` + name + `{` + ofRouter + `}` + rate + `))` }

// quantile reads a histogram of the routers; by are labels beside le.
func quantile(q, name, by, window string) string {
	return `histogram_quantile(` + q + `, sum by (le` + by + `) (rate(` + name + `_bucket{` + ofRouter + `}` + window + `)))`
}

// share is a percentile over the promise.
func share(name, metric string) string {
	return quantile("0.95", name, ", slo", span) + ` / on (slo) max by (slo) (narwhal_slo_seconds{metric="` + metric + `", ` + ofRouter + `})`
}

// latency shows three percentiles and the promise.
func latency(title, says, name, metric string) Panel {
	p := Panel{Title: title, Says: says, Kind: series, Unit: "s", Width: 12, Height: 8}
	for _, q := range [][2]string{{"0.5", "p50"}, {"0.95", "p95"}, {"0.99", "p99"}} {
		p.Queries = append(p.Queries, Query{Expr: quantile(q[0], name, "", rate), Legend: q[1]})
	}
	p.Queries = append(p.Queries, Query{Expr: `max(narwhal_slo_seconds{metric="` + metric + `", ` + ofRouter + `})`, Legend: "promise"})
	return p
}

var drops = `(` + grown("narwhal_refused_total") + ` + ` + grown("narwhal_rejected_total") + ` + ` + grown("narwhal_failed_total") + ` + ` + grown("narwhal_expired_total") + `)`

// Panels lists the dashboard, from the top.
var Panels = []Panel{
	{Title: "Requests", Says: "What became of the requests of this range; within SLO and dropped are shares of the offered.", Kind: stat, Width: 10, Height: 7, Queries: []Query{
		{Expr: grown("narwhal_slo_met_total") + ` / ` + grown("narwhal_offered_total"), Legend: "within SLO", Unit: "percentunit", Steps: within},
		{Expr: grown("narwhal_offered_total"), Legend: "offered"},
		{Expr: grown("narwhal_served_total"), Legend: "completed"},
		{Expr: grown("narwhal_cancelled_total"), Legend: "cancelled"},
		{Expr: drops + ` / ` + grown("narwhal_offered_total"), Legend: "dropped", Unit: "percentunit", Steps: dropped},
		{Expr: grown("narwhal_refused_total"), Legend: "refused"},
		{Expr: grown("narwhal_rejected_total"), Legend: "rejected"},
		{Expr: grown("narwhal_failed_total"), Legend: "failed"},
		{Expr: grown("narwhal_expired_total"), Legend: "expired"},
	}},
	{Title: "Latency", Says: "95th percentiles of this range, as a share of the promise and as times.", Kind: stat, Width: 8, Height: 7, Queries: []Query{
		{Expr: share("narwhal_ttft_seconds", "ttft"), Legend: "p95 TTFT of the SLO", Unit: "percentunit", Steps: promise},
		{Expr: quantile("0.95", "narwhal_ttft_seconds", "", span), Legend: "p95 TTFT", Unit: "s"},
		{Expr: share("narwhal_tpot_seconds", "tpot"), Legend: "p95 TPOT of the SLO", Unit: "percentunit", Steps: promise},
		{Expr: quantile("0.95", "narwhal_tpot_seconds", "", span), Legend: "p95 TPOT", Unit: "s"},
	}},
	{Title: "Router", Says: "Admission of each router; a standby that waits is not ready.", Kind: stat, Width: 6, Height: 7,
		Words: []Word{{1, "Ready", "green"}, {0, "Not ready", "orange"}, {-1, "Offline", "red"}}, Queries: []Query{
			{Expr: `narwhal_router_ready{` + ofRouter + `} or (up{job="narwhal-router", ` + ofRouter + `} - 1) < 0`, Legend: "{{instance}}", Instant: true},
			{Expr: `count(ALERTS{alertname=~"Narwhal.*", alertstate="firing"}) or vector(0)`, Legend: "firing alerts", Unit: "none", Steps: []Step{{"green", 0}, {"red", 1}}, Instant: true},
		}},
	{Title: "Engines", Says: "Each engine now: what it is, what it does, how full it is.", Kind: table, Width: 24, Height: 9, Queries: []Query{
		{Expr: `max by (iid, backend) (up{job="engines", iid=~"$iid"})`, Legend: "up", Instant: true},
		{Expr: `max by (iid, role) (narwhal_instance_role{` + ofRouter + `, iid=~"$iid"} == 1)`, Legend: "role", Instant: true},
		{Expr: `max by (iid, state) (narwhal_engine_lifecycle_state{` + ofRouter + `, iid=~"$iid"} == 1)`, Legend: "state", Instant: true},
		{Expr: `sum by (iid) (narwhal_resident_requests{` + ofRouter + `, iid=~"$iid"})`, Legend: "resident", Instant: true},
		{Expr: `sum by (iid) (vllm:num_requests_running{iid=~"$iid"}) or sum by (iid) (sglang:num_running_reqs{iid=~"$iid"})`, Legend: "running", Instant: true},
		{Expr: `max by (iid) (vllm:kv_cache_usage_perc{iid=~"$iid"}) or max by (iid) (sglang:token_usage{iid=~"$iid"})`, Legend: "KV", Unit: "percentunit", Steps: cache, Instant: true},
		{Expr: `sum by (iid) (rate(vllm:prefix_cache_hits_total{iid=~"$iid"}` + rate + `)) / sum by (iid) (rate(vllm:prefix_cache_queries_total{iid=~"$iid"}` + rate + `)) or sum by (iid) (rate(sglang:cached_tokens_total{iid=~"$iid"}` + rate + `)) / sum by (iid) (rate(sglang:prompt_tokens_total{iid=~"$iid"}` + rate + `))`, Legend: "prefix hits", Unit: "percentunit", Instant: true},
		{Expr: `sum by (iid) (rate(vllm:generation_tokens_total{iid=~"$iid"}` + rate + `)) or sum by (iid) (rate(sglang:generation_tokens_total{iid=~"$iid"}` + rate + `))`, Legend: "tokens/s", Instant: true},
	}},
	{Title: "Engine role history", Says: "Which role each engine had.", Kind: timeline, Width: 12, Height: 8, Words: []Word{{1, "prefill", "blue"}, {2, "decode", "purple"}, {3, "both", "green"}}, Queries: []Query{
		{Expr: `sum by (iid) (max by (iid, role) (narwhal_instance_role{` + ofRouter + `, iid=~"$iid", role="prefill"}) or 2 * max by (iid, role) (narwhal_instance_role{` + ofRouter + `, iid=~"$iid", role="decode"}))`, Legend: "{{iid}}"},
	}},
	{Title: "Fleet events", Says: "One row an alert, while it is pending or fires.", Kind: timeline, Width: 12, Height: 8, Words: []Word{{1, "pending", "orange"}, {2, "firing", "red"}}, Queries: []Query{
		{Expr: `max by (alertname) (ALERTS{alertname=~"Narwhal.*", alertstate="pending"}) unless on (alertname) ALERTS{alertname=~"Narwhal.*", alertstate="firing"} or 2 * max by (alertname) (ALERTS{alertname=~"Narwhal.*", alertstate="firing"})`, Legend: "{{alertname}}"},
	}},
	{Title: "Pool assignments", Says: "Engines of each role, and ejected ones.", Kind: series, Width: 12, Height: 8, Queries: []Query{
		{Expr: `max by (role) (narwhal_pool_instances{` + ofRouter + `})`, Legend: "{{role}}"},
		{Expr: `max(narwhal_ejected_instances{` + ofRouter + `})`, Legend: "ejected"},
	}},
	{Title: "Request outcomes", Says: "Ends a second, by what became of the request.", Kind: series, Unit: "reqps", Width: 12, Height: 8, Queries: []Query{
		{Expr: perSecond("narwhal_served_total"), Legend: "completed"},
		{Expr: perSecond("narwhal_slo_met_total"), Legend: "within SLO"},
		{Expr: perSecond("narwhal_cancelled_total"), Legend: "cancelled"},
		{Expr: perSecond("narwhal_refused_total"), Legend: "refused"},
		{Expr: perSecond("narwhal_rejected_total"), Legend: "rejected"},
		{Expr: perSecond("narwhal_failed_total"), Legend: "failed"},
		{Expr: perSecond("narwhal_expired_total"), Legend: "expired"},
		{Expr: perSecond("narwhal_invalid_requests_total"), Legend: "invalid"},
	}},
	latency("Time to first token", "Arrival to the end of the prefill.", "narwhal_ttft_seconds", "ttft"),
	latency("Time per output token", "Seconds a token behind the first.", "narwhal_tpot_seconds", "tpot"),
	{Title: "Token throughput", Says: "Tokens a second that engines prefill and generate.", Kind: series, Width: 12, Height: 8, Queries: []Query{
		{Expr: `sum(rate(vllm:prompt_tokens_by_source_total{iid=~"$iid", source="local_compute"}` + rate + `)) or sum(rate(sglang:prompt_tokens_total{iid=~"$iid"}` + rate + `))`, Legend: "prefill"},
		{Expr: perSecond("narwhal_decode_tokens_observed_total"), Legend: "decode"},
	}},
	{Title: "Pool pressure", Says: "Load of each role; 1 is the promise.", Kind: series, Width: 12, Height: 8, Steps: load, Queries: []Query{
		{Expr: `max by (role) (narwhal_pool_load{` + ofRouter + `})`, Legend: "{{role}}"},
	}},
	{Title: "Admission in-flight", Says: "Seats taken and requests held, with their limits.", Kind: series, Width: 8, Height: 8, Queries: []Query{
		{Expr: `sum(narwhal_admission_inflight{` + ofRouter + `})`, Legend: "seats taken"},
		{Expr: `max(narwhal_admission_inflight_limit{` + ofRouter + `})`, Legend: "seats"},
		{Expr: `sum(narwhal_http_retained{` + ofRouter + `})`, Legend: "in the router"},
		{Expr: `max(narwhal_http_retained_limit{` + ofRouter + `})`, Legend: "most in the router"},
	}},
	{Title: "Queue depth", Says: "Requests that wait, for a seat or for an engine.", Kind: series, Width: 8, Height: 8, Queries: []Query{
		{Expr: `sum(narwhal_queued{` + ofRouter + `})`, Legend: "for a seat"},
		{Expr: `max(narwhal_queue_capacity{` + ofRouter + `})`, Legend: "places"},
		{Expr: `sum(narwhal_waiting_prefill{` + ofRouter + `})`, Legend: "for prefill"},
		{Expr: `sum(narwhal_waiting_decode{` + ofRouter + `})`, Legend: "for decode"},
	}},
	{Title: "Request waiting time", Says: "95th percentiles of each stage's wait and of the time that a seat is held.", Kind: series, Unit: "s", Width: 8, Height: 8, Queries: []Query{
		{Expr: quantile("0.95", "narwhal_queue_wait_seconds", ", stage", rate), Legend: "{{stage}}"},
		{Expr: quantile("0.95", "narwhal_seat_seconds", "", rate), Legend: "seat held"},
	}},
	{Title: "Retries and early exits", Says: "Further attempts, refused ones and late successes, a second.", Kind: series, Unit: "reqps", Width: 8, Height: 8, Queries: []Query{
		{Expr: perSecond("narwhal_retry_attempts_total"), Legend: "retries"},
		{Expr: perSecond("narwhal_retry_denied_total"), Legend: "denied"},
		{Expr: perSecond("narwhal_served_after_retry_total"), Legend: "completed by a retry"},
		{Expr: perSecond("narwhal_unserved_total"), Legend: "without a candidate"},
	}},
	{Title: "Retry credits", Says: "Retries that may be sent now, and what was spent a second.", Kind: series, Width: 8, Height: 8, Queries: []Query{
		{Expr: `min(narwhal_retry_credits{` + ofRouter + `})`, Legend: "credits"},
		{Expr: perSecond("narwhal_retry_credits_spent_total"), Legend: "spent a second"},
	}},
	{Title: "Router event loop", Says: "Processors in use, and how long a runnable goroutine waits for one.", Kind: series, Width: 8, Height: 8, Queries: []Query{
		{Expr: `sum by (instance) (rate(narwhal_event_loop_busy_seconds_total{` + ofRouter + `}` + rate + `)) / on (instance) max by (instance) (narwhal_router_processors{` + ofRouter + `})`, Legend: "busy {{instance}}", Unit: "percentunit"},
		{Expr: `max by (instance) (narwhal_event_loop_lag_seconds{` + ofRouter + `})`, Legend: "lag {{instance}}", Unit: "s"},
	}},
	{Title: "Journal", Says: "Lines written and lost a second, and lines that wait for the disk.", Kind: series, Width: 12, Height: 8, Queries: []Query{
		{Expr: perSecond("narwhal_router_journal_rows_written_total"), Legend: "written a second"},
		{Expr: perSecond("narwhal_router_journal_rows_dropped_total"), Legend: "lost a second"},
		{Expr: `sum(narwhal_router_journal_queue_rows{` + ofRouter + `})`, Legend: "waiting"},
	}},
	{Title: "Engines against their profiles", Says: "What the work takes over what the profile says; 1 is as measured.", Kind: series, Width: 12, Height: 8, Queries: []Query{
		{Expr: `max by (iid, phase) (narwhal_router_engine_correction{` + ofRouter + `, iid=~"$iid"})`, Legend: "{{iid}} {{phase}}"},
	}},
}
