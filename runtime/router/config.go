package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/control"
	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/vllm"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// Config is what a router needs. Fleet holds effective values: no default is filled here
// but where a field says so.
type Config struct {
	Fleet    fleet.Fleet
	Profiles profile.Store
	// Listen is address:port; port 0 takes a free one, which Addr tells.
	Listen string
	// JournalPath is appended to; "" keeps no journal.
	JournalPath string
	Journal     journal.Options // bounds, rotation and loss; its clock is the router's
	Tracer      Tracer          // nil = no traces
	Logger      *slog.Logger    // nil discards
	// LogDropped, if not nil, tells how many lines of the log its stream did not take.
	LogDropped func() int
	// Verify judges a live engine before it may serve, at start and at readmission.
	// Nil compares the profile's generation with the identity digest of the process,
	// which is the binding of a fleet without an engine contract.
	Verify func(ctx context.Context, row profile.Row, id engine.Identity) error
	// Attest asks an engine's sidecar whether it attests this very process and the fleet's
	// contract. A fleet with a complete contract readmits nobody without it.
	Attest func(ctx context.Context, iid string, id engine.Identity) error
	// ReadProfiles reads the profile store again, for its activation while the router serves; nil
	// refuses that. Its result is bounded.
	ReadProfiles func(ctx context.Context) ([]byte, error)
	// MaxConcurrent limits requests in flight; 0 = serving.max_connections.
	MaxConcurrent int
	// EngineKey is sent to engines; empty reads engine.engine_api_key_env if that is named.
	EngineKey fleet.Secret
	Epoch     int64  // of the lease, reported only
	Holder    string // of the lease, reported only
	Release   string // of this binary, for the journal
	HTTP      HTTP
	// LendFrom is the share of slo.ttft_s that a prefill must wait for decode engines to take it
	// where their residents can bear it; 0 = never. Pinned engines and SGLang's take none.
	LendFrom float64
	// PrefixAffinity prices prefills by what engines are believed to hold of the prompt, and runs
	// a request whole on a decode engine where that is cheaper.
	PrefixAffinity bool
	// Continue lets greedy streams whose engine died go on exactly on another one.
	Continue bool
	HA       HA
	Access   Access
}

// HTTP are limits of the surface. Zero values take the defaults that each line names.
type HTTP struct {
	MaxHeaderBytes int           // fleet.DefaultHeaderBytes
	HeaderTimeout  time.Duration // from the first byte of a request to the end of its head; fleet.DefaultHeaderTimeout
	BodyTimeout    time.Duration // for the whole body, within the request's own deadline; 60 s
	BodyPatience   time.Duration // in which a body must bring 1 KiB for each second; 10 s
	IdleTimeout    time.Duration // of a connection between requests; fleet.DefaultIdleTimeout
	// KeepAlive, if not 0, is the silence of an engine after which a stream gets a comment
	// frame. The first one commits the answer's status: what fails later is an error event.
	KeepAlive time.Duration
	// MaxClients bounds the connections that clients keep open, see ClientLimit; 0 = no bound.
	MaxClients int
	// LameDuck is how long a router that ends still accepts connections and says that it is
	// not ready, so that a load balancer sees it before connections are refused.
	LameDuck time.Duration
}

func (h HTTP) filled() HTTP {
	if h.MaxHeaderBytes <= 0 {
		h.MaxHeaderBytes = fleet.DefaultHeaderBytes
	}
	for d, v := range map[*time.Duration]time.Duration{&h.HeaderTimeout: fleet.DefaultHeaderTimeout, &h.BodyTimeout: time.Minute, &h.BodyPatience: 10 * time.Second, &h.IdleTimeout: fleet.DefaultIdleTimeout} {
		if *d <= 0 {
			*d = v
		}
	}
	return h
}

// dialectOf names the dialect of a backend.
func dialectOf(backend string) (engine.Dialect, error) {
	switch backend {
	case "", vllm.Name:
		return vllm.New(), nil
	case sglang.Name:
		return sglang.New(), nil
	}
	return nil, fmt.Errorf("engine.backend is %q, want vllm or sglang", backend)
}

// settings are the values that requests read; nothing writes them after New.
type settings struct {
	Config
	dialect        engine.Dialect
	switcher       func(*node, control.Move) // nil where a role is only a label
	checkPace      func(*node)               // probes a suspect of drift beside the owner
	checkProgress  func(*node)               // looks at an engine that is late, beside the owner
	params         model.Params
	control        control.Params
	limit          int
	key            fleet.Secret
	requestTimeout time.Duration
	prefillTimeout time.Duration
	firstToken     time.Duration
	gap            time.Duration
	health         time.Duration
	count          time.Duration
	interval       time.Duration
	grace          time.Duration
	attempts       int
}

// longest stands in for times that are longer, in seconds: a hundred years.
const longest = 100 * 365 * 86400

func dur(s float64) time.Duration { return time.Duration(min(s, longest) * float64(time.Second)) }

// Check returns everything that keeps a router from starting, joined, without touching
// the network or a file.
func Check(c Config) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	f := c.Fleet
	if f.Model == "" {
		bad("check router: model is empty")
	}
	if len(f.Engines) == 0 {
		bad("check router: no engines")
	}
	if f.SLO.TTFTS <= 0 || f.SLO.TPOTS <= 0 {
		bad("check router: slo.ttft_s and slo.tpot_s must be positive")
	}
	for _, b := range f.OutOfReach() {
		if b.Refused() {
			bad("check router: %s", b)
		}
	}
	if _, err := dialectOf(f.Engine.Backend); err != nil {
		bad("check router: %w", err)
	}
	for name, v := range map[string]float64{"serving.request_timeout_s": f.Serving.RequestTimeoutS, "serving.prefill_timeout_s": f.Serving.PrefillTimeoutS,
		"engine.first_token_timeout_s": f.Engine.FirstTokenTimeoutS, "engine.connect_timeout_s": f.Engine.ConnectTimeoutS, "engine.health_timeout_s": f.Engine.HealthTimeoutS,
		"controller.monitor_interval_s": f.Controller.MonitorIntervalS, "controller.reactive.step_s": f.Controller.Reactive.StepS,
		"controller.reactive.window_s": f.Controller.Reactive.WindowS, "controller.reactive.utilization": f.Controller.Reactive.Utilization,
		"engine.chars_per_token": f.Engine.CharsPerToken} {
		if v <= 0 {
			bad("check router: %s must be positive", name)
		}
	}
	if f.Serving.MaxConnections < 1 && c.MaxConcurrent < 1 {
		bad("check router: serving.max_connections must be positive")
	}
	if f.Serving.MaxRequestBytes < 1 || f.Serving.MaxResponseBytes < 1 {
		bad("check router: serving.max_request_bytes and max_response_bytes must be positive")
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("check router: listen address %q: %w", c.Listen, err)
	}
	if name := f.Engine.EngineAPIKeyEnv; name != "" && c.EngineKey.Empty() {
		if v, set := os.LookupEnv(name); !set {
			bad("check router: environment variable %s (engine.engine_api_key_env) is not set", name)
		} else if v == "" {
			bad("check router: environment variable %s (engine.engine_api_key_env) is empty", name)
		}
	}
	if err := c.HA.check(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, checkEngines(c)...)
	return errors.Join(errs...)
}

func checkEngines(c Config) (errs []error) {
	known, at := map[string]bool{}, map[string]string{}
	for _, e := range c.Fleet.Engines {
		if e.IID == "" || known[e.IID] {
			errs = append(errs, fmt.Errorf("check router: engine id %q is empty or repeated", e.IID))
		}
		known[e.IID] = true
		if says := fleet.AddressFault(e.URL); says != "" {
			errs = append(errs, fmt.Errorf("check router: engine %q: url %s", e.IID, says))
		} else if other, twice := at[fleet.AddressKey(e.URL)]; twice {
			errs = append(errs, fmt.Errorf("check router: engines %q and %q have one url: each needs its own (engine-url-unique)", other, e.IID))
		} else {
			at[fleet.AddressKey(e.URL)] = e.IID
		}
		if says := fleet.AddressFault(e.AttestationURL); c.Verify != nil && e.AttestationURL != "" && says != "" {
			errs = append(errs, fmt.Errorf("check router: engine %q: attestation_url %s", e.IID, says))
		}
		if e.Role != fleet.RolePrefill && e.Role != fleet.RoleDecode {
			errs = append(errs, fmt.Errorf("check router: engine %q: role %q, want prefill or decode", e.IID, e.Role))
		}
		row, ok := c.Profiles.Row(e.IID)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("check router: engine %q has no profile", e.IID))
		case row.GenerationDigest == nil && c.Verify == nil:
			errs = append(errs, fmt.Errorf("check router: the profile of engine %q is bound to no generation", e.IID))
		case !measured(row):
			errs = append(errs, fmt.Errorf("check router: the profile of engine %q holds no measurement", e.IID))
		}
	}
	for _, r := range c.Profiles.Rows {
		if !known[r.IID] {
			errs = append(errs, fmt.Errorf("check router: profile of unknown engine %q", r.IID))
		}
	}
	return errs
}

// leastProbes are connections for probes of one engine: one that hangs must not hold up the rest.
const leastProbes = 4

// probes is how many connections the probes of one engine may have at once: its share of
// engine.control_connections.
func (s *settings) probes() int {
	n := max(1, len(s.Fleet.Engines))
	return max(leastProbes, (s.Fleet.Engine.ControlConnections+n-1)/n)
}

// wholeWave reports whether the engines of the fleet restart only together.
func (s *settings) wholeWave() bool { return s.Fleet.Recovery.EngineRestartPolicy == "whole_wave" }

func derive(c Config) settings {
	c.Fleet = c.Fleet.Reachable()
	c.MaxConcurrent = min(c.MaxConcurrent, fleet.MostNumber)
	f := c.Fleet
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.HTTP = c.HTTP.filled()
	d, _ := dialectOf(f.Engine.Backend) // Check has judged it
	s := settings{Config: c, dialect: d, limit: c.MaxConcurrent, key: c.EngineKey,
		params: model.Params{TTFT: f.SLO.TTFTS, TPOT: f.SLO.TPOTS, Margin: f.Serving.AdmissionMargin, Open: f.Serving.Admission == "open", FixedRoles: d.Concurrent(),
			Lend: c.LendFrom},
		attempts:       max(1, f.Serving.MaxAttempts),
		requestTimeout: dur(f.Serving.RequestTimeoutS), prefillTimeout: dur(f.Serving.PrefillTimeoutS),
		firstToken: dur(f.Engine.FirstTokenTimeoutS), gap: dur(f.Engine.DecodeReadTimeoutS), health: dur(f.Engine.HealthTimeoutS),
		count: dur(f.Engine.TokenizeTimeoutS), interval: dur(f.Controller.MonitorIntervalS), grace: dur(f.Serving.GracefulTimeoutS)}
	if s.limit < 1 {
		s.limit = f.Serving.MaxConnections
	}
	if s.key.Empty() && f.Engine.EngineAPIKeyEnv != "" {
		s.key = fleet.NewSecret(os.Getenv(f.Engine.EngineAPIKeyEnv))
	}
	t, r := f.Controller.Thresholds, f.Controller.Reactive
	s.control = control.Params{TTFT: f.SLO.TTFTS, TPOT: f.SLO.TPOTS,
		MinPrefill: max(1, f.Controller.MinPrefill), MinDecode: max(1, f.Controller.MinDecode), Advisory: f.Controller.Advisory,
		Expand: t.Expand, Shrink: t.Shrink, Cooldown: t.CooldownS, Dwell: t.DwellS, Sustained: t.SustainedIntervals, ResidentGuard: t.FlipResidentGuard,
		Window: r.WindowS, Step: r.StepS, Confirmations: r.Confirmations, Utilization: r.Utilization, MinArrivals: r.MinArrivals,
		DemandFloor: r.DemandFloor, Margin: r.MovementMargin, EvidenceSpan: r.EvidenceSpanS, Lends: c.LendFrom > 0 && !d.Concurrent()}
	return s
}

func measured(row profile.Row) bool {
	c := row.Curve()
	return c.Measured()
}
