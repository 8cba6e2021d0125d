package drills

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// watched gives the fleet a monitoring on the second host, whose Prometheus listens at an address.
func watched(at string) func(*scene) {
	return func(s *scene) {
		s.doc["deploy"].(object)["monitoring"] = object{"host": s.hosts[1].ID, "prometheus": at, "dir": filepath.Join(s.w.dir, "watch")}
		s.heal(func() { must(s.t, os.RemoveAll(filepath.Join(s.w.dir, "watch"))) })
	}
}

// nowhere is where no Prometheus listens.
const nowhere = "127.0.0.1:9"

var prometheusListens = regexp.MustCompile(`msg="Listening on" address=(127\.0\.0\.1:\d+)`)

// noPrometheus says what is missing for a real one; where one is required, its start fails.
func noPrometheus() string {
	if _, err := exec.LookPath("prometheus"); err != nil && os.Getenv("NARWHAL_REQUIRE_PROMETHEUS") != "1" {
		return "prometheus is not installed"
	}
	return ""
}

// prometheus runs a real one with the fleet's files, in which a text is another, and names it in
// the fleet file.
func prometheus(file, old, new string, args ...string) func(*scene) {
	return func(s *scene) {
		dir := filepath.Join(s.t.TempDir(), "site")
		watched(nowhere)(s)
		if r := s.w.run(s.state, nil, "monitoring", "write", "-o", dir, "--router", fmt.Sprintf("http://127.0.0.1:%d", portRouter(s.hosts[0]))); r.exit != 0 {
			s.t.Fatalf("the files are not written: exit %d: %s", r.exit, tail(r.err))
		}
		if file != "" {
			b, err := os.ReadFile(filepath.Join(dir, file))
			must(s.t, err)
			if !strings.Contains(string(b), old) {
				s.t.Fatalf("%s has no %q", file, old)
			}
			must(s.t, os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(string(b), old, new, 1)), 0o644))
		}
		c := exec.Command("prometheus", append([]string{"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + s.t.TempDir(), "--web.listen-address=127.0.0.1:0"}, args...)...)
		out, err := c.StderrPipe()
		must(s.t, err)
		must(s.t, c.Start())
		read := make(chan struct{})
		s.heal(func() { _ = c.Process.Kill(); <-read; _ = c.Wait() })
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if m := prometheusListens.FindStringSubmatch(lines.Text()); m != nil {
				go func() { defer close(read); _, _ = io.Copy(io.Discard, out) }()
				s.deploy("monitoring")["prometheus"] = m[1]
				return
			}
		}
		close(read)
		s.t.Fatal("prometheus ended at its start")
	}
}

var monitoringFaults = []fault{
	{id: "monitoring-folder", stage: "F", where: "file on host", how: "a folder has the name of the monitoring's link", do: both(watched(nowhere), func(s *scene) {
		must(s.t, os.MkdirAll(filepath.Join(s.w.dir, "watch", "current"), 0o755))
		put(s, "mine", s.w.dir, "watch", "current", "prometheus.yml")
	}), code: "step-failed", exit: 4, says: "is no link"},
	{id: "monitoring-unwritable", stage: "F", where: "file on host", how: "the folder of the monitoring's files is a file", do: both(watched(nowhere), func(s *scene) {
		must(s.t, os.WriteFile(filepath.Join(s.w.dir, "watch"), []byte("a file"), 0o644))
	}), code: "step-failed", exit: 4, says: "G/monitoring-file/"},
	{id: "monitoring-refused", stage: "F", where: "host tool output", how: "promtool takes no file", do: both(watched(nowhere), tool(1, "promtool", `echo "unknown field" >&2; exit 1`)), code: "monitoring-config-invalid", exit: 1, hint: "promtool"},
	{id: "monitoring-silent", stage: "F", where: "network", how: "no Prometheus listens where it should", do: watched(nowhere), code: "monitoring-unreachable", exit: 1, hint: "--config.file"},
	{id: "monitoring-reload", stage: "F", where: "process", how: "Prometheus takes no order to read its files again", needs: noPrometheus, do: both(prometheus("", "", ""), func(s *scene) { s.deploy("monitoring")["reload"] = true }),
		code: "monitoring-reload", exit: 1, hint: "--web.enable-lifecycle"},
	{id: "monitoring-rules-edited", stage: "F", where: "file on host", how: "an alert was renamed in the rules that Prometheus reads", needs: noPrometheus, do: prometheus("narwhal-rules.yml", "NarwhalEngineDown", "EngineDown"),
		code: "monitoring-rules", exit: 1, hint: "reload it"},
	{id: "monitoring-target", stage: "F", where: "network", how: "Prometheus asks engines where they do not answer", needs: noPrometheus, do: prometheus("prometheus.yml", "    http_sd_configs:", "    relabel_configs:\n      - target_label: __metrics_path__\n        replacement: /none\n    http_sd_configs:"),
		code: "monitoring-engine-down", exit: 1, hint: "/metrics"},
}
