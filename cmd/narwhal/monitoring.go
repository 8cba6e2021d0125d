package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/monitoring"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func monitoringVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "monitoring", Short: "Files with which Prometheus and Grafana watch a fleet"}
	c.AddCommand(monitoringWriteVerb(a))
	return c
}

func monitoringWriteVerb(a *app) *cobra.Command {
	var out string
	var force bool
	s := monitoring.Site{}
	c := &cobra.Command{
		Use: "write -o DIR", Short: "Writes configuration, alert rules and dashboard into a folder", Args: cobra.NoArgs,
		Long: "Writes prometheus.yml, the alert rules, the list of routers, and for Grafana a data source and the\ndashboard. Prometheus finds the engines through the router. Nothing is asked and nothing is started.\nGate G does the same on a host where the fleet file has a deploy.monitoring, and looks at what comes of it.",
		RunE: func(*cobra.Command, []string) error {
			if out == "" {
				return problem.New(problem.Invalid, "invalid_arguments", "no output folder is given", "narwhal monitoring write -o monitoring")
			}
			s.Dir = filepath.Clean(a.abs(out))
			files, err := monitoring.Files(s)
			if err != nil {
				return problem.Wrap(problem.Invalid, "invalid_arguments", "write the monitoring", err, "--router takes http://HOST:PORT, --prometheus HOST:PORT")
			}
			written, err := writeMonitoring(s.Dir, files, force)
			a.result = &result{data: map[string]any{"dir": s.Dir, "routers": s.Routers, "version": monitoring.Digest(files)}, artifacts: written, text: func(w io.Writer) {
				for _, f := range written {
					fmt.Fprintf(w, "%-8s %s\n", f.State, f.Path)
				}
				fmt.Fprintf(w, "next: prometheus --config.file=%s\n", filepath.Join(s.Dir, monitoring.PrometheusFile))
			}}
			return err
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "folder to write into (required)")
	c.Flags().StringArrayVar(&s.Routers, "router", []string{"http://" + fleet.DefaultListen}, "the router as Prometheus reaches it; repeat for its standby")
	c.Flags().StringVar(&s.Prometheus, "prometheus", fleet.DefaultPrometheus, "Prometheus as Grafana reaches it")
	c.Flags().BoolVar(&force, "force", false, "replace files that say something else")
	return c
}

// writeMonitoring writes all files, or none where one of them stands with other bytes.
func writeMonitoring(dir string, files []monitoring.File, force bool) ([]artifact, error) {
	out := []artifact{}
	for _, f := range files {
		at, state := filepath.Join(dir, filepath.FromSlash(f.Name)), "created"
		switch same, err := holds(at, f.Content); {
		case err == nil && same:
			state = "existing"
		case err == nil && !force:
			return nil, problem.New(problem.Invalid, "file_exists", at+" stands there with other content", "choose another folder, or give --force")
		case err == nil:
			state = "updated"
		case !errors.Is(err, fs.ErrNotExist):
			return nil, problem.Wrap(problem.Failed, "write_failed", "look at "+at, err, "choose another folder")
		}
		out = append(out, artifact{Kind: "monitoring", Path: at, State: state})
	}
	for i, f := range files {
		if out[i].State == "existing" {
			continue
		}
		err := atomicfile.MkdirAll(filepath.Dir(out[i].Path), 0o755)
		if err == nil {
			err = atomicfile.Write(out[i].Path, f.Content, 0o644)
		}
		if err != nil {
			return nil, problem.Wrap(problem.Failed, "write_failed", "write the monitoring", err, "choose a folder that can be written")
		}
	}
	return out, nil
}

// holds reports whether a file has this content.
func holds(name string, content []byte) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	return bytes.Equal(b, content), err
}
