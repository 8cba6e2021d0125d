package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/internal/monitoring"
)

var prometheusListens = regexp.MustCompile(`msg="Listening on" address=(127\.0\.0\.1:\d+)`)

// prometheus is a real one that the test started.
type prometheus struct {
	t  *testing.T
	at string
}

// needPrometheus skips where it is not installed, unless it must be there.
func needPrometheus(t *testing.T) (path string) {
	t.Helper()
	for _, name := range []string{"promtool", "prometheus"} {
		var err error
		if path, err = exec.LookPath(name); err != nil {
			if os.Getenv("NARWHAL_REQUIRE_PROMETHEUS") == "1" {
				t.Fatal(name + " is required and not installed")
			}
			t.Skip(name + " is not installed")
		}
	}
	return path
}

// startPrometheus runs one on a free port, with a configuration.
func startPrometheus(t *testing.T, config string) *prometheus {
	t.Helper()
	c := exec.Command(needPrometheus(t), "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address=127.0.0.1:0", "--web.enable-lifecycle")
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	t.Cleanup(func() { _ = c.Process.Kill(); <-read; _ = c.Wait() })
	lines, said := bufio.NewScanner(out), ""
	for lines.Scan() {
		said += lines.Text() + "\n"
		if m := prometheusListens.FindStringSubmatch(lines.Text()); m != nil {
			go func() { defer close(read); _, _ = io.Copy(io.Discard, out) }()
			return &prometheus{t, m[1]}
		}
	}
	close(read)
	t.Fatalf("prometheus ended at its start:\n%s", said)
	return nil
}

// get reads the data of an answer; false when there is none.
func (p *prometheus) get(path string, to any) bool {
	p.t.Helper()
	resp, err := http.Get("http://" + p.at + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var doc struct {
		Status string
		Error  string
		Data   json.RawMessage
	}
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&doc) != nil || doc.Status != "success" {
		p.t.Logf("%s: %s", path, doc.Error)
		return false
	}
	return json.Unmarshal(doc.Data, to) == nil
}

type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (p *prometheus) query(expr string) (out []sample, ok bool) {
	p.t.Helper()
	var data struct{ Result []sample }
	ok = p.get("/api/v1/query?"+url.Values{"query": {expr}}.Encode(), &data)
	return data.Result, ok
}

// health counts targets of a job by their health.
func (p *prometheus) health(job string) map[string]int {
	p.t.Helper()
	var data struct {
		ActiveTargets []struct {
			Labels map[string]string
			Health string
		}
	}
	out := map[string]int{}
	if p.get("/api/v1/targets?state=active", &data) {
		for _, t := range data.ActiveTargets {
			if t.Labels["job"] == job {
				out[t.Health]++
			}
		}
	}
	return out
}

// alert is the state of an alert for a label's value, "" while it is inactive.
func (p *prometheus) alert(name, label, value string) string {
	p.t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	p.get("/api/v1/alerts", &data)
	for _, a := range data.Alerts {
		if a.Labels["alertname"] == name && a.Labels[label] == value {
			return a.State
		}
	}
	return ""
}

// hurried shortens the times of written files, so that a test need not wait for them.
func hurried(t *testing.T, dir string) (config string) {
	t.Helper()
	for name, times := range map[string][]string{
		monitoring.PrometheusFile: {"scrape_interval: 5s", "scrape_interval: 400ms", "scrape_timeout: 5s", "scrape_timeout: 400ms", "evaluation_interval: 15s", "evaluation_interval: 400ms", "refresh_interval: 15s", "refresh_interval: 1s"},
		monitoring.RulesFile:      {"for: 30s", "for: 1s"},
	} {
		at := filepath.Join(dir, name)
		b, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(times...).Replace(string(b))
		if text == string(b) {
			t.Fatalf("%s holds no time to shorten", name)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, monitoring.PrometheusFile)
}

// A real Prometheus watches a router with its standby and two engines by the written files, and
// tells of an engine that is killed.
func TestPrometheusWatches(t *testing.T) {
	needPrometheus(t)
	p := newPlainFleet(t)
	lease := []string{"--lease-path", filepath.Join(p.dir, "lease.json"), "--lease-ttl", "3"}
	_, addr := p.serve(append(lease, "--router-id", "a")...)
	_, second := p.standby("b", addr, lease...)
	p.ask(addr)
	dir := filepath.Join(p.dir, "watch")
	if r := finish(t, execCommand(p.bin, p.dir, p.dir, "monitoring", "write", "-o", dir, "--router", "http://"+addr, "--router", "http://"+second)); r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	prom := startPrometheus(t, hurried(t, dir))
	await(t, "router, standby and both engines up", func() bool {
		return prom.health(monitoring.RouterJob)["up"] == 2 && prom.health(monitoring.EnginesJob)["up"] == 2
	})
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Health, LastError string }
		}
	}
	await(t, "every rule to be evaluated", func() bool {
		if !prom.get("/api/v1/rules?type=alert", &rules) || len(rules.Groups) != 1 || len(rules.Groups[0].Rules) != len(monitoring.Alerts) {
			return false
		}
		for _, r := range rules.Groups[0].Rules {
			if r.Health == "err" {
				t.Fatalf("%s: %s", r.Name, r.LastError)
			}
			if r.Health != "ok" {
				return false
			}
		}
		return true
	})
	for _, q := range []struct {
		expr string
		want string
	}{{`narwhal_router_ready{instance="` + addr + `"}`, "1"}, {`narwhal_router_ready{instance="` + second + `"}`, "0"}, {`sum(narwhal_served_total)`, "1"}} {
		if got, ok := prom.query(q.expr); !ok || len(got) != 1 || got[0].Value[1] != q.want {
			t.Errorf("%s: %v, want %s", q.expr, got, q.want)
		}
	}
	panelsParse(t, prom)
	for _, name := range []string{"NarwhalTwoAdmit", "NarwhalNobodyAdmits", "NarwhalPoolStarved", "NarwhalPrefillBelowFloor", "NarwhalDecodeBelowFloor"} {
		for _, at := range []string{addr, second, ""} {
			// The first evaluation may have seen one router and not yet the other.
			await(t, name+" of "+at+" to be silent in a fleet that is well", func() bool { return prom.alert(name, "instance", at) == "" })
		}
	}
	p.engines[1].Kill()
	await(t, "the alert of the killed engine", func() bool { return prom.alert("NarwhalEngineDown", "iid", "d0") == "firing" })
	if got := prom.alert("NarwhalEngineDown", "iid", "p0"); got != "" {
		t.Errorf("the alert of the other engine is %s", got)
	}
}

// panelsParse asks every query of the dashboard; those of the router answer.
func panelsParse(t *testing.T, prom *prometheus) {
	t.Helper()
	chosen := strings.NewReplacer("$router", ".*", "$iid", ".*", "$__rate_interval", "1m", "$__range", "5m")
	for _, panel := range monitoring.Panels {
		for _, q := range panel.Queries {
			quiet := panel.Title == "Fleet events" // nothing happened
			await(t, panel.Title+" to show "+q.Legend+", "+q.Expr, func() bool {
				got, ok := prom.query(chosen.Replace(q.Expr))
				if !ok {
					t.Fatalf("%s, %s: cannot be asked: %s", panel.Title, q.Legend, q.Expr)
				}
				return quiet || len(got) > 0
			})
		}
	}
}
