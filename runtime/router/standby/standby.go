package standby

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/narwhal-fleet/narwhal/internal/pause"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Standby follows one primary. Run it once.
type Standby struct {
	o       Options
	lease   lease.Lease
	local   Local
	base    string
	limit   time.Duration // of one request
	witness *witness
	client  *http.Client

	name     string // in KeptHeader: one for each process that follows
	misses   int
	doc      *Document // the last good one; nil = none, or it was refused
	received time.Time // when doc's writer was well
	passed   bool      // doc came from a standby between
	past     bool      // another router's epoch came after doc's
	free     time.Time // since when nobody has had the lease, as this router saw it; zero = somebody has
	told     string    // holder that was told to have overtaken the primary
	follows  int64     // the epoch after which ours comes
	sign     time.Time // of the first miss or end in a row
	blocked  string
	pause    time.Duration // after a takeover that failed after its claim
	resume   time.Time     // no takeover before
}

// New checks the options. l is this router's own access to the lease.
func New(o Options, l lease.Lease, local Local) (*Standby, error) {
	return build(o, l, local, (&net.Dialer{}).DialContext)
}

func build(o Options, l lease.Lease, local Local, dial dialer) (*Standby, error) {
	base, address, err := o.check()
	if err != nil {
		return nil, err
	}
	s := &Standby{o: o, lease: l, local: local, base: base, limit: o.Interval * 8 / 10, name: rand.Text()}
	s.witness = newWitness(dial, address, s.limit)
	s.client = &http.Client{
		// No proxy: what answers must be the primary itself.
		Transport:     &http.Transport{DialContext: s.witness.connect, TLSClientConfig: o.TLS, DisableCompression: true, MaxConnsPerHost: 1, MaxResponseHeaderBytes: maxReady},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// Run follows the primary until this router has opened (nil), ctx ends (its error), or the
// primary speaks another handoff version (*VersionError; it is the block text too).
func (s *Standby) Run(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.witness.run(watching) })
	defer func() {
		cancel()
		wg.Wait()
		s.client.CloseIdleConnections()
	}()
	tick := time.NewTicker(s.o.Interval)
	defer tick.Stop()
	for {
		opened, err := s.step(ctx)
		if opened || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-s.witness.gone:
			if opened, err := s.pounce(ctx); opened || err != nil {
				return err
			}
		}
	}
}

// step probes once and takes over when enough speaks for it.
func (s *Standby) step(ctx context.Context) (opened bool, err error) {
	h, err := s.probe(ctx)
	var version *VersionError
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &version):
		s.block(version.Error())
		return false, fmt.Errorf("follow primary: %w", version)
	case err == nil:
		s.good(h)
		return false, nil
	}
	s.missed(1, err.Error())
	// A standby between has the first claim.
	if s.misses < s.o.Misses && (s.passed || !s.over(ctx)) {
		return false, nil
	}
	opened, _, err = s.takeover(ctx)
	return opened, err
}

// pounce is what the end of the witness starts: claims in quick succession, for as long as
// one interval.
func (s *Standby) pounce(ctx context.Context) (opened bool, err error) {
	s.missed(s.o.Misses, "the connection ended and a new one is refused")
	for wait := firstRetry; ; wait *= 2 {
		opened, held, err := s.takeover(ctx)
		if opened || err != nil || !held || wait > s.o.Interval {
			return opened, err
		}
		if !pause.For(ctx, wait) {
			return false, ctx.Err()
		}
	}
}

func (s *Standby) good(h handed) {
	if s.misses > 0 {
		s.o.Logger.Info("primary is back", "misses", s.misses)
	}
	s.misses, s.pause, s.resume = 0, 0, time.Time{}
	s.follows, s.past, s.free = h.Epoch, false, time.Time{}
	if err := s.local.Fits(h.Document); err != nil {
		s.unfit(err)
		return
	}
	s.keep(h)
	s.block("")
}

// unfit shows, before it matters, that this router could not go on for the one it follows. It then
// claims nothing: another standby may.
func (s *Standby) unfit(err error) {
	s.doc = nil
	if reason := BlockUnfit(err); reason != s.blocked {
		s.o.Logger.Warn("standby cannot take over for the router that it follows: give both the same fleet file", "follows", s.o.Primary, "why", err.Error())
		s.block(reason)
	}
}

// keep makes h the document of a takeover.
func (s *Standby) keep(h handed) {
	s.doc, s.received, s.passed = &h.Document, h.at, h.passed
	_ = s.local.Store(h.Document, h.at)
}

func (s *Standby) missed(n int, why string) {
	if s.misses == 0 {
		s.sign = time.Now()
		s.o.Logger.Warn("primary missed", "why", why)
	}
	s.misses += n
}

func (s *Standby) block(reason string) {
	if reason != s.blocked {
		s.blocked = reason
		s.local.Block(reason)
	}
}
