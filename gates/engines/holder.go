package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Holder is what runs an engine apart from the session of the recorded process: a container
// or a systemd unit. The zero value is none.
type Holder struct {
	// Runtime is docker or podman and Container the name of the container.
	Runtime   string `json:"runtime,omitempty"`
	Container string `json:"container,omitempty"`
	// Unit is a systemd unit, of the user's manager where User is set.
	Unit string `json:"unit,omitempty"`
	User bool   `json:"user,omitempty"`
}

const (
	holderLimit = 10 * time.Second
	// holderBytes bounds what a runtime's client may print.
	holderBytes = 1 << 20
)

// mainPID is the first process of the container or unit, 0 when it runs none.
func (h Holder) mainPID(ctx context.Context) (int, error) {
	var out []byte
	var err error
	switch {
	case h.Container != "":
		out, err = printed(ctx, h.Runtime, "container", "inspect", "--format", "{{.State.Pid}}", h.Container)
	case h.Unit != "":
		out, err = printed(ctx, "systemctl", h.systemctl("show", "--property", "MainPID", "--value", h.Unit)...)
	default:
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || pid < 0 {
		return 0, fmt.Errorf("read the process id of %s: %.40q", h, out)
	}
	return pid, nil
}

func (h Holder) systemctl(args ...string) []string {
	if h.User {
		return append([]string{"--user"}, args...)
	}
	return args
}

func (h Holder) String() string {
	if h.Container != "" {
		return "container " + h.Container
	}
	return "unit " + h.Unit
}

// ended says that the holder ended for want of memory, "" where it tells no such thing.
func (h Holder) ended(ctx context.Context) string {
	switch {
	case h.Container != "":
		out, err := printed(ctx, h.Runtime, "container", "inspect", "--format", "{{.State.OOMKilled}}", h.Container)
		if err == nil && strings.TrimSpace(string(out)) == "true" {
			return h.Runtime + " container inspect: State.OOMKilled is true"
		}
	case h.Unit != "":
		out, err := printed(ctx, "systemctl", h.systemctl("show", "--property", "Result", "--value", h.Unit)...)
		if err == nil && strings.TrimSpace(string(out)) == "oom-kill" {
			return "systemctl show: Result is oom-kill"
		}
	}
	return ""
}

// printed runs a program of the host and returns what it prints, bounded in time and size.
func printed(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, holderLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said := &cut{room: 400}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	b, rerr := io.ReadAll(io.LimitReader(out, holderBytes+1))
	if len(b) > holderBytes {
		cancel()
		rerr = fmt.Errorf("more than %d bytes", holderBytes)
	}
	if err := cmd.Wait(); err != nil && rerr == nil {
		return nil, fmt.Errorf("run %s %s: %w: %s", name, args[0], err, strings.TrimSpace(said.String()))
	}
	if rerr != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", name, rerr)
	}
	return b, nil
}

// cut keeps the first bytes that are written to it.
type cut struct {
	strings.Builder
	room int
}

func (c *cut) Write(p []byte) (int, error) {
	keep := p[:min(len(p), c.room)]
	c.room -= len(keep)
	_, _ = c.Builder.Write(keep)
	return len(p), nil
}

// decodeOne reads one JSON value that a runtime printed.
func decodeOne(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read what the runtime says: %w", err)
	}
	return nil
}
