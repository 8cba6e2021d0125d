package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/monitoring"
)

// MonitoringRequest names one version of the monitoring's files on a host.
type MonitoringRequest struct {
	Dir     string `json:"dir"`
	Version string `json:"version"` // digest of the files
	Run     string `json:"run"`
	// Reload is where Prometheus is asked to read them again, "" = it is not asked.
	Reload string `json:"reload,omitempty"`
}

// MonitoringChecked is what promtool said of the files.
type MonitoringChecked struct {
	Tool bool   `json:"promtool"` // it is on the host
	OK   bool   `json:"ok"`
	Said string `json:"said,omitempty"`
}

// MonitoringPlaced says which version stands, and what Prometheus answered.
type MonitoringPlaced struct {
	Dir      string `json:"dir"`
	Current  string `json:"current"`  // version, "none"
	Previous string `json:"previous"` // before the run's first change, "none"
	Asked    bool   `json:"reload_asked"`
	Reloaded bool   `json:"reloaded"`
	Reason   string `json:"reason,omitempty"` // why not
}

// previousVersion is what stood before a run changed it.
type previousVersion struct {
	Run     string `json:"run"`
	Version string `json:"version"`
}

const (
	noVersion    = "none"
	checkLimit   = 30 * time.Second
	reloadLimit  = 20 * time.Second
	maxSaid      = 2000 // bytes of another program's words
	maxCheckText = 64 << 10
)

var versionRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

// monitoringVerbs are what gate G asks of the monitoring's host.
func monitoringVerbs() map[string]gates.HostVerb {
	return map[string]gates.HostVerb{
		"monitoring-check":       gates.Answer(checkMonitoring),
		"monitoring-switch":      gates.Answer(switchMonitoring),
		"monitoring-state":       gates.Answer(monitoringState),
		"monitoring-switch-back": gates.Answer(switchMonitoringBack),
	}
}

func (q MonitoringRequest) validate() error {
	if !filepath.IsAbs(q.Dir) || !versionRE.MatchString(q.Version) {
		return fmt.Errorf("read request: %.80q is no absolute folder, or %.80q no version", q.Dir, q.Version)
	}
	return nil
}

// checkMonitoring lets promtool read what was written, where it is installed.
func checkMonitoring(ctx context.Context, q MonitoringRequest) (MonitoringChecked, error) {
	if err := q.validate(); err != nil {
		return MonitoringChecked{}, err
	}
	tool, err := exec.LookPath("promtool")
	if err != nil {
		return MonitoringChecked{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	for _, a := range [][2]string{{"config", monitoring.PrometheusFile}, {"rules", monitoring.RulesFile}} {
		var said bytes.Buffer
		c := exec.CommandContext(ctx, tool, "check", a[0], filepath.Join(q.Dir, versionsDir, q.Version, a[1]))
		c.WaitDelay = time.Second
		out := &capped{to: &said, left: maxCheckText}
		c.Stdout, c.Stderr = out, out
		err := c.Run()
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && ctx.Err() == nil:
			return MonitoringChecked{Tool: true, Said: clean(said.String(), maxSaid)}, nil
		case err != nil:
			return MonitoringChecked{}, fmt.Errorf("run promtool check %s: %w", a[0], err)
		}
	}
	return MonitoringChecked{Tool: true, OK: true}, nil
}

// capped keeps the beginning of what is written.
type capped struct {
	to   *bytes.Buffer
	left int
}

func (c *capped) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	c.to.Write(b[:n])
	c.left -= n
	return len(b), nil
}
