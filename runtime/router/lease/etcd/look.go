package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Release implements lease.Lease: the key goes, the epoch stays.
func (s *Store) Release(ctx context.Context, t lease.Term) error {
	for {
		r, err := s.fetch(ctx)
		if err != nil {
			return fmt.Errorf("release lease: %w", err)
		}
		if !r.doc.Is(t) {
			return nil
		}
		res, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.o.Key), "=", r.revision)).
			Then(clientv3.OpDelete(s.o.Key)).Commit()
		if err != nil {
			return fmt.Errorf("release lease: %w", err)
		}
		if res.Succeeded {
			s.revoke(ctx, r.id)
			return nil
		}
	}
}

// Look implements lease.Lease. ExpiresAt is what etcd says to remain, counted by the
// caller's clock and up to a second late: it is information, the key's existence decides.
func (s *Store) Look(ctx context.Context) (lease.Document, error) {
	r, err := s.fetch(ctx)
	if err != nil {
		return lease.Document{}, fmt.Errorf("look at lease: %w", err)
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
