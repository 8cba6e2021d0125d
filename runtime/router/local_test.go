package router

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/narwhal-fleet/narwhal/runtime/model"
)

// What this machine lacks is nobody's fault but its own: no engine is blamed.
func TestLocalShortageBlamesNoEngine(t *testing.T) {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL} {
		err := fmt.Errorf("ask engine: %w", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", e)})
		f := fromTransport(context.Background(), phasePrefill, "p0", err)
		if f.class != classNone || f.reason != model.ReasonPool || f.transient || f.gone {
			t.Errorf("%v: %+v", e, f)
		}
	}
}
