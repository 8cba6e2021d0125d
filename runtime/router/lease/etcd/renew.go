package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Renew implements lease.Lease. What fails for another reason than a lost lease is tried
// again until local validity would be over, since etcd elects a new leader meanwhile.
func (s *Store) Renew(ctx context.Context, t lease.Term) (lease.Term, error) {
	if t.Holder != s.o.Holder {
		return lease.Term{}, fmt.Errorf("renew lease: %w", lease.ErrLost)
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.TTL-s.o.Margin)
	defer cancel()
	for {
		// A third of the time leaves room for other endpoints.
		attempt, cancel := context.WithTimeout(ctx, (s.o.TTL-s.o.Margin)/3)
		next, err := s.extend(attempt, t)
		cancel()
		var bad *lease.MalformedError
		if err == nil || errors.Is(err, lease.ErrLost) || errors.As(err, &bad) || ctx.Err() != nil {
			return next, err
		}
		pause := time.NewTimer(retryPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return lease.Term{}, err
		case <-pause.C:
		}
	}
}

// extend renews once.
func (s *Store) extend(ctx context.Context, t lease.Term) (lease.Term, error) {
	before := time.Now()
	r, err := s.fetch(ctx)
	if err != nil {
		return lease.Term{}, fmt.Errorf("renew lease: %w", err)
	}
	if !r.doc.Is(t) {
		return lease.Term{}, fmt.Errorf("renew lease: %w", lease.ErrLost)
	}
	if _, err := s.client.KeepAliveOnce(ctx, r.id); err != nil {
		if notFound(err) {
			err = lease.ErrLost
		}
		return lease.Term{}, fmt.Errorf("renew lease: %w", err)
	}
	res, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.o.Key), "=", r.revision)).
		Then(clientv3.OpPut(s.o.Key, s.document(t.Epoch, before), clientv3.WithLease(r.id))).Commit()
	switch {
	case notFound(err) || err == nil && !res.Succeeded:
		return lease.Term{}, fmt.Errorf("renew lease: %w", lease.ErrLost)
	case err != nil:
		return lease.Term{}, fmt.Errorf("renew lease: %w", err)
	}
	return s.term(t.Epoch, before), nil
}

func notFound(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }
