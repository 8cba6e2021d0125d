package etcd

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

func (s *Store) put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := s.client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) drop(t *testing.T, key string, opts ...clientv3.OpOption) {
	t.Helper()
	if _, err := s.client.Delete(t.Context(), key, opts...); err != nil {
		t.Fatal(err)
	}
}

// long is a value that no answer of maxMessage bytes has room for.
var long = strings.Repeat("x", 2*maxMessage)

// stranger returns a writer of keys without a Store's limits.
func stranger(t *testing.T, endpoint string) func(key, value string) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return func(key, value string) {
		t.Helper()
		if _, err := c.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
}

// heldIn fails unless a claim finds the lease held in an epoch.
func (s *Store) heldIn(t *testing.T, epoch int64) {
	t.Helper()
	var held *lease.HeldError
	if term, err := s.Claim(t.Context()); !errors.As(err, &held) || held.Epoch != epoch {
		t.Errorf("claimed %+v: %v", term, err)
	}
}

// Neither a lease without a time limit nor rubbish is a free lease where nobody knows an epoch, nor
// is what names another version; the error says what an operator can do.
func TestForeignValues(t *testing.T) {
	endpoint, _ := startServer(t)
	s, writer := open(t, endpoint, key(t), "a", ttl, margin), stranger(t, endpoint)
	other := strings.Replace(string(lease.Make("x", 1, time.Now(), ttl).Encode()), `"schema_version": 1`, `"schema_version": 2`, 1)
	for name, c := range map[string]struct{ key, value, command string }{
		"rubbish": {key(t), "{}", " del " + key(t)}, "another version": {key(t), other, " del " + key(t)}, "epoch": {key(t) + "/epoch", "-3", " put " + key(t) + "/epoch N"},
		"too long": {key(t), long, " del " + key(t)}, "epoch too long": {key(t) + "/epoch", long, " put " + key(t) + "/epoch N"},
	} {
		writer(c.key, c.value)
		var bad *lease.MalformedError
		if _, err := s.Claim(t.Context()); !errors.As(err, &bad) || !strings.Contains(err.Error(), "etcdctl --endpoints http://"+endpoint+c.command) {
			t.Errorf("%s: claim: %v", name, err)
		}
		if _, err := s.Look(t.Context()); !errors.As(err, &bad) {
			t.Errorf("%s: look: %v", name, err)
		}
		if _, err := s.Renew(t.Context(), lease.Term{Epoch: 1, Holder: "a"}); err == nil {
			t.Errorf("%s: renewed", name)
		}
		s.drop(t, c.key)
	}
}

// A holder writes its damaged or deleted key anew at its next renewal, and nobody else claims
// meanwhile.
func TestHolderMendsItsKey(t *testing.T) {
	endpoint, _ := startServer(t)
	var why []error
	a, err := Open(Options{Endpoints: []string{endpoint}, Key: key(t), Holder: "a", TTL: ttl, Margin: margin, Mended: func(err error) { why = append(why, err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b := open(t, endpoint, key(t), "b", ttl, margin)
	writer := stranger(t, endpoint)
	term, err := a.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	good := string(lease.Make("a", 1, time.Now(), ttl).Encode())
	for name, spoil := range map[string]func(){
		"rubbish": func() { a.put(t, key(t), "rubbish") }, "no time to live": func() { a.put(t, key(t), good) },
		"deleted": func() { a.drop(t, key(t)) }, "epoch": func() { a.put(t, key(t)+"/epoch", "x") }, "too long": func() { writer(key(t), long) }, "epoch too long": func() { writer(key(t)+"/epoch", long) },
		"epoch deleted": func() { a.drop(t, key(t)+"/epoch") },
	} {
		spoil()
		b.heldIn(t, 1)
		if term, err = a.Renew(t.Context(), term); err != nil || !term.Valid(time.Now()) {
			t.Fatalf("%s: %+v, %v", name, term, err)
		}
		if d, err := b.Look(t.Context()); err != nil || !d.Is(term) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if r, err := b.fetch(t.Context()); err != nil || r.epoch != 1 || r.unsaid || r.epochRev == 0 || r.id == 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if len(why) != 4 {
		t.Errorf("told %q", why)
	}
}

// A damaged key whose holder writes no more is claimed after the time of a lease, with the next
// epoch, by who knew nothing but the epoch too. The old holder is then over.
func TestDamagedKeyIsClaimed(t *testing.T) {
	endpoint, _ := startServer(t)
	const short = 1500 * time.Millisecond
	a, b := open(t, endpoint, key(t), "a", short, 300*time.Millisecond), open(t, endpoint, key(t), "b", short, 300*time.Millisecond)
	term, err := a.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stranger(t, endpoint)(key(t), long)
	from := time.Now()
	var held *lease.HeldError
	_, _ = b.Look(t.Context()) // the time runs from here on
	seen := time.Now()
	next, err := b.Claim(t.Context())
	for ; errors.As(err, &held); next, err = b.Claim(t.Context()) {
		if held.Epoch != 1 || held.Holder != "" || held.Damaged == nil || held.ExpiresAt.After(seen.Add(short)) || !strings.Contains(err.Error(), "lease is damaged (") {
			t.Fatal(held)
		}
	}
	if err != nil || next.Epoch != 2 || time.Since(from) < short || term.Valid(time.Now()) {
		t.Errorf("claimed %+v after %v: %v", next, time.Since(from), err)
	}
	if _, err := a.Renew(t.Context(), term); !errors.Is(err, lease.ErrLost) {
		t.Errorf("renewed: %v", err)
	}
	if d, err := a.Look(t.Context()); err != nil || !d.Is(next) {
		t.Errorf("%+v, %v", d, err)
	}
}

// The later of a mending holder and a claimant loses: each compares the revision that it read.
func TestMendingAndClaimingExclude(t *testing.T) {
	endpoint, _ := startServer(t)
	a, b := open(t, endpoint, key(t), "a", ttl, margin), open(t, endpoint, key(t), "b", ttl, margin)
	term, err := a.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.put(t, key(t), "rubbish")
	seen, err := b.fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, won, err := b.take(t.Context(), seen); err != nil || !won {
		t.Fatalf("%v, %v", won, err)
	}
	if _, err := a.anew(t.Context(), term, seen); !errors.Is(err, lease.ErrLost) {
		t.Errorf("mended over a claim: %v", err)
	}
	a.put(t, key(t), "rubbish") // over b's
	if _, err := a.Renew(t.Context(), term); !errors.Is(err, lease.ErrLost) {
		t.Errorf("mended over a later epoch: %v", err)
	}
}

// Epochs go on for those who saw the lease when both keys are deleted: its holder is over, and free
// for others as soon as it says so.
func TestDeletedKeys(t *testing.T) {
	endpoint, _ := startServer(t)
	a, b := open(t, endpoint, key(t), "a", ttl, margin), open(t, endpoint, key(t), "b", ttl, margin)
	term, err := a.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.drop(t, key(t), clientv3.WithPrefix())
	b.heldIn(t, 1) // a is still valid
	if _, err := a.Renew(t.Context(), term); !errors.Is(err, lease.ErrLost) {
		t.Errorf("renewed: %v", err)
	}
	if err := a.Release(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	if next, err := b.Claim(t.Context()); err != nil || next.Epoch != 2 {
		t.Errorf("claimed %+v, %v", next, err)
	}
}
