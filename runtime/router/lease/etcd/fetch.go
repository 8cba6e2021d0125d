package etcd

import (
	"context"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// stored is a key as etcd has it.
type stored struct {
	*mvccpb.KeyValue      // nil = absent
	long             bool // its value is too long to be read
}

// fetch reads both keys at one revision. A value that is too long is a damaged one.
func (s *Store) fetch(ctx context.Context) (record, error) {
	doc, epoch, err := s.both(ctx)
	if err != nil {
		return record{}, err
	}
	var r record
	if epoch.KeyValue != nil {
		r.epochRev = epoch.ModRevision
		if r.epoch, err = strconv.ParseInt(string(epoch.Value), 10, 64); epoch.long || err != nil || r.epoch < 1 {
			r.epoch, r.unsaid = 0, true
		}
	}
	if doc.KeyValue != nil {
		r.revision, r.id = doc.ModRevision, clientv3.LeaseID(doc.Lease)
		r.doc, r.spoilt = decode(doc)
	}
	s.known.note(&r)
	if r.unsaid && r.epoch == 0 {
		return record{}, fmt.Errorf("%w: %s", &lease.MalformedError{Reason: "the stored epoch is no positive number"},
			s.mend("put "+s.epochKey()+" N, with an N that no router's log exceeds as epoch"))
	}
	return r, nil
}

func decode(kv stored) (lease.Document, error) {
	if kv.long {
		return lease.Document{}, &lease.MalformedError{Reason: fmt.Sprintf("the value has about %d bytes or more", maxMessage)}
	}
	d, err := lease.Decode(kv.Value)
	if err == nil && kv.Lease == 0 {
		return lease.Document{}, &lease.MalformedError{Reason: "stored without a time to live"}
	}
	return d, err
}

// both reads the two keys in one answer, or one by one at one revision where that is too long.
func (s *Store) both(ctx context.Context) (doc, epoch stored, err error) {
	res, err := s.client.Txn(ctx).Then(clientv3.OpGet(s.o.Key), clientv3.OpGet(s.epochKey())).Commit()
	if err == nil {
		return stored{KeyValue: only(res.Responses[0].GetResponseRange().GetKvs())}, stored{KeyValue: only(res.Responses[1].GetResponseRange().GetKvs())}, nil
	}
	if !tooLong(err) {
		return stored{}, stored{}, err
	}
	heads, err := s.client.Get(ctx, s.o.Key, clientv3.WithKeysOnly())
	if err != nil {
		return stored{}, stored{}, err
	}
	if doc, err = s.one(ctx, s.o.Key, heads.Header.Revision); err != nil {
		return stored{}, stored{}, err
	}
	epoch, err = s.one(ctx, s.epochKey(), heads.Header.Revision)
	return doc, epoch, err
}

// one reads a key at a revision, without a value that is too long.
func (s *Store) one(ctx context.Context, key string, revision int64) (stored, error) {
	at := clientv3.WithRev(revision)
	res, err := s.client.Get(ctx, key, at)
	long := tooLong(err)
	if long {
		res, err = s.client.Get(ctx, key, at, clientv3.WithKeysOnly())
	}
	if err != nil {
		return stored{}, err
	}
	return stored{KeyValue: only(res.Kvs), long: long}, nil
}

func only(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

// tooLong reports an answer of more than maxMessage. What etcd itself refuses for want of something
// has its own error type, which has no status.
func tooLong(err error) bool { return status.Code(err) == codes.ResourceExhausted }
