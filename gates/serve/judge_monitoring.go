package serve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/monitoring"
)

// judgeMonitoring checks files, their reading, and what Prometheus sees, where the fleet has a
// monitoring.
func judgeMonitoring(v gates.View) (out []record.Finding) {
	f := v.Fleet
	if f.Deploy.Monitoring == nil {
		return nil
	}
	host := f.MonitoringHost()
	add := func(code string, key record.Key, want, got, hint string, note bool) {
		out = append(out, record.Finding{Code: code, Host: host, Want: want, Got: got, Evidence: string(key), Hint: hint, Note: note, Message: fmt.Sprintf("got %s, want %s", got, want)})
	}
	var c MonitoringChecked
	if v.Decode(monitoringCheckKey, &c) == nil {
		switch {
		case !c.Tool:
			add("monitoring-unchecked", monitoringCheckKey, "promtool's word on the files", "none: it is not on the host's PATH", "install the package prometheus there, or let Prometheus's own log tell", true)
		case !c.OK:
			add("monitoring-config-invalid", monitoringCheckKey, "files that promtool takes", fmt.Sprintf("%.300q", clean(c.Said, 300)), "they are not in their place; the host's promtool may be older than the files: narwhal monitoring write and promtool check config show more", false)
		}
	}
	var p MonitoringPlaced
	if v.Decode(monitoringFilesKey, &p) == nil {
		if _, version, err := monitoringFiles(f); err == nil && p.Current != version {
			add("monitoring-files-other", monitoringFilesKey, fmt.Sprintf("version %.12s of the files", version), fmt.Sprintf("%.12s", clean(p.Current, 64)), "somebody else switches the link current below "+f.MonitoringDir()+": narwhal gate run --again G", false)
		}
		if p.Asked && !p.Reloaded {
			add("monitoring-reload", monitoringFilesKey, "a Prometheus that reads its files again", fmt.Sprintf("%.300q", clean(p.Reason, 300)), "start it with --web.enable-lifecycle, or take deploy.monitoring.reload away and reload it yourself", false)
		}
	}
	var w Watched
	if v.Decode(monitoringKey, &w) == nil {
		out = append(out, w.findings(f)...)
	}
	return out
}

// findings compares what Prometheus sees with what it should.
func (w Watched) findings(f fleet.Fleet) (out []record.Finding) {
	m, host := f.Deploy.Monitoring, f.MonitoringHost()
	add := func(code, engine, want, got, hint string) {
		out = append(out, record.Finding{Code: code, Host: host, Engine: engine, Want: want, Got: got, Evidence: string(monitoringKey), Hint: hint, Message: fmt.Sprintf("got %s, want %s", got, want)})
	}
	if w.Reason != "" {
		add("monitoring-unreachable", "", "a Prometheus at "+m.Prometheus+" that answers", fmt.Sprintf("%.300q", clean(w.Reason, 300)), "see that it runs on host "+host+" with --config.file="+f.MonitoringDir()+"/"+currentLink+"/"+monitoring.PrometheusFile+", and that deploy.monitoring.prometheus is where it listens")
		return out
	}
	missing, broken := []string{}, []string{}
	for _, a := range monitoring.Alerts {
		switch health, ok := w.Rules[a.Name]; {
		case !ok:
			missing = append(missing, a.Name)
		case health == "err":
			broken = append(broken, a.Name)
		}
	}
	if len(missing)+len(broken) > 0 {
		add("monitoring-rules", "", fmt.Sprintf("all %d alerts of group %s", len(monitoring.Alerts), monitoring.Group), fmt.Sprintf("%d missing, %d that fail: %s", len(missing), len(broken), some(append(missing, broken...))),
			"Prometheus must read "+monitoring.PrometheusFile+" of "+f.MonitoringDir()+"/"+currentLink+"; reload it")
	}
	w.judgeRouters(f, add)
	w.judgeEngines(add)
	return out
}

type adder = func(code, engine, want, got, hint string)

func (w Watched) judgeRouters(f fleet.Fleet, add adder) {
	var want, got, down []string
	for _, r := range watchedRouters(f) {
		if at, err := monitoring.Authority(r); err == nil {
			want = append(want, at)
		}
	}
	for _, t := range w.Routers {
		got = append(got, t.Address)
		if t.Health != "up" {
			down = append(down, t.Address+" is "+t.Health+" "+t.Error)
		}
	}
	if a, b := slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got)); !slices.Equal(a, b) {
		add("monitoring-router-target", "", "the router targets "+some(want), some(got), "Prometheus reads another "+monitoring.RoutersFile+", or has a second job "+monitoring.RouterJob)
		return
	}
	if len(down) > 0 {
		add("monitoring-router-down", "", "router targets that are up", some(down), "from its host Prometheus must reach deploy.router.listen, and the standby's")
		return
	}
	if len(want) > 0 && w.Ready[want[0]] != 1 {
		add("monitoring-router-unready", "", "narwhal_router_ready of "+want[0]+" at 1", fmt.Sprint(w.Ready[want[0]]), "GET /ready of the router says why it does not admit; another router may listen at that address")
	}
}

func (w Watched) judgeEngines(add adder) {
	seen := map[string]int{}
	for _, t := range w.Engines {
		seen[t.IID+" at "+t.Address]++
	}
	wrong := []string{}
	for _, t := range w.Listed {
		name := t.IID + " at " + t.Address
		if n := seen[name]; n != 1 {
			wrong = append(wrong, fmt.Sprintf("%s %d times", name, n))
		}
		delete(seen, name)
	}
	for _, t := range w.Engines {
		if name := t.IID + " at " + t.Address; seen[name] > 0 {
			wrong = append(wrong, name+" which the router does not list")
			delete(seen, name)
		}
	}
	if len(wrong) > 0 || len(w.Listed) == 0 {
		add("monitoring-engine-targets", "", fmt.Sprintf("each of the %d engines that the router lists, once", len(w.Listed)), some(wrong), "from its host Prometheus must reach /narwhal/targets of the router; it asks every "+monitoring.DefaultDiscovery.String())
		return
	}
	for _, t := range w.Engines {
		if t.Health != "up" {
			add("monitoring-engine-down", t.IID, "engine target "+t.Address+" up", strings.TrimSpace(t.Health+" "+t.Error), "from its host Prometheus must reach the engine's url, and the engine must answer /metrics")
		}
	}
}

// some names a few of many.
func some(items []string) string {
	const most = 5
	switch {
	case len(items) == 0:
		return "none"
	case len(items) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
	}
	return strings.Join(items, ", ")
}
