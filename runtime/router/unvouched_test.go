package router

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/engine"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
	"github.com/narwhal-fleet/narwhal/runtime/profile"
)

// An engine that nobody vouches for starts ejected, stops nothing, and comes back once somebody
// does.
func TestUnvouchedEngineStopsNothing(t *testing.T) {
	var there atomic.Bool
	b := startBed(t, 1, 2, quick(), func(c *Config) {
		c.Verify = func(_ context.Context, row profile.Row, _ engine.Identity) error {
			if row.IID == "d1" && !there.Load() {
				return fmt.Errorf("verify engine d1: %w: connection refused", ErrUnvouched)
			}
			return nil
		}
	})
	if s := b.state(); len(s.Ejected) != 1 || s.Ejected[0] != "d1" {
		t.Errorf("ejected are %v", s.Ejected)
	}
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	there.Store(true)
	eventually(t, "d1 serves", func() bool { return len(b.state().Ejected) == 0 })
}

// A takeover waits for no engine that keeps silent while others can serve: that one is out until it
// answers.
func TestTakeoverWaitsForNoSilence(t *testing.T) {
	for _, decode := range []int{2, 1} { // the only one of its role too
		t.Run(fmt.Sprintf("%d decode engines", decode), func(t *testing.T) { takeoverBesideSilence(t, decode) })
	}
}

func takeoverBesideSilence(t *testing.T, decode int) {
	quiet := fmt.Sprintf("d%d", decode-1)
	var silent atomic.Bool
	ended := make(chan error, 1)
	var log lockedText
	b := startBed(t, 1, decode, quick(), func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.Verify = func(ctx context.Context, row profile.Row, _ engine.Identity) error {
			if row.IID != quiet || !silent.Load() {
				return nil
			}
			<-ctx.Done()
			select {
			case ended <- ctx.Err():
			default:
			}
			return fmt.Errorf("verify engine %s: %w: %w", quiet, ErrUnvouched, ctx.Err())
		}
	})
	silent.Store(true)
	if err := b.router.Verify(limit(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != context.Canceled {
		t.Errorf("the wait for %s ended with %v", quiet, err)
	}
	if s := b.state(); len(s.Ejected) != 1 || s.Ejected[0] != quiet {
		t.Errorf("ejected are %v", s.Ejected)
	}
	if want := "engine=" + quiet + ` error="its sidecar did not answer within 500ms; the engine did"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s\n%s", want, log.String())
	}
	if a := b.complete(map[string]any{"prompt": "x", "max_tokens": 2}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	silent.Store(false)
	eventually(t, quiet+" serves", func() bool { return len(b.state().Ejected) == 0 })
}

// An engine that hangs itself is named, and no sidecar.
func TestTakeoverNamesTheEngineThatHangs(t *testing.T) {
	var log lockedText
	b := startBed(t, 1, 2, quick(), func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if err := b.engines[2].Inject(simulated.Injection{Kind: "hang"}); err != nil {
		t.Fatal(err)
	}
	if err := b.router.Verify(limit(t)); err != nil {
		t.Fatal(err)
	}
	if want := `engine=d1 error="it did not answer within 500ms"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s\n%s", want, log.String())
	}
}

// A start that is ended blames no engine that it was still asking.
func TestEndedStartBlamesNobody(t *testing.T) {
	var log lockedText
	b := startBed(t, 1, 1, quick())
	c := b.router.set.Config
	asked := make(chan struct{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Listen, c.JournalPath, c.Logger = "127.0.0.1:0", "", slog.New(slog.NewTextHandler(&log, nil))
	c.Verify = func(ctx context.Context, _ profile.Row, _ engine.Identity) error {
		asked <- struct{}{}
		<-ctx.Done()
		return fmt.Errorf("verify: %w: %w", ErrUnvouched, ctx.Err())
	}
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-asked; cancel() }()
	if err := r.Serve(ctx, func() { t.Error("it serves") }); err != nil {
		t.Errorf("an ordered end is no error: %v", err)
	}
	if s := log.String(); strings.Contains(s, "ejected") || strings.Contains(s, "not available") {
		t.Errorf("an engine is blamed:\n%s", s)
	}
}
