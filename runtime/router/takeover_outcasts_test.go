package router

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// A takeover goes on without an engine that may not serve: nobody else would. Where none may, it fails.
func TestTakeoverGoesOnWithoutOutcasts(t *testing.T) {
	var strangers atomic.Value // ids of the engines whose profiles are of other processes
	strangers.Store("")
	b := startBed(t, 1, 3, quick(), func(c *Config) {
		c.Verify = func(_ context.Context, row profile.Row, _ engine.Identity) error {
			if strings.Contains(strangers.Load().(string), row.IID) {
				return errors.New("profile is of another generation")
			}
			return nil
		}
	})
	ejected := func(want ...string) {
		t.Helper()
		if got := b.state().Ejected; !slices.Equal(got, want) {
			t.Errorf("ejected are %v, want %v", got, want)
		}
		if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	strangers.Store("d1")
	if err := b.router.Verify(limit(t)); err != nil {
		t.Fatal(err)
	}
	ejected("d1")
	// The first of the list is another engine than the rest.
	b.restart("p0", func(c *simulated.Config) { c.BlockSize = 32 })
	if err := b.router.Verify(limit(t)); err != nil {
		t.Fatal(err)
	}
	ejected("d1", "p0")
	// An engine that answers, and not for this model.
	b.restart("d2", func(c *simulated.Config) { c.Model = "other/model" })
	if err := b.router.Verify(limit(t)); err != nil {
		t.Fatal(err)
	}
	ejected("d1", "d2", "p0")
	b.router.own.do(func() {
		if why := b.router.own.node("d2").ejected; why != causeHealth {
			t.Errorf("d2 is out as %s", why)
		}
	})
	strangers.Store("p0 d0 d1 d2")
	if err := b.router.Verify(limit(t)); err == nil || !strings.Contains(err.Error(), "another generation") {
		t.Errorf("a takeover without an engine: %v", err)
	}
}
