package standby

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Defaults of the reference.
const (
	DefaultInterval = 250 * time.Millisecond
	DefaultMisses   = 4
	DefaultMaxAge   = 30 * time.Second
)

// Limits of this package.
const (
	maxReady     = 64 << 10             // bytes of a /ready body
	firstRetry   = 2 * time.Millisecond // of a claim after the witness ended; doubles up to the interval
	releaseLimit = 2 * time.Second      // for giving a lease back after a failed takeover
	longestPause = 5 * time.Second      // between takeovers that failed after the claim
)

// Unwanted is for how many renewals nobody must have had the lease before a router takes it
// that does not know all that the last holder knew. Standbys that do come first.
const Unwanted = 10

// Failover block texts.
const (
	BlockHeld     = "lease held by another router"
	BlockDamaged  = "lease is damaged and may still be held"
	BlockNoFresh  = "no fresh handoff"
	BlockNoDoc    = "no handoff after lease claim"
	BlockApplying = "lease expired while applying handoff"
	BlockVerify   = "lease expired during identity validation"
	BlockBroken   = "identity validation interrupted"
	BlockRenewal  = "lease renewal failed" // for the router that loses its lease later
)

// BlockedBy is the text for a claim that is refused.
func BlockedBy(held *lease.HeldError) string {
	if held.Damaged != nil {
		return BlockDamaged
	}
	return BlockHeld
}

// BlockUnavailable is the text for a lease store that fails.
func BlockUnavailable(err error) string { return "lease unavailable: " + err.Error() }

// BlockEpoch is the text for a claim that another router's claim came before.
func BlockEpoch(handoff, claimed int64) string {
	return fmt.Sprintf("handoff epoch %d cannot precede claimed epoch %d", handoff, claimed)
}

// BlockUnfit is the text for a primary whose handoff this router could not go on with.
func BlockUnfit(err error) string { return "the primary is of another fleet: " + err.Error() }

// AgeHeader tells, on a handoff document that a standby passes on, how many seconds ago the router
// that wrote it was well; without it the document is of the router that answers.
const AgeHeader = "Narwhal-Handoff-Age"

// KeptHeader goes with each request of a standby: its name, and the epoch and
// the time of the document that it would go on with, zeros for none.
const KeptHeader = "Narwhal-Handoff-Kept"

// Local is the router that waits. All calls come from the goroutine of Run, one at a time.
type Local interface {
	// Fits says why Apply would refuse a document as of another fleet, nil if it would not.
	Fits(Document) error
	// Apply restores a document. On error nothing has changed, and the error's text is the
	// reason that operators see.
	Apply(context.Context, Document) error
	// Verify checks identities, or generations without a contract. Its context ends with
	// the lease. After an error Apply and Verify may be called again.
	Verify(context.Context) error
	// Open begins to serve under the lease and owns its Keeper from then on.
	Open(*lease.Keeper)
	// Block shows why this router does not take over; "" = nothing stands in its way.
	Block(reason string)
	// Store puts a document into the router's own state file, and tells of failures itself. Its
	// writer was well at the given time: who follows this router is given both.
	Store(d Document, at time.Time) error
}

// Options configure a Standby.
type Options struct {
	Primary  string        // base URL, http or https, without user
	Interval time.Duration // between probes; one request may take 0.8 of it
	Misses   int           // in a row that start a takeover
	MaxAge   time.Duration // of the document at a takeover, since it was received
	Renew    time.Duration // between renewals of the claimed lease
	Fails    func(error)   // told of a renewal of the claimed lease that fails; nil = nobody
	TLS      *tls.Config   // for https; nil = the system's roots
	Logger   *slog.Logger  // nil discards
}

// check refuses options and returns the base URL and the address to connect to.
func (o *Options) check() (base, address string, err error) {
	if o.Interval <= 0 || o.Misses < 1 || o.MaxAge <= 0 || o.Renew <= 0 {
		return "", "", errors.New("make standby: interval, max age and renew interval must be positive, misses at least 1")
	}
	u, err := url.Parse(o.Primary)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", "", errors.New("make standby: the primary is no http or https address without user and query")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if o.Fails == nil {
		o.Fails = func(error) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return strings.TrimRight(u.String(), "/"), net.JoinHostPort(u.Hostname(), port), nil
}
