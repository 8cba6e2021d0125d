package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/attest"
	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
	"github.com/narwhal-fleet/narwhal/runtime/router"
)

type serveFlags struct {
	fleet    []string
	listen   string
	host     string
	port     int
	journal  string
	profiles string
	level    string
	limit    int
	grace    int
	check    bool
	ha       haFlags
	rows     journalFlags
}

func serveVerb(a *app) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "The router and role controller, in the foreground", Args: cobra.NoArgs,
		Long: "Serves a plain fleet document with the profiles at its profiles.path, or what gate G wrote.\nEnds in order on SIGTERM or SIGINT, with exit code 0: running streams finish within\nserving.graceful_timeout_s. One router holds a journal; a second one on it ends with 5.\nSeveral routers share a fleet by a lease: see narwhal standby.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, f) },
	}
	f.add(c)
	f.ha.add(c, false)
	return c
}

// standbyVerb is a router that waits for another one to go.
func standbyVerb(a *app) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "standby --of URL", Short: "A warm standby for a router", Args: cobra.NoArgs,
		Long: "Follows the router at --of, keeps its last handoff document, and takes over when that router is\ngone: both need the same lease, and only its holder serves. A lease file proves the end of a\nprocess on the same machine within milliseconds; elsewhere its expiry does.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.ha.of == "" {
				return problem.New(problem.Invalid, "invalid_arguments", "no router to wait for", "narwhal standby --of http://HOST:PORT -f FLEET --lease-path FILE --listen ADDRESS:PORT")
			}
			return a.serve(cmd, f)
		},
	}
	f.add(c)
	f.ha.add(c, true)
	return c
}

func (a *app) serve(cmd *cobra.Command, f serveFlags) error {
	if err := f.valid(cmd.Flags().Changed); err != nil {
		return err
	}
	if err := f.ha.valid(cmd.Flags().Changed); err != nil {
		return err
	}
	if !f.check {
		a.unwaited()
	}
	cfg, err := a.routerConfig(cmd.Context(), f)
	if err != nil {
		return err
	}
	if err := f.ha.surface(a, &cfg); err != nil {
		return err
	}
	if err := f.claimFiles(&cfg); err != nil {
		return err
	}
	if err := f.ha.follows(cfg.Listen); err != nil {
		return err
	}
	if f.check {
		if _, err := newRouter(cfg); err != nil {
			return err
		}
		a.result = &result{data: map[string]any{"model": cfg.Fleet.Model, "engines": len(cfg.Fleet.Engines), "profiles": len(cfg.Profiles.Rows), "engines_asked": false}, text: func(w io.Writer) {
			fmt.Fprintf(w, "settings and files hold for %d engines of %s; the engines are not asked: serve does that at its start\n", len(cfg.Fleet.Engines), oneLine(cfg.Fleet.Model))
		}}
		return nil
	}
	if err := makeFolder("journal", "--journal", cfg.JournalPath); err != nil {
		return err
	}
	done, err := f.ha.apply(a, &cfg)
	if err != nil {
		return err
	}
	defer done()
	endTraces, err := traced(cmd.Context(), &cfg)
	if err != nil {
		return problem.Wrap(problem.Invalid, "traces", "send traces", err, "OTEL_EXPORTER_OTLP_ENDPOINT names the collector, for example http://127.0.0.1:4318")
	}
	defer endTraces()
	boundClients(&cfg)
	r, err := newRouter(cfg)
	if err != nil {
		return err
	}
	warnOpenFiles(a.err, cmp.Or(cfg.MaxConcurrent, cfg.Fleet.Serving.MaxConnections), cfg.HTTP.MaxClients)
	up := false
	if err := r.Serve(cmd.Context(), func() { up = true; a.standing(r, cfg) }); err != nil {
		return serveProblem(cfg.Listen, up, err)
	}
	return nil
}

func newRouter(cfg router.Config) (*router.Router, error) {
	r, err := router.New(cfg)
	var tenants *router.TenantsError
	if errors.As(err, &tenants) {
		return nil, problem.Wrap(problem.Invalid, "tenants", "read the file of tenants", err, "mend the named members of "+tenants.Path+", the file of --tenants; docs/runtime.md, Tenants, lists what it may hold")
	}
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "router_config", "check the router's configuration", err,
			"narwhal validate FILE names lines of a fleet file; narwhal profile, or narwhal gate run --to F, measures engines and writes their profiles")
	}
	return r, nil
}

// standing says, once the router answers, whether it serves, and what it waits for.
func (a *app) standing(r *router.Router, cfg router.Config) {
	why, held := r.Idle()
	model := oneLine(cfg.Fleet.Model)
	switch {
	case cfg.HA.Standby.Primary != "":
		fmt.Fprintf(a.err, "narwhal: waiting to serve %s on %s\n", model, r.Addr())
	case held != nil:
		fmt.Fprintf(a.err, "narwhal: fenced, not serving %s on %s: %s (%s)\n", model, r.Addr(), why, held)
		if held.Damaged != nil {
			fmt.Fprintf(a.err, "narwhal: hint: if nobody writes the lease, this router claims it and serves at about %s, without another step\n", r.Reclaims(held).UTC().Format(time.RFC3339))
			return
		}
		fmt.Fprintf(a.err, "narwhal: hint: this router is fenced while that one serves; to take over at once, end it and start it as a standby: narwhal standby --of http://HOST:PORT, where that router listens\n")
	case why != "":
		fmt.Fprintf(a.err, "narwhal: up on %s, not serving %s yet: %s\n", r.Addr(), model, why)
	default:
		fmt.Fprintf(a.err, "narwhal: serving %s on %s\n", model, r.Addr())
	}
}

func (f *serveFlags) add(c *cobra.Command) {
	fleetFlag(c, &f.fleet)
	c.Flags().StringVar(&f.listen, "listen", "", "address to listen on (default "+fleet.DefaultListen+")")
	host, port, _ := net.SplitHostPort(fleet.DefaultListen)
	n, _ := strconv.Atoi(port)
	c.Flags().StringVar(&f.host, "host", host, "host to listen on")
	c.Flags().IntVar(&f.port, "port", n, "port to listen on")
	c.Flags().StringVar(&f.journal, "journal", "", "journal file (default: journal.jsonl beside the profiles)")
	f.rows.add(c)
	c.Flags().StringVar(&f.profiles, "profiles", "", "profile store (default: profiles.path of the fleet)")
	c.Flags().StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	c.Flags().IntVar(&f.limit, "max-concurrent", 0, "requests in flight (default: serving.max_connections)")
	c.Flags().IntVar(&f.grace, "graceful-timeout", -1, "seconds that running requests get at the end (default: serving.graceful_timeout_s)")
	c.Flags().BoolVar(&f.check, "check", false, "check settings and files, and exit; the engines are not asked")
}

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "trace": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError, "critical": slog.LevelError,
}

const maxProfiles = 64 << 20

func (a *app) routerConfig(ctx context.Context, f serveFlags) (router.Config, error) {
	l, err := a.loadFleet(ctx, f.fleet)
	if err != nil {
		return router.Config{}, err
	}
	printWarnings(a.err, l.doc.Warnings)
	if err := enoughFiles(len(l.fleet.Engines)); err != nil {
		return router.Config{}, err
	}
	level, ok := levels[f.level]
	if !ok {
		return router.Config{}, problem.New(problem.Invalid, "invalid_arguments", fmt.Sprintf("no log level %q", f.level), "use debug, info, warn or error")
	}
	if f.profiles != "" {
		l.fleet.Profiles.Path = f.profiles
	}
	if f.grace >= 0 {
		l.fleet.Serving.GracefulTimeoutS = float64(f.grace)
	}
	store, err := readProfiles(ctx, l.fleet.Profiles.Path)
	if err != nil {
		return router.Config{}, err
	}
	cfg := router.Config{Fleet: l.fleet, Profiles: store, Listen: f.listen, JournalPath: f.journal, Journal: f.rows.options(), MaxConcurrent: f.limit, Release: version,
		Logger: slog.New(slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: level})), LogDropped: a.logDropped()}
	if cfg.Listen == "" {
		cfg.Listen = net.JoinHostPort(strings.Trim(f.host, "[]"), strconv.Itoa(f.port))
	}
	if cfg.JournalPath == "" {
		cfg.JournalPath = filepath.Join(filepath.Dir(l.fleet.Profiles.Path), "journal.jsonl")
	}
	path := l.fleet.Profiles.Path
	cfg.ReadProfiles = func(ctx context.Context) ([]byte, error) {
		return storeBytes(ctx, path)
	}
	if attested(l.fleet) {
		side := newSidecars(l.fleet)
		cfg.Verify, cfg.Attest = side.verify, side.attest
	}
	return cfg, nil
}

func readProfiles(ctx context.Context, path string) (profile.Store, error) {
	b, err := storeBytes(ctx, path)
	if err != nil {
		return profile.Store{}, problem.Wrap(problem.Invalid, "profiles_unreadable", "read the profiles", err, "narwhal profile, or gate F, measures the engines and writes them; --profiles or profiles.path names another file")
	}
	s, err := profile.ReadStore(bytes.NewReader(b))
	if err != nil {
		return s, problem.Wrap(problem.Invalid, "profiles_invalid", "read the profiles", fmt.Errorf("%s: %w", path, err), "--profiles or profiles.path names the store; narwhal profile, or narwhal gate run --to F, measures the engines and writes it: gate G places it on the router's host as router/profiles.json")
	}
	return s, nil
}

// storeBytes reads a profile store, which is a regular file: of a pipe nobody would be the writer.
func storeBytes(ctx context.Context, path string) ([]byte, error) {
	return within(ctx, func() ([]byte, error) {
		if err := regular(path); err != nil {
			return nil, err
		}
		return bounded(path, maxProfiles)
	})
}

// bounded reads a file of at most so many bytes.
func bounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is larger than %s", path, fleet.Size(most))
	}
	return b, err
}

// attested reports whether every engine names a sidecar.
func attested(f fleet.Fleet) bool {
	for _, e := range f.Engines {
		if e.AttestationURL == "" {
			return false
		}
	}
	return len(f.Engines) > 0
}

const attestLimit = 5 * time.Second

// sidecars asks the sidecars of a fleet for their attestations.
type sidecars struct {
	fleet  fleet.Fleet
	client *http.Client
}

func newSidecars(f fleet.Fleet) sidecars {
	return sidecars{f, &http.Client{Timeout: attestLimit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// read returns an engine's attestation, which must be of the process with this identity.
func (s sidecars) read(ctx context.Context, iid string, id engine.Identity) (attest.Response, error) {
	e, ok := s.fleet.ByID(iid)
	if !ok {
		return attest.Response{}, fmt.Errorf("verify engine %q: not in the fleet", iid)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.AttestationURL, nil)
	if err != nil {
		return attest.Response{}, fmt.Errorf("verify engine %s: %w", iid, err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return attest.Response{}, fmt.Errorf("verify engine %s: %w: %w", iid, router.ErrUnvouched, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, attest.MaxResponse+1))
	if err != nil {
		return attest.Response{}, fmt.Errorf("verify engine %s: %w: %w", iid, router.ErrUnvouched, err)
	}
	if resp.StatusCode != http.StatusOK {
		return attest.Response{}, fmt.Errorf("verify engine %s: %w: it answered %d", iid, router.ErrUnvouched, resp.StatusCode)
	}
	r, err := attest.ParseResponse(b)
	if err != nil {
		return r, fmt.Errorf("verify engine %s: %w: %w", iid, router.ErrUnvouched, err)
	}
	if r.EngineVersion != id.Version || math.Abs(r.ProcessStart-id.ProcessStart) > 1e-3 {
		return r, fmt.Errorf("verify engine %s: its sidecar attests another process", iid)
	}
	return r, nil
}

// verify judges a live engine by its sidecar: it must attest the same process and the
// launch that its profile was measured on.
func (s sidecars) verify(ctx context.Context, row profile.Row, id engine.Identity) error {
	r, err := s.read(ctx, row.IID, id)
	if err != nil {
		return err
	}
	if row.GenerationDigest == nil || r.Binding() != *row.GenerationDigest {
		return fmt.Errorf("verify engine %s: its profile was measured on another launch", row.IID)
	}
	return nil
}

// attest judges by the sidecar alone: the same process, and the contract of the fleet if it
// has one. An image that the contract leaves open may be any.
func (s sidecars) attest(ctx context.Context, iid string, id engine.Identity) error {
	r, err := s.read(ctx, iid, id)
	if err != nil || s.fleet.EngineContract == nil {
		return err
	}
	want, got := *s.fleet.EngineContract, r.Contract
	if want.ImageDigest == "" {
		got.ImageDigest = ""
	}
	if a, b := want.Fingerprint(), got.Fingerprint(); a != b {
		return fmt.Errorf("verify engine %s: its sidecar attests contract %s, this fleet's is %s", iid, b, a)
	}
	return nil
}
