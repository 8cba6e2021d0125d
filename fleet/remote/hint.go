package remote

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// Hint returns what to do about an error of this package, "" where nothing is known.
func Hint(err error) string {
	for _, hint := range []func(error) string{keyHint, authHint, runHint, hopHint} {
		if s := hint(err); s != "" {
			return s
		}
	}
	return ""
}

func keyHint(err error) string {
	var unknown *UnknownHostKeyError
	if errors.As(err, &unknown) {
		kind := strings.TrimPrefix(strings.TrimPrefix(keyType(unknown.Pin), "ssh-"), "ecdsa-sha2-")
		if strings.HasPrefix(kind, "nistp") {
			kind = "ecdsa"
		}
		check := fmt.Sprintf("compare %s with what the host's console says (ssh-keygen -lf /etc/ssh/ssh_host_%s_key.pub), then add ", unknown.Fingerprint, kind)
		if unknown.FleetLine != "" {
			return check + "to the fleet file: " + unknown.FleetLine
		}
		return check + "to known_hosts: " + unknown.KnownHostsLine
	}
	var changed *ChangedHostKeyError
	if !errors.As(err, &changed) {
		return ""
	}
	if changed.Revoked {
		return "the key is marked @revoked: give the host a new key, then pin that"
	}
	where := "deploy.hosts." + changed.Host + ".host_keys"
	if len(changed.Want) > 0 && !strings.HasPrefix(changed.Want[0].Source, "pin ") {
		where = changed.Want[0].Source
	}
	return "somebody may be in between, or the host was installed anew: ask its operator, and only then change " + where
}

func authHint(err error) string {
	var auth *AuthError
	if !errors.As(err, &auth) {
		return ""
	}
	var hop *HopError
	at := "the host"
	if errors.As(err, &hop) {
		at = "deploy.hosts." + hop.Hop
	}
	switch {
	case len(auth.Problems) > 0:
		return "set passphrase at " + at + " to a reference (env:NAME or file:PATH), or load the key with ssh-add"
	case len(auth.Tried) == 0:
		return "load a key with ssh-add, or set identity at " + at + " to file:PATH"
	}
	return "put the public key into ~" + auth.User + "/.ssh/authorized_keys on the host, or set another user or identity at " + at
}

func runHint(err error) string {
	var full *NoSpaceError
	var lost *LostError
	var limit *LimitError
	var forward *ForwardError
	var proxy *ProxyCommandError
	switch {
	case errors.As(err, &full):
		return fmt.Sprintf("free %d bytes on the file system of %s, or set another root for host %s", full.Need-full.Free, full.Path, full.Host)
	case errors.As(err, &lost):
		return "what ran on " + lost.Host + " may have been done or not: the next run looks before it repeats anything"
	case errors.As(err, &limit):
		return "the process group was killed on the host; raise the step's limit if the host is merely slow"
	case errors.As(err, &forward) && forward.Prohibited:
		return "set AllowTcpForwarding yes (or local) in the host's sshd_config, and check PermitOpen"
	case errors.As(err, &forward):
		return "check on the host that something listens: ss -ltn"
	case errors.As(err, &proxy):
		return "set jump in the fleet file, or ProxyJump in the ssh configuration"
	}
	return ""
}

func hopHint(err error) string {
	var hop *HopError
	if !errors.As(err, &hop) {
		return ""
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "set address at deploy.hosts." + hop.Hop + " to a name that resolves here, or to an IP address"
	case hop.Stage == StageResolve:
		return "look at deploy.hosts." + hop.Hop + " in the fleet file"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at " + hop.Addr + ": check that sshd runs there, and the port"
	case hop.Stage == StageConnect:
		return "check the route and firewall to " + hop.Addr + ", or set jump at deploy.hosts." + hop.Hop
	case hop.Stage == StageHandshake:
		return "check that an SSH server answers at " + hop.Addr + ", and that MaxStartups of its sshd_config lets enough connections start"
	case hop.Stage == StageChannel:
		return "check MaxSessions, ForceCommand and Subsystem sftp in the host's sshd_config"
	}
	return ""
}
