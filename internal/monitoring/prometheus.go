package monitoring

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// head begins every file of YAML.
const head = "# Written by narwhal: a change here is lost when the files are written again.\n"

// quoted writes a string that YAML and JSON read alike.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("marshal text: %v", err)) // a string always marshals
	}
	return string(b)
}

// seconds is a duration as Prometheus writes it.
func seconds(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// prometheusConfig scrapes the routers by name, and the engines that a router lists.
func prometheusConfig(s Site) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%sglobal:\n  scrape_interval: %s\n  scrape_timeout: %s\n  evaluation_interval: %s\n", head, seconds(s.Scrape), seconds(s.Scrape), seconds(s.Evaluation))
	fmt.Fprintf(&b, "rule_files:\n  - %s\n", quoted(RulesFile))
	fmt.Fprintf(&b, "scrape_configs:\n  - job_name: %s\n    file_sd_configs:\n      - files: [%s]\n        refresh_interval: %s\n", quoted(RouterJob), quoted(RoutersFile), seconds(s.Discovery))
	fmt.Fprintf(&b, "  - job_name: %s\n    http_sd_configs:\n", quoted(EnginesJob))
	for _, r := range s.Routers {
		fmt.Fprintf(&b, "      - url: %s\n        refresh_interval: %s\n", quoted(strings.TrimRight(r, "/")+"/narwhal/targets"), seconds(s.Discovery))
	}
	return []byte(b.String())
}

// routerTargets are the routers as file discovery reads them.
func routerTargets(s Site) ([]byte, error) {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var list []group
	for _, r := range s.Routers {
		u, err := routerURL(r)
		if err != nil {
			return nil, err
		}
		at, err := Authority(r)
		if err != nil {
			return nil, err
		}
		list = append(list, group{[]string{at}, map[string]string{"__scheme__": u.Scheme, "__metrics_path__": strings.TrimRight(u.Path, "/") + "/metrics"}})
	}
	b, err := json.MarshalIndent(list, "", "  ")
	return append(b, '\n'), err
}

// rulesConfig writes the alerts.
func rulesConfig() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%sgroups:\n  - name: %s\n    rules:\n", head, Group)
	for _, a := range Alerts {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n        for: %s\n        labels:\n          severity: %s\n        annotations:\n          summary: %s\n          next_step: %s\n",
			a.Name, quoted(a.Expr), seconds(a.For), a.Severity, quoted(a.Summary), quoted(a.Next))
	}
	return []byte(b.String())
}
