package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/docgen"
	"github.com/narwhal-fleet/narwhal/internal/monitoring"
)

// forHowLong is a time as Prometheus writes it.
func forHowLong(d time.Duration) string {
	if d == 0 {
		return "at once"
	}
	return strings.TrimSuffix(d.String(), "m0s") + map[bool]string{true: "m"}[d%time.Minute == 0]
}

// monitoringPage comes from the tables of alerts and panels.
func monitoringPage() docgen.Page {
	files := docgen.Section{Title: "Files", Head: []string{"File", "What"}, Rows: [][]string{
		{code(monitoring.PrometheusFile), fmt.Sprintf("Job %s by file discovery, job %s by HTTP discovery from %s of the router; scrape every %s, evaluation every %s", code(monitoring.RouterJob), code(monitoring.EnginesJob), code("/narwhal/targets"), monitoring.DefaultScrape, monitoring.DefaultEvaluation)},
		{code(monitoring.RulesFile), "The alerts below, in the group " + code(monitoring.Group)},
		{code(monitoring.RoutersFile), "The router, and its standby where one runs"},
		{code(monitoring.DashboardFile), fmt.Sprintf("The dashboard *%s*, uid %s", monitoring.DashboardTitle, code(monitoring.DashboardUID))},
		{code(monitoring.SourceFile), "Provisions Prometheus as a data source of Grafana"},
		{code(monitoring.ProviderFile), "Provisions the dashboard"},
	}, After: "`narwhal monitoring write -o DIR` writes them anywhere. Where the fleet file has a `deploy.monitoring`, [gate G](gates/G.md) writes them\non that host and looks at what Prometheus sees. Retention, Alertmanager and who is told belong to the site; so do sensors of GPUs. No file\nholds a secret. The user of Prometheus must be able to read the folder: where the host's root is closed to it, name another with\n`deploy.monitoring.dir`.\n\n```text\nprometheus --config.file=DIR/current/prometheus.yml --storage.tsdb.path=/var/lib/prometheus/narwhal\n```\n\n`current` is the link that gate G switches; what `narwhal monitoring write` makes has none. Grafana reads its part with\n`GF_PATHS_PROVISIONING=DIR/current/grafana/provisioning`."}
	alerts := docgen.Section{Title: "Alerts", Head: []string{"Alert", "Expression", "For", "Severity", "What to do"}, After: "Alerts with a star are not in the reference. Each has the annotations `summary` and `next_step`."}
	for _, x := range monitoring.Alerts {
		name := code(x.Name)
		if x.Ours {
			name += " *"
		}
		alerts.Rows = append(alerts.Rows, []string{name, code(x.Expr), forHowLong(x.For), x.Severity, x.Next})
	}
	panels := docgen.Section{Title: "Dashboard", Before: "Variables: the data source, the router (all of them unless chosen) and the engine.", Head: []string{"Panel", "Shows", "Lines"}}
	for _, p := range monitoring.Panels {
		var lines []string
		for _, q := range p.Queries {
			lines = append(lines, strings.NewReplacer("{{", "", "}}", "").Replace(q.Legend))
		}
		panels.Rows = append(panels.Rows, []string{p.Title, p.Says, strings.Join(lines, ", ")})
	}
	return docgen.Sections("monitoring.md", "Monitoring", "What the site's Prometheus and Grafana need to watch a fleet: rules and dashboard are in the binary, and name only series that the\n[router](metrics.md) or an engine exports.", files, alerts, panels)
}
