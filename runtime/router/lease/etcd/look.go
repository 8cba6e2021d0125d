package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Release implements lease.Lease: the end of the etcd lease takes the key along, the epoch stays.
func (s *Store) Release(ctx context.Context, t lease.Term) error {
	r, err := s.fetch(ctx)
	if err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	id := r.id
	if !r.doc.Is(t) {
		id = s.known.mine(t).id // of a key that was damaged or deleted
	}
	if id == 0 {
		return nil
	}
	if _, err := s.client.Revoke(ctx, id); err != nil && !notFound(err) {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

// Look implements lease.Lease. ExpiresAt is what etcd says to remain, counted by the
// caller's clock and up to a second late: it is information, the key's existence decides.
func (s *Store) Look(ctx context.Context) (lease.Document, error) {
	r, err := s.fetch(ctx)
	if err != nil {
		return lease.Document{}, fmt.Errorf("look at lease: %w", err)
	}
	if r.spoilt != nil {
		return lease.Document{}, fmt.Errorf("look at lease: %w", r.spoilt)
	}
	if !r.doc.Stored() {
		return lease.Document{}, nil
	}
	left, err := s.client.TimeToLive(ctx, r.id)
	switch {
	case notFound(err) || err == nil && left.TTL < 0:
		return lease.Document{}, nil
	case err != nil:
		return lease.Document{}, fmt.Errorf("look at lease: %w", err)
	}
	// etcd tells whole seconds, rounded down.
	until := time.Now().Add(time.Duration(left.TTL+1) * time.Second)
	r.doc.ExpiresAt = float64(until.UnixMilli()) / 1e3
	return r.doc, nil
}

// held names the holder; its expiry by the caller's clock where etcd tells it.
func (s *Store) held(ctx context.Context, r record) error {
	if d, err := s.Look(ctx); err == nil && d.Epoch == r.doc.Epoch {
		return d.Held()
	}
	return r.doc.Held()
}
