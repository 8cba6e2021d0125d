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
	b := sglangBedOf(t, func(c *Config) { c.Fleet.Recovery.LivenessEvery, c.Fleet.Recovery.ReadmitEvery = 0, 1<<20 }, "prefill", "decode")
	o, r := b.router.own, b.router
	sweep := func() (cause string) {
		r.liveness(t.Context(), o.node("e1"))
		o.do(func() { cause = o.node("e1").ejected })
		return cause
	}
	if c := sweep(); c != "" {
		t.Errorf("the same process: %q", c)
	}
	old := b.engine("e1")
	addr := old.Addr()
	old.Kill()
	e, err := simulated.New(simulated.Config{Simulated: quick(), Model: modelName, Listen: addr, SideChannel: "127.0.0.1:0", Dialect: sglang.Name,
		SGLang: simulated.SGLang{Role: "decode", RoleSwitch: true}})
	if err == nil {
		err = e.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	if c := sweep(); c != causeIdentity {
		t.Errorf("another process: %q", c)
	}
}
