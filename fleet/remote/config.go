package remote

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// maxHops bounds a chain of jump hosts, the target included.
const maxHops = 8

// Config names a host and the way to it.
type Config struct {
	// ID is the host's id in the fleet.
	ID string
	// Hops are the jump hosts in their order, then the host itself.
	Hops []Hop
}

// Hop is one SSH server of a chain with the credentials for it.
type Hop struct {
	ID      string // of the fleet, or the alias in the user's ssh configuration
	InFleet bool   // false for a jump host that only the ssh configuration names
	Address string
	Port    int
	User    string
	// Alias, unless "", is the name to look up in known_hosts files instead of the address.
	Alias string
	// Pins are "ssh-ed25519 AAAA…" lines or "SHA256:…" fingerprints. Where there is one, no
	// known_hosts file is asked.
	Pins       []string
	KnownHosts []string // paths; a missing one is skipped
	Identities []Identity
	// IdentitiesOnly keeps agent keys that are no Identity from being offered.
	IdentitiesOnly bool
	// Agent is the path of an agent's socket, "" for none.
	Agent      string
	Passphrase fleet.Secret // of encrypted identities
	Password   fleet.Secret // for the password and keyboard-interactive methods
}

// Identity is a private key file.
type Identity struct {
	Path string
	// Required makes a missing file a reported problem; unset for the defaults of ssh.
	Required bool
}

// Addr is the hop's address and port.
func (h Hop) Addr() string { return net.JoinHostPort(h.Address, strconv.Itoa(h.Port)) }

// FromFleet builds the way to host id of the fleet. It calls secrets for each reference that a
// hop has. Where a host says ssh_config, the user's ssh configuration fills what the fleet leaves
// unset; otherwise no file of the user's is read. The agent is the one of SSH_AUTH_SOCK.
// Errors are *HopError with StageResolve.
func FromFleet(f fleet.Fleet, id string, secrets func(fleet.SecretRef) (fleet.Secret, error)) (Config, error) {
	return userResolver().config(f, id, secrets)
}

// resolver finds what the fleet leaves unset. Its fields are fixed by tests.
type resolver struct {
	ssh    string   // path of an ssh client, "" for none
	args   []string // put before the alias
	files  []string // read instead where there is no client
	home   string
	user   string
	agent  string
	lookup map[string]settings // answers already known, by alias and options
}

func userResolver() *resolver {
	r := &resolver{ssh: findSSH(), agent: os.Getenv("SSH_AUTH_SOCK"), lookup: map[string]settings{}}
	r.home, _ = os.UserHomeDir()
	if u, err := user.Current(); err == nil {
		r.user = u.Username
	}
	if r.home != "" {
		r.files = append(r.files, filepath.Join(r.home, ".ssh", "config"))
	}
	r.files = append(r.files, "/etc/ssh/ssh_config")
	return r
}

func (r *resolver) config(f fleet.Fleet, id string, secrets func(fleet.SecretRef) (fleet.Secret, error)) (Config, error) {
	fail := func(hop string, err error) (Config, error) {
		return Config{}, &HopError{Host: id, Hop: hop, Stage: StageResolve, Err: err}
	}
	if f.Deploy == nil {
		return fail(id, fmt.Errorf("the fleet has no deploy section"))
	}
	c := Config{ID: id}
	var seen []string
	for at := id; at != ""; {
		host, ok := f.Deploy.Hosts[at]
		if !ok {
			return fail(at, fmt.Errorf("deploy.hosts has no %q", at))
		}
		if slices.Contains(seen, at) {
			return fail(at, fmt.Errorf("jump hosts form a cycle: %s", strings.Join(append(seen, at), " → ")))
		}
		seen = append(seen, at)
		hop, before, err := r.hop(at, host, secrets)
		if err != nil {
			return fail(at, err)
		}
		c.Hops = append([]Hop{hop}, c.Hops...)
		if host.Jump == "" {
			c.Hops = append(before, c.Hops...)
		}
		at = host.Jump
	}
	if len(c.Hops) > maxHops {
		return fail(id, fmt.Errorf("%d hops are more than %d", len(c.Hops), maxHops))
	}
	return c, nil
}

// hop completes one host of the fleet; before are jump hosts that its ssh configuration adds.
func (r *resolver) hop(id string, host fleet.Host, secrets func(fleet.SecretRef) (fleet.Secret, error)) (Hop, []Hop, error) {
	h := Hop{ID: id, InFleet: true, Address: host.Address, Port: host.Port, User: host.User, Pins: host.HostKeys, Agent: r.agent}
	if _, err := parsePins(host.HostKeys); err != nil {
		return h, nil, err
	}
	var err error
	if host.KnownHosts != "" {
		path, err := r.file("known_hosts", host.KnownHosts)
		if err != nil {
			return h, nil, err
		}
		h.KnownHosts = []string{path}
	}
	if host.Identity != "" {
		path, err := r.file("identity", host.Identity)
		if err != nil {
			return h, nil, err
		}
		h.Identities = []Identity{{Path: path, Required: true}}
	}
	if h.Passphrase, err = secret("passphrase", host.Passphrase, secrets); err != nil {
		return h, nil, err
	}
	if h.Password, err = secret("password", host.Password, secrets); err != nil {
		return h, nil, err
	}
	var before []Hop
	if host.SSHConfig {
		if before, err = r.fill(&h, host.Jump == "", nil); err != nil {
			return h, nil, err
		}
	}
	return h, before, r.finish(&h)
}

// finish sets the defaults that need no file.
func (r *resolver) finish(h *Hop) error {
	if h.Port == 0 {
		h.Port = 22
	}
	if h.User == "" {
		h.User = r.user
	}
	switch {
	case h.Address == "":
		return fmt.Errorf("host has no address")
	case h.User == "":
		return fmt.Errorf("host has no user, and the local user has no name")
	case h.Port < 1 || h.Port > 65535:
		return fmt.Errorf("port %d is out of range", h.Port)
	}
	return nil
}

// file returns the path of a "file:PATH" reference; "~/" is the user's home.
func (r *resolver) file(field, ref string) (string, error) {
	scheme, path, ok := fleet.SecretRef(ref).Split()
	if !ok || scheme != "file" {
		return "", fmt.Errorf("%s %q is no file reference: want file:PATH", field, ref)
	}
	return r.tilde(path), nil
}

func (r *resolver) tilde(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && r.home != "" {
		return filepath.Join(r.home, rest)
	}
	return path
}

func secret(field string, ref fleet.SecretRef, secrets func(fleet.SecretRef) (fleet.Secret, error)) (fleet.Secret, error) {
	if ref == "" {
		return fleet.Secret{}, nil
	}
	if secrets == nil {
		return fleet.Secret{}, fmt.Errorf("read %s %s: no source of secrets", field, ref)
	}
	s, err := secrets(ref)
	if err != nil {
		return fleet.Secret{}, fmt.Errorf("read %s %s: %w", field, ref, err)
	}
	return s, nil
}
