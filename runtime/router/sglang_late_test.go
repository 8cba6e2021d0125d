package router

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/engine/sglang"
	"github.com/narwhal-fleet/narwhal/runtime/engine/simulated"
)

// A complete answer does not wait for a prefill engine that has sent its KV and stands still.
func TestCompleteAnswerLeavesThePrefillLeg(t *testing.T) {
	for _, complete := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			done := make(chan *failure, 1)
			go func() {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				done <- &failure{detail: "late"}
			}()
			began := time.Now()
			f := (&request{}).prefillEnds(complete, done, cancel)
			if took := time.Since(began); complete != (f == nil) || complete != (took == pairTail) {
				t.Errorf("complete %v: %v after %s", complete, f, took)
			}
		})
	}
}

// SGLang's metrics do not tell when the process began: its engine is asked.
func TestSGLangIdleRestartIsNoticed(t *testing.T) {
	b := sglangBedOf(t, unswept, "prefill", "decode")
	if c := b.swept("e1"); c != "" {
		t.Errorf("the same process: %q", c)
	}
	b.restart("e1", func(c *simulated.Config) {
		c.Dialect, c.SGLang = sglang.Name, simulated.SGLang{Role: "decode", RoleSwitch: true}
	})
	if c := b.swept("e1"); c != causeIdentity {
		t.Errorf("another process: %q", c)
	}
}
