package router

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/standby"
)

// stateOf is the lifecycle state of an engine in a state file, active without a record.
func stateOf(t *testing.T, path, iid string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := standby.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range d.Lifecycle.Records {
		if r.IID == iid {
			return r.State
		}
	}
	return stateActive
}

// ordered posts an order and returns where its answer says that it is kept.
func (b *testbed) ordered(verb, order string) (stored, replicated bool) {
	b.t.Helper()
	a := post(b.t, limit(b.t), b.url+"/narwhal/lifecycle/"+verb, order)
	s, r := a.header.Get(storedHeader), a.header.Get(replicatedHeader)
	if a.status != 200 || s == "" || r == "" {
		b.t.Fatalf("%s: %d %s %s", verb, a.status, a.header, a.body)
	}
	return s == "true", r == "true"
}

// An order is in the state file when it is answered, between the times at which that is written.
func TestOrdersAreStoredBeforeTheirAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	b := startBed(t, 1, 2, quick(), func(c *Config) { c.HA.StatePath, c.Fleet.Controller.MonitorIntervalS = path, 60 })
	for _, c := range []struct{ verb, order, state string }{
		{"drain", `{"engines":["d1"]}`, stateDrained}, {"readmit", `{"engines":["d1"]}`, stateActive},
		{"drain", `{"wave":true}`, stateDrained}, {"readmit", `{"wave":true}`, stateActive},
	} {
		if stored, replicated := b.ordered(c.verb, c.order); !stored || replicated {
			t.Errorf("%s: stored %v, replicated %v", c.order, stored, replicated)
		}
		if got := stateOf(t, path, "d1"); got != c.state {
			t.Errorf("%s %s: the state file has d1 %s", c.verb, c.order, got)
		}
	}
}

// An order is with the standby when it is answered.
func TestOrdersReachTheStandbyBeforeTheirAnswer(t *testing.T) {
	dir := t.TempDir()
	a := startBed(t, 1, 2, quick(), shared(t, dir, "a"), func(c *Config) { c.Fleet.Controller.MonitorIntervalS = 60 })
	s := a.second(shared(t, dir, "s"), waitsFor(a.url))
	eventually(t, "the standby follows", func() bool { return s.router.follows.Load() != nil })
	for _, c := range []struct{ verb, state string }{{"drain", stateDrained}, {"readmit", stateActive}} {
		if stored, replicated := a.ordered(c.verb, `{"engines":["d1"]}`); !stored || !replicated {
			t.Errorf("%s: stored %v, replicated %v", c.verb, stored, replicated)
		}
		if got := stateOf(t, filepath.Join(dir, "s.json"), "d1"); got != c.state {
			t.Errorf("%s: the standby has d1 %s", c.verb, got)
		}
	}
}

// Standbys are waited for while they poll, for a bounded time, and each counts.
func TestFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowers()
		took := func(want bool, in time.Duration) {
			t.Helper()
			start := time.Now()
			if got := f.await(context.Background(), 2, 10); got != want || time.Since(start) != in {
				t.Errorf("replicated %v after %v", got, time.Since(start))
			}
		}
		took(false, 0)
		for _, bad := range []string{"", "b", "b 2", "b x 11", "b 2 NaN", "b 2 +Inf", "b -1 11", "b 2 11 12"} {
			f.note(bad)
		}
		took(false, 0)
		f.note("b 2 10")
		took(false, replicateLimit)
		f.note("b 1 99")
		took(false, replicateLimit)
		f.note("b 2 10.5")
		took(true, 0)
		f.note("c 0 0")
		time.AfterFunc(300*time.Millisecond, func() { f.note("c 2 11") })
		took(true, 300*time.Millisecond)
		f.note("c 2 9")
		time.Sleep(followedFor / 2)
		f.note("b 2 11")
		time.Sleep(followedFor/2 + 1)
		took(true, 0)
		for i := range 3 * maxFollowers {
			f.note(fmt.Sprintf("x%d 2 11", i))
		}
		if n := len(f.seen); n != maxFollowers {
			t.Errorf("%d standbys are remembered", n)
		}
	})
}
