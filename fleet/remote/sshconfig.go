package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// resolveLimit bounds one call of "ssh -G", which takes milliseconds unless Match exec waits.
const resolveLimit = 10 * time.Second

func findSSH() string {
	path, err := exec.LookPath("ssh")
	if err != nil {
		return ""
	}
	return path
}

// settings are the lines of "ssh -G": key in lower case, values in their order.
type settings map[string][]string

func (s settings) first(key string) string {
	if v := s[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// fill sets what h leaves unset from the user's ssh configuration of the alias h.Address, and
// returns the jump hosts that ProxyJump names when jumps is set. above are the aliases being resolved.
func (r *resolver) fill(h *Hop, jumps bool, above []string) ([]Hop, error) {
	alias := h.Address
	s, err := r.settings(alias, h.User, h.Port)
	if err != nil {
		return nil, err
	}
	if v := s.first("hostname"); v != "" {
		h.Address = v
	}
	if h.Port == 0 {
		h.Port, _ = strconv.Atoi(s.first("port"))
	}
	if h.User == "" {
		h.User = s.first("user")
	}
	h.Alias = s.first("hostkeyalias")
	if len(h.Identities) == 0 {
		for _, path := range s["identityfile"] {
			if path = r.tilde(path); !strings.EqualFold(path, "none") {
				h.Identities = append(h.Identities, Identity{Path: path})
			}
		}
	}
	h.IdentitiesOnly = strings.EqualFold(s.first("identitiesonly"), "yes")
	if len(h.KnownHosts) == 0 {
		for _, key := range []string{"userknownhostsfile", "globalknownhostsfile"} {
			for _, path := range strings.Fields(s.first(key)) {
				if path = r.tilde(path); !strings.EqualFold(path, "none") {
					h.KnownHosts = append(h.KnownHosts, path)
				}
			}
		}
	}
	switch agent := s.first("identityagent"); {
	case agent == "" || agent == "SSH_AUTH_SOCK":
	case strings.EqualFold(agent, "none"):
		h.Agent = ""
	case strings.HasPrefix(agent, "$"):
		h.Agent = os.ExpandEnv(agent)
	default:
		h.Agent = r.tilde(agent)
	}
	if !jumps {
		return nil, nil
	}
	if v := s.first("proxycommand"); v != "" && !strings.EqualFold(v, "none") {
		return nil, &ProxyCommandError{Alias: alias}
	}
	return r.jumps(s.first("proxyjump"), append(above, alias))
}

// ProxyCommandError is a host that the ssh configuration reaches through a command of its own.
type ProxyCommandError struct{ Alias string }

func (e *ProxyCommandError) Error() string {
	return fmt.Sprintf("ssh configuration of %s uses ProxyCommand, which is not run here", e.Alias)
}

// jumps resolves "[user@]host[:port],…". Only the first is reached through jump hosts of its own.
func (r *resolver) jumps(spec string, above []string) ([]Hop, error) {
	if spec == "" || strings.EqualFold(spec, "none") {
		return nil, nil
	}
	if len(above) > maxHops {
		return nil, fmt.Errorf("more than %d jump hosts: %s", maxHops, strings.Join(above, " → "))
	}
	var hops []Hop
	for i, part := range strings.Split(spec, ",") {
		h, err := parseJump(part)
		if err != nil {
			return nil, err
		}
		if slices.Contains(above, h.Address) {
			return nil, fmt.Errorf("jump hosts of the ssh configuration form a cycle: %s", strings.Join(append(above, h.Address), " → "))
		}
		h.Agent = r.agent
		before, err := r.fill(&h, i == 0, above)
		if err != nil {
			return nil, err
		}
		if err := r.finish(&h); err != nil {
			return nil, err
		}
		hops = append(append(hops, before...), h)
	}
	return hops, nil
}

func parseJump(part string) (Hop, error) {
	part = strings.TrimPrefix(strings.TrimSpace(part), "ssh://")
	var h Hop
	if i := strings.LastIndexByte(part, '@'); i >= 0 {
		h.User, part = part[:i], part[i+1:]
	}
	h.Address = strings.TrimSuffix(strings.TrimPrefix(part, "["), "]")
	if host, port, err := net.SplitHostPort(part); err == nil {
		n, err := strconv.Atoi(port)
		if err != nil {
			return h, fmt.Errorf("read ProxyJump %q: %w", part, err)
		}
		h.Address, h.Port = host, n
	}
	h.ID = h.Address
	if h.Address == "" {
		return h, fmt.Errorf("read ProxyJump: a host name is missing")
	}
	return h, nil
}

// settings asks the ssh client, or reads the files where there is none.
func (r *resolver) settings(alias, user string, port int) (settings, error) {
	if strings.HasPrefix(alias, "-") || alias == "" {
		return nil, fmt.Errorf("host address %q is no name for ssh", alias)
	}
	key := fmt.Sprintf("%s\x00%s\x00%d", alias, user, port)
	if s, ok := r.lookup[key]; ok {
		return s, nil
	}
	var s settings
	var err error
	if r.ssh == "" {
		s, err = r.readFiles(alias, user, port)
	} else {
		s, err = r.ask(alias, user, port)
	}
	if err != nil {
		return nil, err
	}
	r.expandPaths(s, alias)
	if r.lookup != nil {
		r.lookup[key] = s
	}
	return s, nil
}

func (r *resolver) ask(alias, user string, port int) (settings, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveLimit)
	defer cancel()
	args := append(slices.Clone(r.args), "-G")
	if user != "" {
		args = append(args, "-l", user)
	}
	if port != 0 {
		args = append(args, "-p", strconv.Itoa(port))
	}
	cmd := exec.CommandContext(ctx, r.ssh, append(args, "--", alias)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("ask ssh -G %s: %w: %s", alias, err, printable(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("ask ssh -G %s: %w", alias, err)
	}
	return parseSettings(out), nil
}

func parseSettings(out []byte) settings {
	s := settings{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if ok {
			key = strings.ToLower(key)
			s[key] = append(s[key], strings.TrimSpace(value))
		}
	}
	return s
}
