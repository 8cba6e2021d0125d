// Package monitoring makes the files with which a site's Prometheus and Grafana watch a fleet.
//
// It promises that all of them come from the tables of this package, that the rules and panels
// name only series that the router or an engine exports, and that the same site gives the same
// bytes. It refuses to hold secrets, to write files and to ask anybody.
package monitoring

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
	"time"
)

// Names of the files, below one folder.
const (
	PrometheusFile = "prometheus.yml"
	RulesFile      = "narwhal-rules.yml"
	RoutersFile    = "targets/narwhal-router.json"
	DashboardFile  = "grafana/dashboards/narwhal-dashboard.json"
	SourceFile     = "grafana/provisioning/datasources/narwhal.yml"
	ProviderFile   = "grafana/provisioning/dashboards/narwhal.yml"
)

// Jobs of Prometheus.
const (
	RouterJob  = "narwhal-router"
	EnginesJob = "engines"
)

// Times of a site that says nothing else.
const (
	DefaultScrape     = 5 * time.Second
	DefaultEvaluation = 15 * time.Second
	DefaultDiscovery  = 15 * time.Second
)

// Site is what the files are made for.
type Site struct {
	// Routers are base URLs as Prometheus reaches them: the router's first, then its standby's.
	Routers []string
	// Prometheus is the host:port at which Grafana finds it.
	Prometheus string
	// Dir is the absolute folder in which the files will lie; Grafana is told it.
	Dir string
	// Scrape, Evaluation and Discovery are times between two; 0 = the default.
	Scrape, Evaluation, Discovery time.Duration
}

// File is one of the files; Name is a path below the folder, with slashes.
type File struct {
	Name    string
	Content []byte
}

// Files makes all of them, in a fixed order.
func Files(s Site) ([]File, error) {
	s = s.filled()
	if err := s.check(); err != nil {
		return nil, err
	}
	dashboard, err := dashboard()
	if err != nil {
		return nil, err
	}
	routers, err := routerTargets(s)
	if err != nil {
		return nil, err
	}
	return []File{
		{PrometheusFile, prometheusConfig(s)},
		{RulesFile, rulesConfig()},
		{RoutersFile, routers},
		{DashboardFile, dashboard},
		{SourceFile, sourceConfig(s)},
		{ProviderFile, providerConfig(s)},
	}, nil
}

// Digest identifies files by their names and bytes.
func Digest(files []File) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s\x00%d\x00", f.Name, len(f.Content))
		h.Write(f.Content)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (s Site) filled() Site {
	for _, d := range []struct {
		of    *time.Duration
		usual time.Duration
	}{{&s.Scrape, DefaultScrape}, {&s.Evaluation, DefaultEvaluation}, {&s.Discovery, DefaultDiscovery}} {
		if *d.of == 0 {
			*d.of = d.usual
		}
	}
	return s
}

// check refuses what would make files that no server takes.
func (s Site) check() error {
	if len(s.Routers) == 0 {
		return fmt.Errorf("make the monitoring's files: no router is named")
	}
	for _, r := range s.Routers {
		if _, err := routerURL(r); err != nil {
			return err
		}
	}
	if _, _, err := net.SplitHostPort(s.Prometheus); err != nil || strings.ContainsFunc(s.Prometheus, unprintable) {
		return fmt.Errorf("make the monitoring's files: Prometheus's address %.80q is not HOST:PORT", s.Prometheus)
	}
	if !path.IsAbs(s.Dir) || strings.ContainsFunc(s.Dir, unprintable) {
		return fmt.Errorf("make the monitoring's files: the folder %.80q is no absolute path", s.Dir)
	}
	for _, d := range []time.Duration{s.Scrape, s.Evaluation, s.Discovery} {
		if d < time.Millisecond {
			return fmt.Errorf("make the monitoring's files: a time of %s is below 1ms", d)
		}
	}
	return nil
}

func unprintable(r rune) bool { return r < 0x20 || r == 0x7f }

// routerURL reads a base URL. User and password would stand in files that everybody on the
// host may read.
func routerURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("make the monitoring's files: the router's address %.80q is no http or https URL", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("make the monitoring's files: the router's URL with host %.80q has a user, a query or a fragment; give scheme, host, port and path alone", u.Host)
	}
	return u, nil
}

// Authority is the host and port of a router's URL, the port filled in.
func Authority(router string) (string, error) {
	u, err := routerURL(router)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}
