package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Renew implements lease.Lease. A third of the local validity leaves room for other endpoints and
// for the Keeper, which tries again what fails for another reason than a lost lease: etcd may
// elect a new leader meanwhile.
func (s *Store) Renew(ctx context.Context, t lease.Term) (lease.Term, error) {
	if t.Holder != s.o.Holder {
		return lease.Term{}, fmt.Errorf("renew lease: %w", lease.ErrLost)
	}
	ctx, cancel := context.WithTimeout(ctx, (s.o.TTL-s.o.Margin)/3)
	defer cancel()
	return s.extend(ctx, t)
}

// extend renews once.
func (s *Store) extend(ctx context.Context, t lease.Term) (lease.Term, error) {
	before := time.Now()
	r, err := s.fetch(ctx)
	if err != nil {
		return lease.Term{}, fmt.Errorf("renew lease: %w", err)
	}
	if !r.doc.Is(t) {
		if t, err = s.anew(ctx, t, r); err != nil {
			return lease.Term{}, fmt.Errorf("renew lease: %w", err)
		}
		return t, nil
	}
	if _, err := s.client.KeepAliveOnce(ctx, r.id); err != nil {
		if notFound(err) {
			err = lease.ErrLost
		}
		return lease.Term{}, fmt.Errorf("renew lease: %w", err)
	}
	puts := []clientv3.Op{clientv3.OpPut(s.o.Key, s.document(t.Epoch, before), clientv3.WithLease(r.id))}
	if r.unsaid || r.epochRev == 0 {
		puts = append(puts, clientv3.OpPut(s.epochKey(), strconv.FormatInt(t.Epoch, 10)))
	}
	res, err := s.client.Txn(ctx).If(s.still(r)).Then(puts...).Commit()
	switch {
	case notFound(err) || err == nil && !res.Succeeded:
		return lease.Term{}, fmt.Errorf("renew lease: %w", lease.ErrLost)
	case err != nil:
		return lease.Term{}, fmt.Errorf("renew lease: %w", err)
	}
	if mine := s.known.mine(t); mine.id != 0 && len(puts) > 1 {
		s.known.claimed(own{t.Epoch, mine.id, res.Header.Revision})
	}
	return s.term(t.Epoch, before), nil
}

func notFound(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }
