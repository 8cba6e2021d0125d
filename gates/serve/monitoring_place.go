package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/monitoring"
)

// currentVersion is what the link points to, "none" without one.
func currentVersion(dir string) string {
	target, err := os.Readlink(filepath.Join(dir, currentLink))
	if err != nil || !versionRE.MatchString(filepath.Base(target)) {
		return noVersion
	}
	return filepath.Base(target)
}

func readPrevious(dir string) (p previousVersion) {
	b, err := os.ReadFile(filepath.Join(dir, previousName))
	if err != nil || json.Unmarshal(b, &p) != nil || p.Version != noVersion && !versionRE.MatchString(p.Version) {
		return previousVersion{Version: noVersion}
	}
	return p
}

// switchMonitoring points the link at the version, in one rename. What stood before the run's
// first change stays known.
func switchMonitoring(ctx context.Context, q MonitoringRequest) (MonitoringPlaced, error) {
	if err := q.validate(); err != nil {
		return MonitoringPlaced{}, err
	}
	if _, err := os.Stat(filepath.Join(q.Dir, versionsDir, q.Version, monitoring.PrometheusFile)); err != nil {
		return MonitoringPlaced{}, fmt.Errorf("switch the monitoring's files: %w", err)
	}
	was := currentVersion(q.Dir)
	if before := readPrevious(q.Dir); was != q.Version && (before.Run != q.Run || before.Run == "") {
		b, err := json.Marshal(previousVersion{q.Run, was})
		if err != nil {
			return MonitoringPlaced{}, err
		}
		if err := atomicfile.Write(filepath.Join(q.Dir, previousName), b, 0o644); err != nil {
			return MonitoringPlaced{}, fmt.Errorf("switch the monitoring's files: %w", err)
		}
	}
	if was != q.Version {
		if err := pointAt(q.Dir, q.Version); err != nil {
			return MonitoringPlaced{}, err
		}
	}
	return placed(ctx, q), nil
}

// pointAt replaces the link. A folder or file of that name is somebody else's and stays.
func pointAt(dir, version string) error {
	link := filepath.Join(dir, currentLink)
	if st, err := os.Lstat(link); err == nil && st.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("switch the monitoring's files: %s is no link; move it away, or name another folder with deploy.monitoring.dir", link)
	}
	tmp := fmt.Sprintf("%s.%d", link, os.Getpid())
	_ = os.Remove(tmp)
	if err := os.Symlink(filepath.Join(versionsDir, version), tmp); err != nil {
		return fmt.Errorf("switch the monitoring's files: %w", err)
	}
	if err := os.Rename(tmp, link); err != nil {
		return errors.Join(fmt.Errorf("switch the monitoring's files: %w", err), os.Remove(tmp))
	}
	return nil
}

// placed tells what stands, after Prometheus was asked where it is to be.
func placed(ctx context.Context, q MonitoringRequest) MonitoringPlaced {
	p := MonitoringPlaced{Dir: q.Dir, Current: currentVersion(q.Dir), Previous: readPrevious(q.Dir).Version, Asked: q.Reload != ""}
	if p.Asked {
		p.Reason = reload(ctx, q.Reload)
		p.Reloaded = p.Reason == ""
	}
	return p
}

// reload asks Prometheus to read its files, and says why it did not.
func reload(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/-/reload", nil)
	if err != nil {
		return "its address is none"
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return clean(err.Error(), maxSaid)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxSaid)) // its words are for a person
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("status %d: %s", resp.StatusCode, clean(string(b), 500))
	}
	return ""
}

// monitoringState answers which version stands; ErrUndone when it is another.
func monitoringState(_ context.Context, q MonitoringRequest) (MonitoringPlaced, error) {
	if err := q.validate(); err != nil {
		return MonitoringPlaced{}, err
	}
	p := MonitoringPlaced{Dir: q.Dir, Current: currentVersion(q.Dir), Previous: readPrevious(q.Dir).Version}
	if p.Current != q.Version {
		return p, gates.ErrUndone
	}
	return p, nil
}

// switchMonitoringBack points the link at what stood before the run, or takes it away. What
// another run put there since stays.
func switchMonitoringBack(ctx context.Context, q MonitoringRequest) (MonitoringPlaced, error) {
	if err := q.validate(); err != nil {
		return MonitoringPlaced{}, err
	}
	before := readPrevious(q.Dir)
	if before.Run != q.Run {
		q.Reload = ""
		return placed(ctx, q), nil
	}
	var err error
	if before.Version == noVersion {
		if err = os.Remove(filepath.Join(q.Dir, currentLink)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		err = pointAt(q.Dir, before.Version)
	}
	if err == nil {
		err = os.Remove(filepath.Join(q.Dir, previousName))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return MonitoringPlaced{}, fmt.Errorf("put the monitoring's files back: %w", err)
	}
	return placed(ctx, q), nil
}
