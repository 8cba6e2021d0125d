package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// known is what a Store remembers when somebody deletes or overwrites the keys.
type known struct {
	mu    sync.Mutex
	epoch int64            // the highest that was read
	last  lease.Document   // the last whole document
	id    clientv3.LeaseID // of last
	own   own
	gap   gap
}

// own is this Store's own last claim.
type own struct {
	epoch    int64
	id       clientv3.LeaseID
	epochRev int64 // of the epoch's key: any other claim changes it
}

// gap is since when one damaged value has been seen.
type gap struct {
	revision int64
	since    time.Time
}

// note takes in what was read, and lets r know the highest epoch.
func (k *known) note(r *record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.doc.Stored() {
		k.last, k.id = r.doc, r.id
	}
	k.epoch = max(k.epoch, r.epoch, r.doc.Epoch)
	r.epoch = k.epoch
	if r.spoilt != nil && k.gap.revision != r.revision {
		k.gap = gap{r.revision, time.Now()}
	}
}

func (k *known) claimed(o own) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own, k.epoch = o, max(k.epoch, o.epoch)
}

// mine is the claim of a term, zero when this Store did not make it.
func (k *known) mine(t lease.Term) own {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.own.epoch != t.Epoch {
		return own{}
	}
	return k.own
}

// of is the last document, with its etcd lease.
func (k *known) of() (lease.Document, clientv3.LeaseID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last, k.id
}

// until tells when the damaged value that was read last will have been the same for d.
func (k *known) until(d time.Duration) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gap.since.Add(d)
}

// waits is nil when nobody can hold the lease although the key does not name a holder.
//
// A damaged value is claimed once it was the same for the whole time of a lease: a holder that is
// still valid writes its own anew at a renewal, and no validity lasts for longer than that after the
// last one. A key that is gone while the etcd lease of its last holder lives was deleted by
// somebody else: the holder writes it anew, or that lease runs out.
func (s *Store) waits(ctx context.Context, r record) error {
	last, id := s.known.of()
	if r.revision == 0 {
		if id == 0 || last.Epoch < r.epoch {
			return nil // it was free, or is not known
		}
		left, err := s.client.TimeToLive(ctx, id)
		if notFound(err) || err == nil && left.TTL < 0 {
			return nil
		}
		if err != nil {
			return err
		}
		return &lease.HeldError{Holder: last.Holder, Epoch: last.Epoch, ExpiresAt: time.Now().Add(time.Duration(left.TTL+1) * time.Second)}
	}
	if err := s.foreign(r); err != nil {
		return err
	}
	if until := s.known.until(s.o.TTL); time.Now().Before(until) {
		return &lease.HeldError{Holder: last.Holder, Epoch: r.epoch, ExpiresAt: until, Damaged: r.spoilt}
	}
	return nil
}

// foreign is the error of a key that nobody writes over: what it holds is a lease of another
// version, or nobody knows that it ever was a lease.
func (s *Store) foreign(r record) error {
	var damaged *lease.MalformedError
	if errors.As(r.spoilt, &damaged) && !damaged.Foreign && r.epoch > 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", r.spoilt, s.mend("del "+s.o.Key))
}

// mend is the command that an operator gives once no router serves.
func (s *Store) mend(command string) string {
	return "once no router serves: etcdctl --endpoints " + strings.Join(s.o.Endpoints, ",") + " " + command
}

// anew writes the key of a valid term that was damaged or deleted, if nobody has claimed since.
func (s *Store) anew(ctx context.Context, t lease.Term, r record) (lease.Term, error) {
	before, mine := time.Now(), s.known.mine(t)
	if r.doc.Stored() || mine.id == 0 || !t.Valid(before) {
		return lease.Term{}, lease.ErrLost
	}
	if r.revision != 0 {
		if err := s.foreign(r); err != nil {
			return lease.Term{}, err
		}
	}
	if _, err := s.client.KeepAliveOnce(ctx, mine.id); err != nil {
		if notFound(err) {
			err = lease.ErrLost
		}
		return lease.Term{}, err
	}
	res, err := s.client.Txn(ctx).If(s.still(r), clientv3.Compare(clientv3.ModRevision(s.epochKey()), "=", mine.epochRev)).
		Then(clientv3.OpPut(s.o.Key, s.document(t.Epoch, before), clientv3.WithLease(mine.id))).Commit()
	switch {
	case notFound(err) || err == nil && !res.Succeeded:
		return lease.Term{}, lease.ErrLost
	case err != nil:
		return lease.Term{}, err
	}
	if s.o.Mended != nil {
		why := r.spoilt
		if why == nil {
			why = errors.New("the key was deleted")
		}
		s.o.Mended(why)
	}
	return s.term(t.Epoch, before), nil
}
