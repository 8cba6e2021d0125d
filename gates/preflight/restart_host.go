package preflight

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// onHost launches what the host remembers of the engine's last launch: the same command in the
// same environment.
type onHost struct {
	q    RestartRequest
	dir  string
	self string
	spec process.Spec
}

// open reads the launch.
func (h *onHost) open() (err error) {
	h.dir = filepath.Join(h.q.Root, gates.DirRun)
	if h.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find own binary: %w", err)
	}
	r, ok := process.Read(h.dir, h.q.Name)
	if !ok {
		if r, ok = process.Latest(h.dir, h.q.Name); !ok {
			return fmt.Errorf("restart %s: no launch of %s is recorded on the host", h.q.IID, h.q.Name)
		}
	}
	h.spec = r.Spec
	return nil
}

// ready refuses what could not be launched with its secrets.
func (h *onHost) ready() error {
	for _, name := range h.q.Secrets {
		if _, ok := os.LookupEnv(name); !ok {
			return fmt.Errorf("restart %s: its launch takes the variable %s, which is not set here; narwhal gate run C sets it", h.q.IID, name)
		}
	}
	return nil
}

func (h *onHost) running() (process.Record, bool) {
	r, ok := process.Read(h.dir, h.q.Name)
	return r, ok && r.Alive()
}

func (h *onHost) stop(ctx context.Context) error {
	_, err := process.Stop(ctx, h.dir, h.q.Name, h.q.Stop.D())
	return err
}

func (h *onHost) start(ctx context.Context) (process.Record, error) {
	if err := h.ready(); err != nil {
		return process.Record{}, err
	}
	r, _, err := process.Start(ctx, h.dir, h.spec, []string{h.self, "host", "become"})
	return r, err
}

// restartHere is the host verb.
func restartHere(ctx context.Context, q RestartRequest) (Restarted, error) {
	h := &onHost{q: q}
	if err := h.open(); err != nil {
		return Restarted{}, err
	}
	if err := h.ready(); err != nil {
		return Restarted{}, err
	}
	return restart(ctx, q, h)
}
