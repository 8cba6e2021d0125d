package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/units"
	"github.com/narwhal-fleet/narwhal/gates"
	"github.com/narwhal-fleet/narwhal/gates/record"
	"github.com/narwhal-fleet/narwhal/internal/process"
)

// ManagerRequest asks about the systemd manager that is to keep processes running.
type ManagerRequest struct {
	Root string `json:"root"`
	User bool   `json:"user,omitempty"`
	// Hides are folders of which the units see nothing.
	Hides []string `json:"hides,omitempty"`
	// Secrets are variables that the units need of a file on the host.
	Secrets []string `json:"secrets,omitempty"`
}

// Manager is what a host says of it.
type Manager struct {
	Scope   string `json:"scope"`
	Systemd bool   `json:"systemd"` // the host was booted with it
	UID     int    `json:"uid"`
	Name    string `json:"user"`
	// Version is the manager's own answer, "" where it gives none; Said tells why.
	Version string `json:"version"`
	Said    string `json:"said,omitempty"`
	Lingers bool   `json:"lingers"`
	// Root is the root without links, Hidden the folder of Hides that holds it.
	Root   string `json:"root"`
	Hidden string `json:"hidden,omitempty"`
	// Missing are the secrets that the file lacks; Exposed means that others can read it.
	Missing []string `json:"missing,omitempty"`
	Exposed bool     `json:"exposed,omitempty"`
}

// Where systemd leaves its marks.
const (
	bootedMark = "/run/systemd/system"
	lingerDir  = "/var/lib/systemd/linger"
)

// manager looks and changes nothing.
func manager(ctx context.Context, q ManagerRequest) (Manager, error) {
	m := Manager{Scope: fleet.SuperviseSystem, UID: os.Getuid(), Root: filepath.Clean(q.Root)}
	if q.User {
		m.Scope = fleet.SuperviseUser
	}
	if u, err := user.LookupId(strconv.Itoa(m.UID)); err == nil {
		m.Name = u.Username
	} else if out, err := exec.CommandContext(ctx, "id", "-un").Output(); err == nil { // of a directory service
		m.Name = fmt.Sprintf("%.64s", strings.TrimSpace(string(out)))
	}
	if st, err := os.Stat(bootedMark); err == nil {
		m.Systemd = st.IsDir()
	}
	if _, err := os.Stat(filepath.Join(lingerDir, filepath.Base(m.Name))); err == nil && m.Name != "" {
		m.Lingers = true
	}
	if real, err := filepath.EvalSymlinks(m.Root); err == nil {
		m.Root = real
	}
	for _, dir := range q.Hides {
		if m.Root == dir || strings.HasPrefix(m.Root, dir+"/") {
			m.Hidden = dir
		}
	}
	out, err := process.Systemctl(ctx, q.User, "show", "--property=Version", "--value")
	if m.Version = strings.TrimSpace(out); err != nil {
		m.Version, m.Said = "", err.Error()
	}
	var serr error
	m.Missing, m.Exposed, serr = secretsIn(filepath.Join(q.Root, units.SecretFile), q.Secrets)
	return m, serr
}

// assigned is a line of a file of variables.
var assigned = regexp.MustCompile(`(?m)^[ \t]*([A-Za-z_][A-Za-z0-9_]*)=[^\r\n]`)

const maxSecretFile = 64 << 10

// secretsIn returns the names that the file gives no value, and whether others can read it. Values are not kept.
func secretsIn(path string, names []string) (missing []string, exposed bool, err error) {
	if len(names) == 0 {
		return nil, false, nil
	}
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return names, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("look at the units' secrets: %w", err)
	}
	if st.Size() > maxSecretFile {
		return nil, false, fmt.Errorf("look at the units' secrets: %s has more than %d bytes", path, maxSecretFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, false, fmt.Errorf("look at the units' secrets: %w", err)
	}
	has := map[string]bool{}
	for _, m := range assigned.FindAllSubmatch(b, -1) {
		has[string(m[1])] = true
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return has[n] }), st.Mode().Perm()&0o077 != 0, nil
}

// managerStep looks at the manager of a host.
func managerStep(v gates.View, h string, after []string) gates.Step {
	q := ManagerRequest{Root: v.Fleet.Deploy.Hosts[h].Root, User: v.Fleet.Supervise(h) == fleet.SuperviseUser, Hides: units.Hides(v.Fleet, h), Secrets: units.Secrets(v.Fleet, h)}
	return gates.Step{
		ID: "B/manager/" + h, Title: "look at the systemd manager of " + h, Host: h, Effect: gates.Observe, Limit: shortLimit, Needs: after, Yields: managerKey(h),
		Argv: gates.HostCommand(v.Fleet, h, "manager", q),
	}
}

// managerFaults need nothing but the answer, since they decide about the next step too.
func managerFaults(m Manager) (out []record.Finding) {
	add := func(code, want, got, message, hint string) {
		out = append(out, record.Finding{Code: code, Want: want, Got: fmt.Sprintf("%.300s", printable(got)), Message: printable(message), Hint: hint})
	}
	const own = `, or set supervise: "own" for this host`
	user := fmt.Sprintf("%.64q", m.Name)
	isUser := m.Scope == fleet.SuperviseUser
	switch {
	case !m.Systemd:
		add("unit-no-systemd", "a host whose first process is systemd", "another one", "units are wanted, and the host was not booted with systemd", `set supervise: "own" for this host: its processes then survive a logout, no reboot`)
		return out
	case m.Version == "" && isUser:
		add("unit-manager-unreachable", "the systemd manager of user "+user, m.Said, fmt.Sprintf("the systemd manager of user %s does not answer: %.300s", user, m.Said), "as root on the host: loginctl enable-linger "+m.name()+" starts it"+own)
	case m.Version == "":
		add("unit-manager-unreachable", "the host's systemd manager", m.Said, fmt.Sprintf("the host's systemd manager does not answer: %.300s", m.Said), "see systemctl status on the host"+own)
	}
	if isUser && !m.Lingers {
		add("unit-lingering-off", "a user manager that outlives the session", "lingering of "+user+" is off", "lingering of user "+user+" is off: its units end with its last session and do not start with the host",
			"as root on the host: loginctl enable-linger "+m.name()+own)
	}
	if !isUser && m.UID != 0 {
		add("unit-no-right", "root, for units of the system", fmt.Sprintf("user %s, id %d", user, m.UID), fmt.Sprintf("user %s may write no units of the system", user), `log in as root (deploy.hosts user), or set supervise: "user" for this host`)
	}
	if m.Hidden != "" {
		add("unit-root-hidden", "a root that the units see", m.Root, fmt.Sprintf("the root leads to %.300s, and the units see nothing below %.40s", m.Root, m.Hidden), "set deploy.hosts root to that folder itself")
	}
	for _, name := range m.Missing {
		add("unit-secret-missing", fmt.Sprintf("%.64s in %s", name, units.SecretFile), "no such line", fmt.Sprintf("the router needs %.64s, and after a reboot nobody is there to send it", name),
			fmt.Sprintf("write %.64s=VALUE to %s below the host's root, mode 0600", name, units.SecretFile)+own)
	}
	if m.Exposed {
		add("unit-secret-exposed", "a file that only its owner reads", units.SecretFile+" that others read", units.SecretFile+" below the root holds secrets, and others can read it", "chmod 600 on it")
	}
	return out
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// name is the user's, for a command that is shown.
func (m Manager) name() string {
	if plainName.MatchString(m.Name) {
		return m.Name
	}
	return "USER"
}
