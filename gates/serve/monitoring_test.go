package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/monitoring"
)

// watchedFleet is the test fleet with a monitoring on a host of its own.
func watchedFleet() fleet.Fleet {
	f := testFleet()
	f.Deploy.Hosts["h1"] = fleet.Host{Root: "/opt/n", Address: "192.0.2.11"}
	f.Deploy.Hosts["m1"] = fleet.Host{Root: "/opt/m", Address: "192.0.2.19"}
	f.Deploy.Router.Listen = "0.0.0.0:8000"
	f.Deploy.Monitoring = &fleet.Monitoring{Host: "m1", Prometheus: "127.0.0.1:9090", Reload: true}
	return f
}

// seen is what a Prometheus sees of that fleet when all is well.
func seen() Watched {
	w := Watched{Ready: map[string]float64{"192.0.2.11:8000": 1}, Rules: map[string]string{"SomebodyElses": "err"},
		Routers: []WatchTarget{{Address: "192.0.2.11:8000", Health: "up"}}}
	for _, e := range [][2]string{{"p0", "192.0.2.11:8100"}, {"d0", "192.0.2.11:8101"}} {
		w.Engines = append(w.Engines, WatchTarget{Address: e[1], IID: e[0], Health: "up"})
		w.Listed = append(w.Listed, WatchTarget{Address: e[1], IID: e[0]})
	}
	for _, a := range monitoring.Alerts {
		w.Rules[a.Name] = "ok"
	}
	return w
}

func TestMonitoringFindings(t *testing.T) {
	f := watchedFleet()
	_, version, err := monitoringFiles(f)
	if err != nil {
		t.Fatal(err)
	}
	type parts struct {
		c MonitoringChecked
		p MonitoringPlaced
		w Watched
	}
	for code, edit := range map[string]func(*parts){
		"":                          func(*parts) {},
		"monitoring-unchecked":      func(x *parts) { x.c = MonitoringChecked{} },
		"monitoring-config-invalid": func(x *parts) { x.c = MonitoringChecked{Tool: true, Said: "yaml: \x1b[31mno"} },
		"monitoring-files-other":    func(x *parts) { x.p.Current = noVersion },
		"monitoring-reload":         func(x *parts) { x.p.Reloaded, x.p.Reason = false, "status 403: Lifecycle API is not enabled" },
		"monitoring-unreachable":    func(x *parts) { x.w = Watched{Reason: "Prometheus does not answer"} },
		"monitoring-rules":          func(x *parts) { delete(x.w.Rules, "NarwhalRouterDown"); x.w.Rules["NarwhalEngineDown"] = "err" },
		"monitoring-router-target":  func(x *parts) { x.w.Routers[0].Address = "192.0.2.12:8000" },
		"monitoring-router-down":    func(x *parts) { x.w.Routers[0].Health = "down" },
		"monitoring-router-unready": func(x *parts) { x.w.Ready = map[string]float64{"192.0.2.12:8000": 1} },
		"monitoring-engine-targets": func(x *parts) { x.w.Engines = x.w.Engines[:1] },
		"monitoring-engine-down":    func(x *parts) { x.w.Engines[1].Health, x.w.Engines[1].Error = "down", "connection refused" },
	} {
		x := parts{MonitoringChecked{Tool: true, OK: true}, MonitoringPlaced{Current: version, Asked: true, Reloaded: true}, seen()}
		edit(&x)
		v := view(t, f, map[record.Key]any{monitoringCheckKey: x.c, monitoringFilesKey: x.p, monitoringKey: x.w})
		got := Gate{}.Judge(v)
		var codes []string
		for _, g := range got {
			codes = append(codes, g.Code)
			if g.Hint == "" || g.Host != "m1" || g.Note != (g.Code == "monitoring-unchecked") || strings.ContainsRune(g.Message, 0x1b) {
				t.Errorf("%s: %+v", code, g)
			}
			if g.Code == "monitoring-engine-down" && g.Engine != "d0" {
				t.Errorf("it blames engine %q", g.Engine)
			}
		}
		if strings.Join(codes, " ") != code {
			t.Errorf("%s: found %v", code, codes)
		}
	}
}

// Engines that are there twice, unlisted or not there at all are wrong each.
func TestMonitoringEngineTargets(t *testing.T) {
	for name, edit := range map[string]func(*Watched){
		"twice":        func(w *Watched) { w.Engines = append(w.Engines, w.Engines[0]) },
		"not listed":   func(w *Watched) { w.Engines = append(w.Engines, WatchTarget{IID: "x", Address: "192.0.2.1:1"}) },
		"elsewhere":    func(w *Watched) { w.Engines[0].Address = "192.0.2.1:1" },
		"another name": func(w *Watched) { w.Engines[0].IID = "p1" },
		"none":         func(w *Watched) { w.Engines, w.Listed = nil, nil },
	} {
		w := seen()
		edit(&w)
		if got := w.findings(watchedFleet()); len(got) != 1 || got[0].Code != "monitoring-engine-targets" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A standby that the gate runs is the second router target.
func TestMonitoringOfAStandby(t *testing.T) {
	f := watchedFleet()
	f.Deploy.Router.Standby = &fleet.Standby{Host: "m1", Listen: "0.0.0.0:8001"}
	if got := watchedRouters(f); !slices.Equal(got, []string{"http://192.0.2.11:8000"}) {
		t.Errorf("without a lease: %v", got)
	}
	f.Deploy.Router.Lease.Path = "/shared/lease"
	if got := watchedRouters(f); !slices.Equal(got, []string{"http://192.0.2.11:8000", "http://127.0.0.1:8001"}) {
		t.Errorf("with a lease: %v", got)
	}
	w := seen()
	if got := w.findings(f); len(got) != 1 || got[0].Code != "monitoring-router-target" {
		t.Errorf("%+v", got)
	}
	w.Routers = append(w.Routers, WatchTarget{Address: "127.0.0.1:8001", Health: "up"})
	if got := w.findings(f); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// The trial does not wait for the monitoring, which waits for the router.
func TestMonitoringPlan(t *testing.T) {
	p := forecast(t, watchedFleet(), nil)
	ids := stepIDs(p)
	at := slices.Index(ids, "G/monitoring-file/"+monitoring.PrometheusFile)
	if at < 0 || ids[at-1] != "G/ready" || !slices.Equal(ids[at+6:at+9], []string{"G/monitoring-check", "G/monitoring-switch", "G/monitoring"}) {
		t.Fatalf("steps %v", ids)
	}
	for i, s := range p.Steps {
		waits := slices.ContainsFunc(s.Needs, func(n string) bool { return strings.HasPrefix(n, "G/monitoring") })
		if i > at+8 && waits || i == at && !slices.Contains(s.Needs, "G/ready") || i > at && i <= at+8 && !waits {
			t.Errorf("%s needs %v", s.ID, s.Needs)
		}
		if s.File != nil && strings.HasPrefix(s.ID, "G/monitoring") && (s.Host != "m1" || !strings.HasPrefix(s.File.Path, "/opt/m/monitoring/versions/") || len(s.File.SHA256) != 64) {
			t.Errorf("%+v", s)
		}
	}
	if sw := p.Steps[at+7]; sw.Undo == nil || sw.Undo.Restores != "monitoring on m1" || sw.Check == nil || sw.Effect != gates.Mutate {
		t.Errorf("%+v", sw)
	}
	kept := []record.Key{routerDrainKey, routerKey, readyKey, trialKey, journalKey, ringKey, acceptanceKey, bundleKey}
	if got := stepIDs(forecast(t, watchedFleet(), nil, append(kept, monitoringCheckKey, monitoringFilesKey)...)); !slices.Equal(got, []string{"G/monitoring"}) {
		t.Errorf("only the look is due: %v", got)
	}
	if got := (Gate{}).Halts(monitoringCheckKey, []byte(`{"promtool":true,"ok":false}`)); got == "" {
		t.Error("files that promtool refuses are put in their place")
	}
	if got := (Gate{}).Halts(monitoringCheckKey, []byte(`{"promtool":false,"ok":false}`)); got != "" {
		t.Errorf("without promtool: %s", got)
	}
}

// scripted is a Prometheus and a router that answer what is scripted and fail on all else.
type scripted struct {
	t       *testing.T
	answers map[string]func() string
}

func (s scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, ok := s.answers[r.URL.Path+"?"+r.URL.Query().Get("scrapePool")]
	if !ok {
		s.t.Errorf("not scripted: %s", r.URL)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	fmt.Fprint(w, a())
}

func says(text string) func() string { return func() string { return text } }

// watchEnv leads to both behind tunnels.
type watchEnv struct {
	*env
	router, prometheus string
}

func (e watchEnv) Tunnel(_ context.Context, host, address string) (string, <-chan struct{}, error) {
	switch host + " " + address {
	case "h1 0.0.0.0:8000":
		return e.router, nil, nil
	case "m1 127.0.0.1:9090":
		return e.prometheus, nil, nil
	}
	return "", nil, fmt.Errorf("not scripted: tunnel to %s on %s", address, host)
}

func address(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// answers of a Prometheus that finds the engines at its third look.
func answersOf(t *testing.T) map[string]func() string {
	t.Helper()
	looks := 0
	target := func(job, iid, at string) string {
		return fmt.Sprintf(`{"labels":{"job":%q,"iid":%q},"scrapeUrl":"http://%s/metrics","health":"up","lastError":""}`, job, iid, at)
	}
	var rules []string
	for _, a := range monitoring.Alerts {
		rules = append(rules, fmt.Sprintf(`{"name":%q,"health":"ok"}`, a.Name))
	}
	return map[string]func() string{
		// A version that knows no scrapePool gives every target.
		"/api/v1/targets?narwhal-router": says(`{"data":{"activeTargets":[` + target("narwhal-router", "", "192.0.2.11:8000") + `,` + target("node", "", "192.0.2.11:9100") + `]}}`),
		"/api/v1/targets?engines": func() string {
			if looks++; looks < 3 {
				return `{"data":{"activeTargets":[]}}`
			}
			return `{"data":{"activeTargets":[` + target("engines", "p0", "192.0.2.11:8100") + `,` + target("engines", "d0", "192.0.2.11:8101") + `]}}`
		},
		"/api/v1/query?":    says(`{"data":{"result":[{"metric":{"instance":"192.0.2.11:8000"},"value":[1.5,"1"]},{"metric":{"instance":"x"},"value":[1.5,"NaN"]}]}}`),
		"/api/v1/rules?":    says(`{"data":{"groups":[{"name":"other","rules":[{"name":"Other","health":"err"}]},{"name":"narwhal","rules":[` + strings.Join(rules, ",") + `]}]}}`),
		"/narwhal/targets?": says(`[{"targets":["192.0.2.11:8100"],"labels":{"iid":"p0"}},{"targets":["192.0.2.11:8101"],"labels":{"iid":"d0"}}]`),
	}
}

// look runs the local step against scripted servers.
func watchedBy(t *testing.T, answers map[string]func() string, within string) Watched {
	t.Helper()
	srv := httptest.NewServer(scripted{t, answers})
	t.Cleanup(srv.Close)
	b, err := Gate{}.Locals()["monitoring"](limited(t), watchEnv{newEnv(t, watchedFleet(), nil), address(srv), address(srv)}, json.RawMessage(`{"within":"`+within+`"}`))
	var w Watched
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestMonitoringLook(t *testing.T) {
	if w := watchedBy(t, answersOf(t), "10s"); len(w.findings(watchedFleet())) != 0 || len(w.Routers) != 1 || w.WaitedMS < 900 {
		t.Errorf("%+v", w)
	}
	for name, c := range map[string]struct {
		path, body, want string
	}{
		"no JSON":      {"/api/v1/targets?engines", "<html>\x1b[2J", "something else than its document"},
		"too long":     {"/api/v1/rules?", strings.Repeat(" ", maxState+1), "more than"},
		"a bad router": {"/narwhal/targets?", `{"error":1}`, "the router answers"},
	} {
		answers := answersOf(t)
		answers[c.path] = says(c.body)
		w := watchedBy(t, answers, "0s")
		if !strings.Contains(w.Reason, c.want) || strings.ContainsRune(w.Reason, 0x1b) {
			t.Errorf("%s: %q", name, w.Reason)
		}
		if got := w.findings(watchedFleet()); len(got) != 1 || got[0].Code != "monitoring-unreachable" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f := testFleet() // without a monitoring
	if _, err := (Gate{}).Locals()["monitoring"](limited(t), newEnv(t, f, nil), json.RawMessage(`{"within":"0s"}`)); err == nil {
		t.Error("a look at no monitoring")
	}
}

// placeVersion writes a version's configuration as the plan's file steps do.
func placeVersion(t *testing.T, dir, version string) {
	t.Helper()
	at := filepath.Join(dir, versionsDir, version)
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, monitoring.PrometheusFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Two changes of one run are taken back to what stood before the run, or to nothing.
func TestMonitoringSwitch(t *testing.T) {
	v := func(c string) string { return strings.Repeat(c, 64) }
	dir, ctx := t.TempDir(), t.Context()
	ask := func(run, version string) MonitoringRequest {
		return MonitoringRequest{Dir: dir, Version: version, Run: run}
	}
	for _, c := range []string{"a", "b", "c"} {
		placeVersion(t, dir, v(c))
	}
	if _, err := monitoringState(ctx, ask("1", v("a"))); err != gates.ErrUndone {
		t.Errorf("nothing stands: %v", err)
	}
	for _, s := range []struct{ run, version, previous string }{{"1", "a", noVersion}, {"2", "b", v("a")}, {"2", "c", v("a")}, {"2", "c", v("a")}} {
		p, err := switchMonitoring(ctx, ask(s.run, v(s.version)))
		if err != nil || p.Current != v(s.version) || p.Previous != s.previous {
			t.Errorf("%+v: %+v, %v", s, p, err)
		}
	}
	if p, err := switchMonitoringBack(ctx, ask("1", v("a"))); err != nil || p.Current != v("c") {
		t.Errorf("another run's files were taken away: %+v, %v", p, err)
	}
	for range 2 { // it may be cut off and begun again
		if p, err := switchMonitoringBack(ctx, ask("2", v("c"))); err != nil || p.Current != v("a") {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if _, err := switchMonitoring(ctx, ask("3", v("d"))); err == nil {
		t.Error("switched to files that are not there")
	}
	first := MonitoringRequest{Dir: filepath.Join(dir, "new"), Version: v("a"), Run: "4"}
	placeVersion(t, first.Dir, v("a"))
	if _, err := switchMonitoring(ctx, first); err != nil {
		t.Fatal(err)
	}
	if p, err := switchMonitoringBack(ctx, first); err != nil || p.Current != noVersion {
		t.Errorf("%+v, %v", p, err)
	}
	if err := os.MkdirAll(filepath.Join(first.Dir, currentLink, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := switchMonitoring(ctx, first); err == nil || !strings.Contains(err.Error(), "is no link") {
		t.Errorf("somebody's folder: %v", err)
	}
}

func TestMonitoringReload(t *testing.T) {
	dir, version := t.TempDir(), strings.Repeat("a", 64)
	placeVersion(t, dir, version)
	for status, want := range map[int]string{200: "", 403: "status 403: not enabled"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/-/reload" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.WriteHeader(status)
			fmt.Fprint(w, "not enabled")
		}))
		p, err := switchMonitoring(t.Context(), MonitoringRequest{Dir: dir, Version: version, Run: "1", Reload: address(srv)})
		if err != nil || !p.Asked || p.Reloaded != (status == 200) || p.Reason != want {
			t.Errorf("%d: %+v, %v", status, p, err)
		}
		srv.Close()
	}
}

func TestMonitoringCheck(t *testing.T) {
	tools, q := t.TempDir(), MonitoringRequest{Dir: t.TempDir(), Version: strings.Repeat("a", 64)}
	t.Setenv("PATH", tools)
	if c, err := checkMonitoring(t.Context(), q); err != nil || c.Tool {
		t.Errorf("no promtool: %+v, %v", c, err)
	}
	for script, want := range map[string]MonitoringChecked{
		`[ "$1 $2" = "check config" ] || [ "$1 $2" = "check rules" ]`:     {Tool: true, OK: true},
		`[ "$2" = config ] || { echo "group narwhal: bad" >&2; exit 1; }`: {Tool: true, Said: "group narwhal: bad "},
	} {
		if err := os.WriteFile(filepath.Join(tools, "promtool"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if c, err := checkMonitoring(t.Context(), q); err != nil || c != want {
			t.Errorf("%s: %+v, %v", script, c, err)
		}
	}
	for _, bad := range []MonitoringRequest{{Dir: "x", Version: q.Version}, {Dir: q.Dir, Version: "../../etc"}} {
		if _, err := checkMonitoring(t.Context(), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
