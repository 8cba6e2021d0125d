package router

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// damaged is a lease whose stored value names nobody until a moment.
type damaged struct {
	lease.Lease
	until time.Time
}

func (d damaged) Claim(ctx context.Context) (lease.Term, error) {
	if time.Now().Before(d.until) {
		return lease.Term{}, &lease.HeldError{Epoch: 3, ExpiresAt: d.until, Damaged: errors.New("no JSON text")}
	}
	return d.Lease.Claim(ctx)
}

// A router that finds a damaged lease says so instead of naming a holder, and serves by itself.
func TestDamagedLeaseIsWaitedFor(t *testing.T) {
	b := startBed(t, 1, 1, quick(), shared(t, t.TempDir(), "a"), func(c *Config) {
		c.HA.Lease, c.HA.Renew = damaged{c.HA.Lease, time.Now().Add(500 * time.Millisecond)}, 30*time.Millisecond
	})
	why, held := b.router.Idle()
	if why != standby.BlockDamaged || held == nil || !strings.Contains(held.Error(), "lease is damaged (no JSON text), and its last known epoch is 3") {
		t.Fatalf("%q, %v", why, held)
	}
	eventually(t, "the router serves", func() bool { return b.get("/ready", nil) == 200 })
	if late := time.Since(b.router.Reclaims(held)); late < 0 {
		t.Errorf("claimed %v before the time that it told", -late)
	}
}
