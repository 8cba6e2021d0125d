package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kevinburke/ssh_config"
)

// fileKeys are the settings that are read from files where no ssh client is installed.
var fileKeys = []string{"HostName", "Port", "User", "HostKeyAlias", "IdentityFile", "IdentitiesOnly",
	"UserKnownHostsFile", "GlobalKnownHostsFile", "IdentityAgent", "ProxyJump", "ProxyCommand"}

// readFiles reads the ssh configuration without a client. It knows no Match and only the tokens
// of expandPaths; a file that it cannot read whole is an error.
func (r *resolver) readFiles(alias, user string, port int) (settings, error) {
	s := settings{}
	for _, path := range r.files {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read ssh configuration: %w", err)
		}
		cfg, err := ssh_config.DecodeBytes(text)
		if err != nil {
			return nil, fmt.Errorf("read ssh configuration %s without an ssh client: %w", path, err)
		}
		for _, key := range fileKeys {
			values, err := cfg.GetAll(alias, key)
			if err != nil {
				return nil, fmt.Errorf("read ssh configuration %s: %w", path, err)
			}
			low := strings.ToLower(key)
			if low == "identityfile" {
				s[low] = append(s[low], values...)
			} else if len(values) > 0 && len(s[low]) == 0 {
				s[low] = values[:1]
			}
		}
	}
	r.defaults(s, user, port)
	s.expandName(alias)
	return s, nil
}

func (r *resolver) defaults(s settings, user string, port int) {
	if user != "" {
		s["user"] = []string{user}
	}
	if port != 0 {
		s["port"] = []string{strconv.Itoa(port)}
	}
	set := func(key, value string) {
		if len(s[key]) == 0 {
			s[key] = []string{value}
		}
	}
	set("user", r.user)
	set("port", "22")
	set("globalknownhostsfile", "/etc/ssh/ssh_known_hosts")
	if r.home == "" {
		return
	}
	dir := filepath.Join(r.home, ".ssh")
	set("userknownhostsfile", filepath.Join(dir, "known_hosts"))
	if len(s["identityfile"]) == 0 {
		for _, name := range []string{"id_rsa", "id_ecdsa", "id_ed25519"} {
			s["identityfile"] = append(s["identityfile"], filepath.Join(dir, name))
		}
	}
}

// expandName replaces the tokens of HostName, as ssh does.
func (s settings) expandName(alias string) {
	if v := s.first("hostname"); v != "" {
		s["hostname"] = []string{strings.NewReplacer("%%", "%", "%h", alias, "%n", alias).Replace(v)}
	}
}

// expandPaths replaces %d %h %n %p %r %u %% in paths. "ssh -G" prints them as they are written.
func (r *resolver) expandPaths(s settings, alias string) {
	host := alias
	if v := s.first("hostname"); v != "" {
		host = v
	}
	tokens := strings.NewReplacer("%%", "%", "%h", host, "%n", alias, "%d", r.home,
		"%p", s.first("port"), "%r", s.first("user"), "%u", r.user)
	for _, key := range []string{"identityfile", "userknownhostsfile", "globalknownhostsfile", "identityagent"} {
		for i, v := range s[key] {
			s[key][i] = tokens.Replace(v)
		}
	}
}
