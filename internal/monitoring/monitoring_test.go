package monitoring

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func site() Site {
	return Site{Routers: []string{"http://192.0.2.1:8000", "http://192.0.2.2"}, Prometheus: "127.0.0.1:9090", Dir: "/opt/narwhal/monitoring/current"}
}

func written(t *testing.T, s Site) map[string]string {
	t.Helper()
	files, err := Files(s)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		out[f.Name] = string(f.Content)
	}
	if len(out) != 6 {
		t.Errorf("%d files", len(out))
	}
	return out
}

// The alerts of the reference keep their names, times and severities.
func TestReferenceAlerts(t *testing.T) {
	want := map[string]string{
		"NarwhalEngineDown": "30s page", "NarwhalEngineEjected": "60s page", "NarwhalRouterDown": "120s page", "NarwhalErrorBurst": "300s warn",
		"NarwhalRejectedRising": "300s warn", "NarwhalExpiredRising": "300s warn", "NarwhalRetryDeniedRising": "300s warn", "NarwhalUnservedRising": "600s warn",
		"NarwhalPoolStarved": "120s warn", "NarwhalPrefillBelowFloor": "60s warn", "NarwhalDecodeBelowFloor": "60s warn",
	}
	seen := map[string]bool{}
	for _, a := range Alerts {
		if seen[a.Name] || a.Summary == "" || a.Next == "" || strings.HasSuffix(a.Summary, ".") || !strings.HasPrefix(a.Name, "Narwhal") {
			t.Errorf("%+v", a)
		}
		seen[a.Name] = true
		if got := seconds(a.For) + " " + a.Severity; !a.Ours && want[a.Name] != got {
			t.Errorf("%s has %s, want %s", a.Name, got, want[a.Name])
		}
		if _, of := want[a.Name]; of == a.Ours {
			t.Errorf("%s is ours: %v", a.Name, a.Ours)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("no alert %s", name)
		}
	}
}

func TestTargets(t *testing.T) {
	files := written(t, site())
	var groups []struct {
		Targets []string
		Labels  map[string]string
	}
	if err := json.Unmarshal([]byte(files[RoutersFile]), &groups); err != nil {
		t.Fatal(err)
	}
	if len(groups) != 2 || !slices.Equal(groups[0].Targets, []string{"192.0.2.1:8000"}) || !slices.Equal(groups[1].Targets, []string{"192.0.2.2:80"}) || groups[0].Labels["__metrics_path__"] != "/metrics" {
		t.Errorf("%+v", groups)
	}
	for _, part := range []string{`scrape_interval: 5s`, `evaluation_interval: 15s`, `url: "http://192.0.2.1:8000/narwhal/targets"`, `url: "http://192.0.2.2/narwhal/targets"`, `files: ["targets/narwhal-router.json"]`} {
		if !strings.Contains(files[PrometheusFile], part) {
			t.Errorf("prometheus.yml lacks %s", part)
		}
	}
	again, err := Files(site())
	if err != nil || Digest(again) != Digest(must(Files(site()))) {
		t.Error("the same site gives other bytes")
	}
	other := site()
	other.Scrape = time.Second
	if Digest(again) == Digest(must(Files(other))) {
		t.Error("another site gives the same digest")
	}
}

func must(f []File, _ error) []File { return f }

// The dashboard has the panels, variables and thresholds that people of the reference know.
func TestDashboard(t *testing.T) {
	var d struct {
		UID, Title, Refresh string
		Time                map[string]string
		Templating          struct {
			List []struct{ Name, AllValue string }
		}
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal([]byte(written(t, site())[DashboardFile]), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID != "narwhal-router" || d.Refresh != "5s" || d.Time["from"] != "now-15m" || len(d.Templating.List) != 3 || d.Templating.List[1].Name != "router" || d.Templating.List[1].AllValue != ".*" {
		t.Errorf("%+v", d)
	}
	var titles []string
	for i, p := range d.Panels {
		titles = append(titles, p.Title)
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies over %s", p.Title, q.Title)
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 || len(p.Targets) == 0 {
			t.Errorf("%+v", p)
		}
	}
	for _, want := range []string{"Requests", "Latency", "Router", "Engines", "Engine role history", "Fleet events", "Pool assignments", "Request outcomes", "Time to first token", "Time per output token",
		"Token throughput", "Pool pressure", "Admission in-flight", "Queue depth", "Request waiting time", "Retries and early exits", "Retry credits", "Router event loop"} {
		if !slices.Contains(titles, want) {
			t.Errorf("no panel %s", want)
		}
	}
}

// Every query about the router asks the chosen ones alone.
func TestPanelsAskTheChosenRouter(t *testing.T) {
	for _, p := range Panels {
		for _, q := range p.Queries {
			for _, m := range names.FindAllStringIndex(q.Expr, -1) {
				if n := q.Expr[m[0]:m[1]]; strings.HasPrefix(n, "narwhal_") {
					body, _, ok := strings.Cut(strings.TrimPrefix(q.Expr[m[1]:], "{"), "}")
					if !ok || !strings.Contains(body, ofRouter) {
						t.Errorf("%s: %s is asked of every router", p.Title, n)
					}
				}
			}
		}
	}
}

func TestBadSites(t *testing.T) {
	for name, edit := range map[string]func(*Site){
		"no router is named":     func(s *Site) { s.Routers = nil },
		"no http or https URL":   func(s *Site) { s.Routers = []string{"127.0.0.1:8000"} },
		"has a user":             func(s *Site) { s.Routers = []string{"http://u:s3cret@192.0.2.1"} },
		"is not HOST:PORT":       func(s *Site) { s.Prometheus = "9090" },
		"no absolute path":       func(s *Site) { s.Dir = "monitoring" },
		"a time of 1µs is below": func(s *Site) { s.Scrape = time.Microsecond },
	} {
		s := site()
		edit(&s)
		if _, err := Files(s); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// promtool, where it is installed, takes configuration and rules.
func TestPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("NARWHAL_REQUIRE_PROMETHEUS") == "1" {
			t.Fatal("promtool is required and not installed")
		}
		t.Skip("promtool is not installed")
	}
	dir := t.TempDir()
	for name, content := range written(t, site()) {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "config", filepath.Join(dir, PrometheusFile)}, {"check", "rules", filepath.Join(dir, RulesFile)}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
