package fleet

import (
	"cmp"
	"path"
)

// DefaultPrometheus is where Prometheus listens by its own default, on its host alone.
const DefaultPrometheus = "127.0.0.1:9090"

// Monitoring is the site's Prometheus, and where the files for it lie.
type Monitoring struct {
	Host       string `json:"host"`       // "" = the router's
	Prometheus string `json:"prometheus"` // address:port on the host
	Grafana    string `json:"grafana"`    // address:port on the host, "" = none
	Dir        string `json:"dir"`        // absolute, on the host; "" = below its root
	// Reload asks Prometheus to read its files again once they are written.
	Reload bool `json:"reload"`
}

// MonitoringHost is the host of the monitoring, "" without one.
func (f Fleet) MonitoringHost() string {
	if f.Deploy == nil || f.Deploy.Monitoring == nil {
		return ""
	}
	return cmp.Or(f.Deploy.Monitoring.Host, f.Deploy.Router.Host)
}

// MonitoringDir is the folder of its files on that host.
func (f Fleet) MonitoringDir() string {
	host := f.MonitoringHost()
	if host == "" {
		return ""
	}
	return cmp.Or(f.Deploy.Monitoring.Dir, path.Join(f.Deploy.Hosts[host].Root, "monitoring"))
}
