package router

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// crash ends a holder's hold of the lease as the end of its process does.
func (b *testbed) crash() {
	b.router.own.do(func() { b.router.own.keeper.Stop(errors.New("killed")) })
	b.router.set.HA.Lease.(*lease.File).Close()
}

// looked counts who looks at a lease.
type looked struct {
	lease.Lease
	looks atomic.Int64
}

func (l *looked) Look(ctx context.Context) (lease.Document, error) {
	defer l.looks.Add(1)
	return l.Lease.Look(ctx)
}

// A router that waits for a lease claims after every epoch that was given meanwhile, also when all
// files of the lease are removed while their holder is stopped.
func TestWaitingRouterRemembersEpochs(t *testing.T) {
	dir := t.TempDir()
	quickly := func(c *Config) { c.HA.Renew = 30 * time.Millisecond }
	a := startBed(t, 1, 1, quick(), shared(t, dir, "a"), quickly)
	var waits *looked
	s := a.second(shared(t, dir, "s"), quickly, func(c *Config) {
		waits = &looked{Lease: c.HA.Lease}
		c.HA.Lease = waits
	})
	a.stop()
	f, err := lease.NewFile(lease.FileOptions{Path: filepath.Join(dir, "lease.json"), Holder: lease.NewHolder("a"), TTL: 2 * time.Second, Margin: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if term, err := f.Claim(t.Context()); err != nil || term.Epoch != 2 {
		t.Fatalf("%+v, %v", term, err)
	}
	// The new holder renews no more: it is stopped.
	before := waits.looks.Load()
	eventually(t, "the waiting router looks", func() bool { return waits.looks.Load() > before+1 })
	for _, p := range lease.Paths(filepath.Join(dir, "lease.json")) {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
	var r readiness
	eventually(t, "the waiting router serves", func() bool { return s.get("/ready", &r) == 200 })
	if r.Epoch != 3 {
		t.Errorf("epoch %d was given before", r.Epoch)
	}
}

// A chain of three: the last one serves at once, with the counters, when the two before it are gone.
func TestChainOfStandbys(t *testing.T) {
	dir := t.TempDir()
	a := startBed(t, 1, 1, quick(), shared(t, dir, "a"))
	b := a.second(shared(t, dir, "b"), waitsFor(a.url))
	c := b.second(shared(t, dir, "c"), waitsFor(b.url))
	for range 3 {
		if x := a.complete(body(false, 2)); x.status != 200 {
			t.Fatalf("%d %s", x.status, x.body)
		}
	}
	eventually(t, "the last one has the counters", func() bool {
		raw, _ := os.ReadFile(filepath.Join(dir, "c.json"))
		return strings.Contains(string(raw), `"served":3`)
	})
	var r readiness
	if c.get("/ready", &r); r.Reason != "shadowing" {
		t.Errorf("%+v", r)
	}
	b.stop()
	a.crash()
	from := time.Now()
	eventually(t, "the last one serves", func() bool { return c.get("/ready", &r) == 200 })
	if r.Epoch != 2 || time.Since(from) > time.Second || c.state().Served != 3 {
		t.Errorf("after %v: %+v, served %d", time.Since(from), r, c.state().Served)
	}
	if d, err := c.router.set.HA.Lease.Look(t.Context()); err != nil || d.Epoch != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

// A standby of another model says so while the router that it follows is well.
func TestStandbyOfAnotherFleet(t *testing.T) {
	dir := t.TempDir()
	a := startBed(t, 1, 1, quick(), shared(t, dir, "a"))
	s := a.second(shared(t, dir, "s"), waitsFor(a.url), func(c *Config) { c.Fleet.Model = "another" })
	var r readiness
	eventually(t, "the standby says so", func() bool { s.get("/ready", &r); return strings.Contains(r.Reason, `of model "`) })
	a.crash()
	never := time.After(time.Second)
	for {
		select {
		case <-never:
			if d, _ := s.router.set.HA.Lease.Look(t.Context()); d.Epoch != 1 {
				t.Errorf("it claimed: %+v", d)
			}
			return
		default:
			if s.get("/ready", &r); !strings.HasPrefix(r.Reason, standby.BlockUnfit(errors.New(""))) {
				t.Fatalf("%+v", r)
			}
		}
	}
}
