package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// Defaults of the reference.
const (
	DefaultTTL    = fleet.DefaultLeaseTTL
	DefaultRenew  = fleet.DefaultLeaseRenew
	DefaultMargin = fleet.DefaultLeaseMargin
)

// Lease is one router's access to the lease of its fleet. All methods may be called at
// once from several goroutines.
type Lease interface {
	// Claim takes the lease: a new epoch when it is free, the same epoch when this holder
	// has it unexpired, *HeldError while another does. After any other error the lease may
	// or may not be stored, and the caller does not have it.
	Claim(ctx context.Context) (Term, error)
	// Renew extends a term. ErrLost when the stored epoch or holder differ or it expired.
	Renew(ctx context.Context, t Term) (Term, error)
	// Release ends a term now. The caller has stopped serving. Nothing happens when the
	// term is no longer stored.
	Release(ctx context.Context, t Term) error
	// Look returns what is stored, the zero Document when nothing is. It takes no lock.
	Look(ctx context.Context) (Document, error)
}

// Term is one holder's time as the holder.
type Term struct {
	Epoch  int64
	Holder string
	// ValidUntil ends local validity. It carries both clocks: use Valid.
	ValidUntil time.Time
}

// Valid reports whether t lasts at now by both clocks.
func (t Term) Valid(now time.Time) bool {
	return now.Before(t.ValidUntil) && now.UnixNano() < t.ValidUntil.UnixNano()
}

// ErrLost means that a term is over: it expired, or the lease has another epoch or holder.
var ErrLost = errors.New("lease is lost")

// HeldError says who holds the lease.
type HeldError struct {
	Holder    string
	Epoch     int64
	ExpiresAt time.Time // wall
	// Damaged, if not nil, is why what is stored names nobody: Holder is the last that is known, ""
	// for none, and the lease is free when what is stored was the same until ExpiresAt.
	Damaged error
}

func (e *HeldError) Error() string {
	if e.Damaged != nil {
		last := "its last known epoch is %d"
		if e.Holder != "" {
			last = "it was last held by " + strings.ReplaceAll(e.Holder, "%", "%%") + " in epoch %d"
		}
		return fmt.Sprintf("lease is damaged (%v), and "+last+": it is free if nobody writes it until %s", e.Damaged, e.Epoch, e.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	return fmt.Sprintf("lease is held by %s in epoch %d until %s", e.Holder, e.Epoch, e.ExpiresAt.UTC().Format(time.RFC3339Nano))
}

// NewHolder makes the name of one process of a router: "<router id>:<32 hex digits>".
func NewHolder(routerID string) string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return routerID + ":" + hex.EncodeToString(b[:])
}

// Timing are the three times of a lease.
type Timing struct {
	TTL    time.Duration // from a claim or renewal to the stored expiry
	Renew  time.Duration // between renewals
	Margin time.Duration // by which local validity ends before the stored expiry
}

// Check refuses times that leave no room for one renewal.
func (t Timing) Check() error {
	if t.Renew <= 0 || t.Margin < 0 {
		return errors.New("check lease: renew interval must be positive and safety margin not negative")
	}
	if t.TTL <= t.Renew+t.Margin {
		return fmt.Errorf("check lease: ttl %v must exceed renew interval %v plus safety margin %v", t.TTL, t.Renew, t.Margin)
	}
	return nil
}
