package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// engineSeries are what the dialects' engines export, of what the reference reads.
var engineSeries = []string{
	"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total",
	"vllm:prompt_tokens_by_source_total", "vllm:generation_tokens_total", "vllm:cache_config_info", "vllm:nixl_xfer_time_seconds",
	"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage", "sglang:cached_tokens_total", "sglang:prompt_tokens_total",
	"sglang:generation_tokens_total", "sglang:max_total_num_tokens", "sglang:page_size", "sglang:per_stage_req_latency_seconds", "sglang:kv_transfer_total_mb",
}

// words of the query language that expressions of this package use.
var language = strings.Fields("sum max min count rate increase histogram_quantile absent vector or unless on by without")

var (
	labelLists = regexp.MustCompile(`\b(by|without|on) \(([^)]*)\)`)
	selectors  = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	matchers   = regexp.MustCompile(`([a-zA-Z_]\w*)(?:=~|=|!=|!~)"[^"]*"`)
	ranges     = regexp.MustCompile(`\[[^]]*\]`)
	names      = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
)

// expressions lists those of rules and panels, by where they stand.
func expressions() map[string]string {
	out := map[string]string{}
	for _, a := range Alerts {
		out["alert "+a.Name] = a.Expr
	}
	for _, p := range Panels {
		for _, q := range p.Queries {
			out["panel "+p.Title+", "+q.Legend] = q.Expr
		}
	}
	return out
}

// exported are the router's series with their labels.
func exported() map[string][]string {
	out := map[string][]string{"up": {"iid", "backend"}, "ALERTS": {"alertname", "alertstate", "severity"}}
	for _, m := range router.Metrics() {
		labels := slices.Clone(m.Labels)
		if m.Type == "histogram" {
			out[m.Name+"_bucket"], out[m.Name+"_sum"], out[m.Name+"_count"] = append(labels, "le"), labels, labels
			continue
		}
		out[m.Name] = labels
	}
	for _, s := range engineSeries {
		out[s] = []string{"iid", "backend", "source"}
	}
	return out
}

// unknown says what an expression names that nobody exports.
func unknown(expr string) (out []string) {
	known := exported()
	for _, m := range selectors.FindAllStringSubmatch(expr, -1) {
		for _, l := range matchers.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(append(slices.Clone(known[m[1]]), "job", "instance"), l[1]) {
				out = append(out, "label "+l[1]+" of "+m[1])
			}
		}
	}
	var all []string
	for _, labels := range known {
		all = append(all, labels...)
	}
	for _, m := range labelLists.FindAllStringSubmatch(expr, -1) {
		for _, l := range names.FindAllString(m[2], -1) {
			if !slices.Contains(append(all, "job", "instance"), l) {
				out = append(out, "label "+l)
			}
		}
	}
	rest := labelLists.ReplaceAllString(selectors.ReplaceAllString(ranges.ReplaceAllString(expr, ""), "$1"), "$1")
	for _, n := range names.FindAllString(rest, -1) {
		if _, ok := known[n]; !ok && !slices.Contains(language, n) {
			out = append(out, "series "+n)
		}
	}
	return out
}

func TestSeriesAreExported(t *testing.T) {
	for where, expr := range expressions() {
		if bad := unknown(expr); len(bad) > 0 {
			t.Errorf("%s: nobody exports %v", where, bad)
		}
	}
}

// The check above finds what is wrong.
func TestUnknownSeries(t *testing.T) {
	for expr, want := range map[string]string{
		`rate(narwhal_gone_total[5m]) > 0`:              "series narwhal_gone_total",
		`narwhal_pool_load{rolle="x"}`:                  "label rolle of narwhal_pool_load",
		`sum by (iidd) (narwhal_pool_load)`:             "label iidd",
		`vllm:no_such_total`:                            "series vllm:no_such_total",
		`narwhal_ttft_seconds > 1`:                      "series narwhal_ttft_seconds",
		`sum without (reason) (narwhal_failed_total)`:   "",
		`narwhal_ttft_seconds_bucket{le="1", slo="2"}`:  "",
		`absent(up{job="engines"}) or vector(narwhal_)`: "series narwhal_",
	} {
		if got := strings.Join(unknown(expr), ", "); got != want {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}
