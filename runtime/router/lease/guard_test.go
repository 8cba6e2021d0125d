package lease_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease/conformance"
)

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(conformance.Memory)
		l := m.Lease("a", ttl, margin)
		if _, err := l.Claim(t.Context()); err != nil {
			t.Fatal(err)
		}
		free := func() bool { d, _ := l.Look(t.Context()); return d.Expired(time.Now()) }
		if err := lease.Guard(t.Context(), iotest.ErrReader(errors.New("bad descriptor")), l, "a", ttl); err == nil || free() {
			t.Errorf("released without proof: %v", err)
		}
		if err := lease.Guard(t.Context(), strings.NewReader(""), l, "b", ttl); err != nil || free() {
			t.Errorf("released another's lease: %v", err)
		}
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- lease.Guard(t.Context(), r, l, "a", ttl) }()
		synctest.Wait()
		if free() {
			t.Error("released while the holder lives")
		}
		m.Break(errors.New("election"))
		_ = w.Close()
		time.Sleep(time.Second)
		m.Break(nil)
		if err := <-done; err != nil || !free() {
			t.Errorf("%v, free %v", err, free())
		}
	})
}

func TestGuardGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(conformance.Memory)
		cause := errors.New("disk is full")
		m.Break(cause)
		if err := lease.Guard(context.Background(), strings.NewReader(""), m.Lease("a", ttl, margin), "a", ttl); !errors.Is(err, cause) {
			t.Error(err)
		}
	})
}
