package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// Store is a lease.Lease in etcd.
type Store struct {
	o      Options
	client *clientv3.Client
	known  known
}

var _ lease.Lease = (*Store)(nil)

// Open checks the options and makes the client. With a password it asks etcd for a token;
// without one it connects only when it is used. Close the Store.
func Open(o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("open etcd lease: %w", err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: o.Endpoints, TLS: o.TLS, Username: o.User, Password: o.Password.Reveal(), DialTimeout: dialLimit,
		MaxCallSendMsgSize: maxMessage, MaxCallRecvMsgSize: maxMessage, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("open etcd lease: %w", err)
	}
	return &Store{o: o, client: c}, nil
}

// Close ends the client. What is stored stays.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("close etcd lease: %w", err)
	}
	return nil
}

// record is what etcd has.
type record struct {
	doc      lease.Document // zero = no key, or a damaged one
	spoilt   error          // of a key that is no lease
	revision int64          // of the key; 0 = no key
	id       clientv3.LeaseID
	epoch    int64 // highest ever given, as far as anybody knows
	epochRev int64
	unsaid   bool // the key of the epoch is damaged
}

func (s *Store) epochKey() string { return s.o.Key + "/epoch" }

// document is the value of the key for a term that starts or is extended at now.
func (s *Store) document(epoch int64, now time.Time) string {
	return string(lease.Make(s.o.Holder, epoch, now, s.o.TTL).Encode())
}

func (s *Store) term(epoch int64, before time.Time) lease.Term {
	return lease.Term{Epoch: epoch, Holder: s.o.Holder, ValidUntil: before.Add(s.o.TTL - s.o.Margin)}
}

// Claim implements lease.Lease.
func (s *Store) Claim(ctx context.Context) (lease.Term, error) {
	for {
		r, err := s.fetch(ctx)
		if err != nil {
			return lease.Term{}, fmt.Errorf("claim lease: %w", err)
		}
		if r.doc.Stored() {
			if r.doc.Holder != s.o.Holder {
				return lease.Term{}, s.held(ctx, r)
			}
			t, err := s.extend(ctx, lease.Term{Epoch: r.doc.Epoch, Holder: s.o.Holder})
			if !errors.Is(err, lease.ErrLost) {
				return t, err
			}
			continue // it expired in between
		}
		if err := s.waits(ctx, r); err != nil {
			var held *lease.HeldError
			if errors.As(err, &held) {
				return lease.Term{}, err
			}
			return lease.Term{}, fmt.Errorf("claim lease: %w", err)
		}
		t, won, err := s.take(ctx, r)
		if err != nil {
			return lease.Term{}, fmt.Errorf("claim lease: %w", err)
		}
		if won {
			return t, nil
		}
	}
}

// take claims the epoch after r's while the key is as r has it, absent or damaged; false when
// another was faster.
func (s *Store) take(ctx context.Context, r record) (lease.Term, bool, error) {
	before := time.Now()
	seconds := int64((s.o.TTL + time.Second - 1) / time.Second)
	grant, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return lease.Term{}, false, err
	}
	if grant.TTL < seconds {
		s.revoke(ctx, grant.ID)
		return lease.Term{}, false, fmt.Errorf("etcd grants %d s instead of %d", grant.TTL, seconds)
	}
	epoch := r.epoch + 1
	if lease.Exhausted(epoch) {
		s.revoke(ctx, grant.ID)
		return lease.Term{}, false, lease.ErrNoEpoch
	}
	res, err := s.client.Txn(ctx).
		If(s.still(r), clientv3.Compare(clientv3.ModRevision(s.epochKey()), "=", r.epochRev)).
		Then(clientv3.OpPut(s.o.Key, s.document(epoch, before), clientv3.WithLease(grant.ID)), clientv3.OpPut(s.epochKey(), strconv.FormatInt(epoch, 10))).
		Commit()
	if err != nil || !res.Succeeded {
		s.revoke(ctx, grant.ID) // an unanswered claim may have succeeded
		return lease.Term{}, false, err
	}
	s.known.claimed(own{epoch, grant.ID, res.Header.Revision})
	return s.term(epoch, before), true, nil
}

// still holds while the key is as r has it.
func (s *Store) still(r record) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.o.Key), "=", r.revision)
}

// revoke gives an etcd lease back, and with it the key. Expiry does the same later.
func (s *Store) revoke(ctx context.Context, id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	_, _ = s.client.Revoke(ctx, id)
}
