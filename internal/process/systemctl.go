package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	systemctlLimit = 30 * time.Second
	// systemctlBytes bounds what is kept of its output.
	systemctlBytes = 64 << 10
)

// Systemctl asks the system's manager, or the user's. Its errors hold what systemctl says.
func Systemctl(ctx context.Context, user bool, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, systemctlLimit)
	defer cancel()
	argv := append([]string{"--no-pager", "--no-ask-password"}, args...)
	if user {
		argv = append([]string{"--user"}, argv...)
	}
	cmd := exec.CommandContext(ctx, "systemctl", argv...)
	cmd.Env = ManagerEnv(user)
	cmd.WaitDelay = time.Second
	out, said := &head{}, &head{}
	cmd.Stdout, cmd.Stderr = out, said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("systemctl %s: %w: %.300s", strings.Join(args, " "), err, strings.ToValidUTF8(strings.TrimSpace(said.String()), "?"))
	}
	return out.String(), nil
}

// ManagerEnv is the environment by which systemd's clients find the manager. A session without
// the variable of the user's runtime folder gets it.
func ManagerEnv(user bool) []string {
	env := append(os.Environ(), "LC_ALL=C", "SYSTEMD_COLORS=0")
	if user && os.Getenv("XDG_RUNTIME_DIR") == "" {
		env = append(env, "XDG_RUNTIME_DIR=/run/user/"+strconv.Itoa(os.Getuid()))
	}
	return env
}

// head keeps the first bytes that are written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	_, _ = h.Buffer.Write(p[:min(len(p), max(systemctlBytes-h.Len(), 0))])
	return len(p), nil
}
