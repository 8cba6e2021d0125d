package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/bundle"
	"github.com/narwhal-fleet/narwhal/bundle/redact"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/atomicfile"
	"github.com/narwhal-fleet/narwhal/internal/problem"
)

func bundleVerb(a *app) *cobra.Command {
	c := &cobra.Command{Use: "bundle", Short: "Diagnostic bundles: collect, list, verify, show"}
	c.AddCommand(bundleCollectVerb(a), bundleListVerb(a), bundleVerifyVerb(a), bundleShowVerb(a))
	return c
}

type bundleData struct {
	Archive    string           `json:"archive"`
	SHA256     string           `json:"sha256"`
	Bytes      int64            `json:"bytes"`
	Hosts      []string         `json:"hosts"`
	Collected  int              `json:"collected"`
	Missing    []bundle.Missing `json:"missing"`
	Redactions int              `json:"redactions"`
}

func bundleCollectVerb(a *app) *cobra.Command {
	var files []string
	var run, out string
	c := &cobra.Command{
		Use: "collect", Short: "Collects hosts, engines, router and record into one archive without secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.loadFleet(cmd.Context(), files)
			if err != nil {
				return err
			}
			if err := l.withDeploy(); err != nil {
				return err
			}
			dir, err := a.bundleRun(l.fleet.Deploy.Name, run)
			if err != nil {
				return err
			}
			now := time.Now()
			if out == "" {
				out = fmt.Sprintf("bundle-%s-%s.tar.gz", l.fleet.Deploy.Name, now.UTC().Format("20060102T150405Z"))
			}
			if !filepath.IsAbs(out) {
				out = filepath.Join(a.dir, out)
			}
			return a.collectBundle(cmd.Context(), &l, dir, out)
		},
	}
	fleetFlag(c, &files)
	c.Flags().StringVar(&run, "run", "latest", "run whose record is taken: an id, a unique prefix of one, or latest")
	c.Flags().StringVarP(&out, "output", "o", "", "archive to write (default bundle-<fleet>-<time>.tar.gz here)")
	return c
}

// bundleRun finds the run's folder, "" when the fleet has no run and none was named.
func (a *app) bundleRun(name, prefix string) (string, error) {
	state, err := a.stateDir()
	if err != nil {
		return "", err
	}
	dir, err := record.Resolve(state, name, prefix)
	if errors.Is(err, record.ErrNoRun) && (prefix == "" || prefix == "latest") {
		return "", nil
	}
	if err != nil {
		return "", problem.Wrap(problem.Invalid, "no_such_run", "find the run", err, "narwhal gate runs lists them")
	}
	return dir, nil
}

func (a *app) collectBundle(ctx context.Context, l *loaded, dir, out string) error {
	hosts := &bundleHosts{app: a, loaded: l, jumps: remote.NewJumps(), open: map[string]*remote.Host{}}
	defer hosts.Close()
	tmp, err := os.CreateTemp(filepath.Dir(out), ".bundle-*")
	if err != nil {
		return problem.Wrap(problem.Failed, "bundle_unwritable", "write the bundle", err, "name a folder that can be written with -o")
	}
	defer os.Remove(tmp.Name())
	fmt.Fprintf(a.err, "collecting from %s\n", strings.Join(l.fleet.WorkHosts(), ", "))
	sum, err := bundle.Collect(ctx, bundle.Source{
		Fleet: l.fleet, RunDir: dir, Host: hosts.host, HTTP: bundle.Getter(hosts.dial, hosts.bearer), Literals: a.knownSecrets(l), Tool: version,
	}, tmp)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), out)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(out))
	}
	if err != nil {
		return problem.Wrap(problem.Failed, "bundle_failed", "collect the bundle", err, "run the same command again")
	}
	a.result = collected(out, sum)
	return nil
}

func collected(out string, sum bundle.Summary) *result {
	d := bundleData{Archive: out, SHA256: sum.SHA256, Bytes: sum.Bytes, Hosts: sum.Hosts, Collected: sum.Collected, Missing: sum.Missing, Redactions: sum.Redactions}
	r := &result{status: problem.Success, data: d, artifacts: []artifact{{"bundle", out, "created"}}}
	if len(d.Missing) > 0 {
		r.status = problem.Degraded
		r.problems = append(r.problems, problem.New(problem.Degraded, "bundle_incomplete", fmt.Sprintf("%d things are missing from the bundle", len(d.Missing)),
			"narwhal bundle show "+out+" names each, with the reason"))
	}
	r.text = func(w io.Writer) {
		fmt.Fprintf(w, "%s\n%d files from %d hosts, %d bytes, %d secrets cut\nsha256 %s\n", out, d.Collected, len(d.Hosts), d.Bytes, d.Redactions, d.SHA256)
		for _, m := range d.Missing {
			fmt.Fprintf(w, "missing %s: %s\n", m.Path, m.Why)
		}
	}
	return r
}

// knownSecrets are the values that the fleet refers to, as far as they are set here, and
// those of the environment whose names say that they are secret.
func (a *app) knownSecrets(l *loaded) []fleet.Secret {
	var out []fleet.Secret
	for _, ref := range l.fleet.SecretRefs() {
		if s, err := l.secret(a)(ref); err == nil {
			out = append(out, s)
		}
	}
	for _, kv := range a.environ() {
		if name, v, _ := strings.Cut(kv, "="); len(v) >= 8 && redact.Holds(name, v) {
			out = append(out, fleet.NewSecret(v))
		}
	}
	return out
}

// bundleHosts opens each host once and asks URLs through it. It permits what a collection
// may do and nothing else.
type bundleHosts struct {
	*loaded
	app   *app
	jumps *remote.Jumps
	mu    sync.Mutex
	open  map[string]*remote.Host
}

func (b *bundleHosts) permit(op remote.Operation) error {
	switch op.Kind {
	case remote.KindGet, remote.KindDial:
		return nil
	case remote.KindRun:
		if slices.ContainsFunc(bundle.Scripts(b.fleet, op.Host), func(c remote.Command) bool { return c.Script == op.Script && slices.Equal(c.Argv, op.Argv) }) {
			return nil
		}
	}
	return errors.New("a bundle reads and never changes a host")
}

func (b *bundleHosts) host(ctx context.Context, id string) (bundle.Host, error) {
	cfg, err := remote.FromFleet(b.fleet, id, b.secret(b.app))
	if err != nil {
		return nil, err
	}
	lim := b.fleet.Deploy.Limits
	h, err := remote.Open(ctx, cfg, remote.Options{Policy: b.permit, ConnectTimeout: lim.Connect.D(), Jumps: b.jumps})
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[id] = h
	return h, nil
}

// dial connects from a host that is open already.
func (b *bundleHosts) dial(ctx context.Context, host, address string) (net.Conn, error) {
	b.mu.Lock()
	h := b.open[host]
	b.mu.Unlock()
	if h == nil {
		return nil, errors.New("the host is not connected")
	}
	return h.Dial(ctx, "tcp", address)
}

// bearer is the engines' key, for URLs of engines alone.
func (b *bundleHosts) bearer(url string) fleet.Secret {
	if name := b.fleet.Engine.EngineAPIKeyEnv; name != "" && b.isEngine(url) {
		return fleet.NewSecret(b.app.getenv(name))
	}
	return fleet.Secret{}
}

// isEngine reports whether a URL belongs to an engine.
func (b *bundleHosts) isEngine(url string) bool {
	return slices.ContainsFunc(b.fleet.Engines, func(e fleet.Engine) bool {
		return strings.HasPrefix(url, strings.TrimRight(e.URL, "/")+"/")
	})
}

// Close ends the connections.
func (b *bundleHosts) Close() {
	for _, h := range b.open {
		_ = h.Close()
	}
	_ = b.jumps.Close()
}
