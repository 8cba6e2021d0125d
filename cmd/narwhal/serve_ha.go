package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/router"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease/etcd"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
)

// haFlags are how several routers share a fleet, under the reference's names and ours for etcd.
type haFlags struct {
	resume                bool
	of                    string
	interval, age         float64
	misses                int
	path, id              string
	ttl, renew, margin    float64
	etcd                  []string
	key, user, pass       string
	ca, cert, private     string
	keepAlive, lame, head float64
	goOn                  bool
	lend                  float64
	affinity              bool
	tenants, control      string
	state                 string
	idle                  float64
	headBytes             int
}

func (f *haFlags) add(c *cobra.Command, standbyVerb bool) {
	s := c.Flags()
	if standbyVerb {
		s.StringVar(&f.of, "of", "", "address of the router to follow, for example http://127.0.0.1:8000")
	} else {
		s.StringVar(&f.of, "standby-of", "", "wait for the router at this address to go, then take over; needs a lease")
	}
	s.Float64Var(&f.interval, "standby-probe-interval", standby.DefaultInterval.Seconds(), "seconds between looks at the primary")
	s.IntVar(&f.misses, "standby-takeover-after", standby.DefaultMisses, "missed looks in a row that start a takeover")
	s.Float64Var(&f.age, "standby-max-handoff-age", standby.DefaultMaxAge.Seconds(), "seconds after which a handoff is too old to take over with")
	s.StringVar(&f.path, "lease-path", "", "file that says which router may serve; on a folder that all routers share")
	s.StringSliceVar(&f.etcd, "lease-etcd", nil, "etcd endpoints that hold the lease, instead of a file")
	s.StringVar(&f.key, "lease-etcd-key", "", "key of the lease in etcd (default /narwhal/<model>/lease)")
	s.StringVar(&f.user, "lease-etcd-user", "", "etcd user")
	s.StringVar(&f.pass, "lease-etcd-password", "", "etcd password, as env:NAME or file:PATH")
	s.StringVar(&f.ca, "lease-etcd-ca", "", "file of the etcd servers' authority")
	s.StringVar(&f.cert, "lease-etcd-cert", "", "file of this router's certificate for etcd")
	s.StringVar(&f.private, "lease-etcd-private", "", "file of that certificate's private key")
	s.StringVar(&f.id, "router-id", "", "name of this router in the lease (default <host>:<port>)")
	s.Float64Var(&f.ttl, "lease-ttl", lease.DefaultTTL.Seconds(), "seconds that a claim lasts")
	s.Float64Var(&f.renew, "lease-renew-interval", lease.DefaultRenew.Seconds(), "seconds between renewals")
	s.Float64Var(&f.margin, "lease-safety-margin", lease.DefaultMargin.Seconds(), "seconds by which this router stops before its claim ends")
	s.BoolVar(&f.resume, "resume", false, "restore the state file (recovery.state_path) at the start")
	s.StringVar(&f.state, "state-path", "", "state file of this router (default: recovery.state_path of the fleet)")
	s.Float64Var(&f.keepAlive, "keep-alive", 0, "seconds of an engine's silence after which a stream gets a comment; 0 = never")
	s.Float64Var(&f.lame, "lame-duck", 0.5, "seconds at the end in which connections are still answered, with 503")
	s.Float64Var(&f.idle, "idle-timeout", fleet.DefaultIdleTimeout.Seconds(), "seconds that a connection may rest between requests")
	s.IntVar(&f.headBytes, "max-header-bytes", fleet.DefaultHeaderBytes, "bytes of a request's head")
	s.StringVar(&f.tenants, "tenants", "", "file of API keys and limits; without one everybody may ask")
	s.StringVar(&f.control, "control-token", "", "bearer token of the lifecycle routes, as env:NAME or file:PATH")
	s.BoolVar(&f.goOn, "continue-streams", false, "let greedy streams whose engine died go on exactly on another one")
	s.Float64Var(&f.lend, "lend-from", fleet.DefaultLendFrom, "share of slo.ttft_s that a prefill must wait for decode engines to take it where their residents can bear it; 0 = never")
	s.BoolVar(&f.affinity, "prefix-affinity", fleet.DefaultAffinity, "price prefills by what engines are believed to hold of the prompt, and skip the transfer where a decode engine holds enough of it")
	s.Float64Var(&f.head, "header-timeout", fleet.DefaultHeaderTimeout.Seconds(), "seconds that a request's head may take")
}

func (f *haFlags) leased() bool { return f.path != "" || len(f.etcd) > 0 }

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// valid refuses values that no router can have.
func (f *haFlags) valid(given func(string) bool) error {
	bad := func(message, hint string) error {
		return problem.New(problem.Invalid, "invalid_arguments", message, hint)
	}
	switch {
	case given("lease-path") && f.path == "":
		return bad("--lease-path is empty", "it names a file in a folder that all routers share; without the flag this router serves alone")
	case !f.leased() && (given("lease-ttl") || given("lease-renew-interval") || given("lease-safety-margin") || given("router-id")):
		return bad("options of a lease without one", "--lease-path FILE or --lease-etcd ENDPOINTS")
	case f.path != "" && len(f.etcd) > 0:
		return bad("--lease-path and --lease-etcd are both given", "the lease is in one of them")
	case f.of != "" && !f.leased():
		return bad("a standby needs a lease", "--lease-path FILE that both routers reach, or --lease-etcd ENDPOINTS; the primary needs the same")
	case len(f.etcd) == 0 && (given("lease-etcd-key") || f.user != "" || f.pass != "" || f.ca != "" || f.cert != "" || f.private != ""):
		return bad("options of etcd without --lease-etcd", "--lease-etcd https://HOST:2379")
	}
	if (f.cert == "") != (f.private == "") {
		return bad("--lease-etcd-cert and --lease-etcd-private belong together, and one is given", "give the certificate's file and its private key's")
	}
	if err := lease.CheckID(f.id); err != nil {
		return problem.Wrap(problem.Invalid, "invalid_arguments", "read --router-id", err, "--router-id NAME, a short word such as router-a; without it the router's address is its name")
	}
	if u, err := url.Parse(f.of); f.of != "" && (err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https") {
		return bad("--of or --standby-of is no address of a router", "http://HOST:PORT, without user and query")
	}
	if f.leased() {
		t := lease.Timing{TTL: seconds(f.ttl), Renew: seconds(f.renew), Margin: seconds(f.margin)}
		if err := t.Check(); err != nil {
			return problem.Wrap(problem.Invalid, "invalid_arguments", "read the lease's times", err, "--lease-ttl must exceed --lease-renew-interval plus --lease-safety-margin")
		}
	}
	return nil
}

// surface completes how the router meets its clients.
func (f *haFlags) surface(a *app, cfg *router.Config) (err error) {
	cfg.HTTP.KeepAlive, cfg.HTTP.LameDuck, cfg.HTTP.HeaderTimeout = seconds(f.keepAlive), seconds(f.lame), seconds(f.head)
	cfg.HTTP.IdleTimeout, cfg.HTTP.MaxHeaderBytes = seconds(f.idle), f.headBytes
	cfg.HA.StatePath = cmp.Or(f.state, cfg.Fleet.Recovery.StatePath)
	cfg.Access.Tenants, cfg.Continue, cfg.LendFrom, cfg.PrefixAffinity = f.tenants, f.goOn, f.lend, f.affinity
	if f.control != "" {
		if cfg.Access.Control, err = controlFrom(a, f.control); err != nil {
			return problem.Wrap(problem.Invalid, "control_token", "read the control token", err, "--control-token env:NAME or file:PATH names a token, which openssl rand -hex 16 makes")
		}
	}
	return nil
}

// follows refuses a standby that is to follow itself.
func (f *haFlags) follows(listen string) error {
	if f.of == "" || !ownAddress(f.of, listen) {
		return nil
	}
	return problem.New(problem.Invalid, "invalid_arguments", "the standby is to follow its own address "+f.of, "--of http://HOST:PORT, where the other router listens")
}

// ownAddress reports whether a router's URL names what this router itself listens on.
func ownAddress(of, listen string) bool {
	u, err := url.Parse(of)
	host, port, serr := net.SplitHostPort(listen)
	if err != nil || serr != nil || u.Port() != port || port == "0" {
		return false
	}
	address := func(h string) net.IP {
		if h == "localhost" {
			h = "127.0.0.1"
		}
		return net.ParseIP(h)
	}
	a, b := address(u.Hostname()), address(host)
	every := host == "" || b != nil && b.IsUnspecified()
	return u.Hostname() == host || a != nil && (a.Equal(b) || a.IsUnspecified() || every && a.IsLoopback())
}

// apply completes what routers share. The result must be closed after the router has stopped.
func (f *haFlags) apply(a *app, cfg *router.Config) (closer func(), err error) {
	h := &cfg.HA
	h.Resume, h.Renew = f.resume || cfg.Fleet.Recovery.Resume, seconds(f.renew)
	end, err := holdState(h.StatePath)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			end()
		} else if rest := closer; rest != nil {
			closer = func() { rest(); end() }
		}
	}()
	if f.of != "" {
		h.Standby = standby.Options{Primary: f.of, Interval: seconds(f.interval), Misses: f.misses, MaxAge: seconds(f.age), Renew: seconds(f.renew)}
	}
	if !f.leased() {
		return func() {}, nil
	}
	id := f.id
	if id == "" {
		id = cfg.Listen
	}
	holder := lease.NewHolder(id)
	if f.path != "" {
		l, err := lease.NewFile(lease.FileOptions{Path: f.path, Holder: holder, TTL: seconds(f.ttl), Margin: seconds(f.margin), Mended: func(why error) {
			cfg.Logger.Warn("lease file is written anew", "path", f.path, "error", why.Error())
		}})
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "lease", "open the lease", err, "--lease-path names a file in a folder that exists")
		}
		h.Lease = l
		return l.Close, nil
	}
	return f.inEtcd(a, cfg, holder)
}

func (f *haFlags) inEtcd(a *app, cfg *router.Config, holder string) (func(), error) {
	o, err := f.etcdOptions(a, cfg.Fleet.Model, holder)
	if err != nil {
		return nil, err
	}
	o.Mended = func(why error) {
		cfg.Logger.Warn("lease in etcd is written anew", "key", o.Key, "error", why.Error())
	}
	s, err := etcd.Open(o)
	if err != nil {
		return nil, problem.Wrap(problem.Invalid, "lease", "open the lease in etcd", err, "--lease-etcd names endpoints like https://HOST:2379")
	}
	cfg.HA.Lease = s
	// etcd cannot know that a process has died: a guard beside this one tells it.
	if exe, err := os.Executable(); err == nil {
		args := append([]string{"lease-guard", "--holder", holder, "--model", cfg.Fleet.Model}, f.etcdArgs()...)
		g := lease.KeepGuard(func() *exec.Cmd { return exec.Command(exe, args...) }, func(err error) {
			cfg.Logger.Warn("no guard of the lease: until it is started anew, a standby waits for the lease's expiry after a crash", "error", err.Error())
		})
		cfg.HA.GuardEnds = g.Ends
		return func() { g.Close(); _ = s.Close() }, nil
	}
	return func() { _ = s.Close() }, nil
}

func (f *haFlags) etcdOptions(a *app, model, holder string) (etcd.Options, error) {
	o := etcd.Options{Endpoints: f.etcd, Key: f.key, Holder: holder, TTL: seconds(f.ttl), Margin: seconds(f.margin), User: f.user}
	if o.Key == "" {
		o.Key = "/narwhal/" + model + "/lease"
	}
	if f.ca != "" || f.cert != "" || f.private != "" {
		c, err := etcd.TLSFiles{CA: f.ca, Cert: f.cert, Key: f.private}.Config()
		if err != nil {
			return o, problem.Wrap(problem.Invalid, "lease_tls", "read the certificates for etcd ("+strings.Join(slices.DeleteFunc([]string{f.ca, f.cert, f.private}, func(p string) bool { return p == "" }), ", ")+")", err, "--lease-etcd-ca, --lease-etcd-cert and --lease-etcd-private name PEM files")
		}
		o.TLS = c
	}
	if f.pass != "" {
		p, err := referred(a, f.pass)
		if err != nil {
			return o, problem.Wrap(problem.Invalid, "lease_password", "read the etcd password", err, "--lease-etcd-password env:NAME or file:PATH")
		}
		o.Password = p
	}
	return o, nil
}

func (f *haFlags) etcdArgs() (args []string) {
	args = append(args, "--lease-etcd", strings.Join(f.etcd, ","), "--lease-ttl", strconv.FormatFloat(f.ttl, 'g', -1, 64))
	for name, v := range map[string]string{"key": f.key, "user": f.user, "password": f.pass, "ca": f.ca, "cert": f.cert, "private": f.private} {
		if v != "" {
			args = append(args, "--lease-etcd-"+name, v)
		}
	}
	return args
}

// controlFrom reads a control token that the command line refers to.
func controlFrom(a *app, ref string) (fleet.Secret, error) {
	token, err := referred(a, ref)
	if err != nil {
		return token, err
	}
	if _, err := tenant.NewControl(token); err != nil {
		return fleet.Secret{}, fmt.Errorf("%s: %w", ref, err) // a reference, no secret
	}
	return token, nil
}

// referred reads a secret that the command line only refers to.
func referred(a *app, ref string) (fleet.Secret, error) {
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		if v := a.getenv(name); v != "" {
			return fleet.NewSecret(v), nil
		}
		return fleet.Secret{}, errors.New("environment variable " + name + a.missing(name))
	}
	path, ok := strings.CutPrefix(ref, "file:")
	if !ok {
		return fleet.Secret{}, errors.New("a literal secret is refused")
	}
	b, err := bounded(path, 64<<10)
	if err != nil {
		return fleet.Secret{}, err
	}
	v := strings.TrimRight(string(b), "\r\n")
	if v == "" {
		return fleet.Secret{}, errors.New(path + " is empty")
	}
	return fleet.NewSecret(v), nil
}

// guardVerb frees the lease of a router whose process has ended. Routers start it.
func guardVerb(a *app) *cobra.Command {
	var f haFlags
	var holder, model string
	c := &cobra.Command{Use: "lease-guard", Hidden: true, Args: cobra.NoArgs, Short: "Frees the lease of a router that has died",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.etcdOptions(a, model, holder)
			if err != nil {
				return err
			}
			s, err := etcd.Open(o)
			if err != nil {
				return problem.Wrap(problem.Invalid, "lease", "open the lease in etcd", err, "")
			}
			defer s.Close()
			if err := lease.Guard(context.WithoutCancel(cmd.Context()), a.in, s, holder, seconds(f.ttl)); err != nil {
				return problem.Wrap(problem.Failed, "lease_guard", "free the lease", err, "it expires by itself")
			}
			return nil
		}}
	f.add(c, false)
	c.Flags().StringVar(&holder, "holder", "", "holder whose lease to free")
	c.Flags().StringVar(&model, "model", "", "model of the fleet")
	return c
}
