package serve

import (
	"path"
	"slices"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/monitoring"
)

const (
	monitoringKey      = record.Key("G/monitoring")
	monitoringCheckKey = record.Key("G/monitoring-check")
	monitoringFilesKey = record.Key("G/monitoring-files")
)

// Folders and files below the monitoring's folder. The link points at one version of the files.
const (
	versionsDir  = "versions"
	currentLink  = "current"
	previousName = "previous.json"
)

// watchedWithin is what Prometheus may take to see the fleet as it is.
const watchedWithin = fleet.Duration(time.Minute)

// monitoringKeys are the evidence of a declared monitoring.
func monitoringKeys(f fleet.Fleet) []record.Key {
	if f.Deploy.Monitoring == nil {
		return nil
	}
	return []record.Key{monitoringCheckKey, monitoringFilesKey, monitoringKey}
}

// watchedRouters are the base URLs of the router and its standby as the monitoring's host
// reaches them.
func watchedRouters(f fleet.Fleet) []string {
	r, from := f.Deploy.Router, f.MonitoringHost()
	out := []string{reachedAt(f, r.Host, r.Listen, from)}
	if s := standsBy(f); s != nil {
		out = append(out, reachedAt(f, s.Host, s.Listen, from))
	}
	return out
}

// monitoringFiles are the files of the fleet, and what identifies them.
func monitoringFiles(f fleet.Fleet) (files []monitoring.File, version string, err error) {
	files, err = monitoring.Files(monitoring.Site{Routers: watchedRouters(f), Prometheus: f.Deploy.Monitoring.Prometheus, Dir: path.Join(f.MonitoringDir(), currentLink)})
	return files, monitoring.Digest(files), err
}

// monitoringSteps write the files beside those that stand, check them, put them in their place,
// and look at what Prometheus makes of them. router is true when the router is started anew.
func monitoringSteps(v gates.View, router bool, before []string) (steps []gates.Step, err error) {
	f := v.Fleet
	if f.Deploy.Monitoring == nil {
		return nil, nil
	}
	files := v.Wants(monitoringCheckKey) || v.Wants(monitoringFilesKey)
	if files {
		if steps, err = installSteps(v); err != nil {
			return nil, err
		}
	}
	if files || router || v.Wants(monitoringKey) {
		steps = append(steps, local("monitoring", "look at what Prometheus sees of the fleet", monitoringKey, "monitoring", watchedWithin+shortLimit, monitoringArgs{Within: watchedWithin}))
	}
	needs := slices.Clone(before)
	for i := range steps {
		steps[i].Needs = slices.Clone(needs)
		needs = append(needs, steps[i].ID)
	}
	return steps, nil
}

func installSteps(v gates.View) ([]gates.Step, error) {
	f := v.Fleet
	host, dir := f.MonitoringHost(), f.MonitoringDir()
	files, version, err := monitoringFiles(f)
	if err != nil {
		return nil, err
	}
	var steps []gates.Step
	for _, file := range files {
		steps = append(steps, gates.Step{ID: "G/monitoring-file/" + file.Name, Title: "write " + file.Name + " of the monitoring", Host: host, Effect: gates.Mutate, Limit: shortLimit,
			File: gates.TextFile(path.Join(dir, versionsDir, version, file.Name), 0o644, file.Content)})
	}
	q := MonitoringRequest{Dir: dir, Version: version, Run: v.Run}
	if m := f.Deploy.Monitoring; m.Reload {
		q.Reload = m.Prometheus
	}
	return append(steps, gates.Step{
		ID: "G/monitoring-check", Title: "check the monitoring's files on " + host, Host: host, Effect: gates.Observe, Limit: shortLimit, Yields: monitoringCheckKey,
		Argv: gates.HostCommand(f, host, "monitoring-check", q),
	}, gates.Step{
		ID: "G/monitoring-switch", Title: "put the monitoring's files in their place on " + host, Host: host, Effect: gates.Mutate, Limit: shortLimit, Yields: monitoringFilesKey,
		Argv:  gates.HostCommand(f, host, "monitoring-switch", q),
		Check: gates.HostCommand(f, host, "monitoring-state", q),
		Undo: &gates.Undo{Title: "put the monitoring's files before back on " + host, Limit: shortLimit, Restores: "monitoring on " + host,
			Argv: gates.HostCommand(f, host, "monitoring-switch-back", q)},
	}), nil
}
