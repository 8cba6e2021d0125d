package drills

import (
	"fmt"
	"net"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
	"github.com/narwhal-fleet/narwhal/internal/sandbox"
)

// reachFaults are between the workstation and a host.
var reachFaults = []fault{
	{id: "host-closed", where: "network", how: "nothing listens on the host's port", do: set(1, "deploy", "hosts", "host-2", "port"), code: "step-failed", exit: 4, says: "connection refused", hint: "sshd"},
	{id: "host-name", where: "network", how: "the host's name does not resolve", do: set("no-such-host.invalid", "deploy", "hosts", "host-2", "address"), code: "step-failed", exit: 4, says: "no such host", hint: "address"},
	{id: "host-drops", where: "network", how: "the host closes every connection", do: func(s *scene) {
		s.w.sbx.Server(1).Refuse(true)
		s.heal(func() { s.w.sbx.Server(1).Refuse(false) })
	}, code: "step-failed", exit: 4, says: "handshake", quick: true},
	{id: "host-mute", where: "network", how: "the host takes connections and says nothing", do: both(set("2s", "deploy", "limits", "connect"), func(s *scene) {
		s.w.sbx.Server(1).Mute(true)
		s.heal(func() { s.w.sbx.Server(1).Mute(false) })
	}), code: "step-failed", exit: 4},
	{id: "host-no-ssh", where: "network", how: "another service answers on the host's port", do: other("HTTP/1.1 400 Bad Request\r\n\r\n"), code: "step-failed", exit: 4},
	{id: "host-banner-flood", where: "network", how: "the port sends text without end", do: other(""), code: "step-failed", exit: 4},
	{id: "host-key-changed", where: "host key", how: "the host has another key", do: func(s *scene) {
		key, err := loopback.GenerateKey()
		must(s.t, err)
		was := s.w.hostKey(1)
		must(s.t, s.w.sbx.Server(1).SetHostKey(key.Private))
		s.heal(func() { must(s.t, s.w.sbx.Server(1).SetHostKey(was)) })
	}, code: "step-failed", exit: 8, says: "changed", hint: "operator", quick: true},
	{id: "host-key-unknown", where: "host key", how: "no key of the host is pinned", do: set([]any{}, "deploy", "hosts", "host-2", "host_keys"), code: "step-failed", exit: 8, says: "is unknown", hint: "compare"},
	{id: "host-key-of-another", where: "host key", how: "the address leads to another host of the fleet", do: func(s *scene) {
		s.deploy("hosts", "host-2")["port"] = s.hosts[0].Ports.SSH
	}, code: "step-failed", exit: 8, says: "changed", hint: "host"},
	{id: "identity-absent", where: "key", how: "the SSH key is not there", do: set("file:keys/none", "deploy", "hosts", "host-2", "identity"), code: "step-failed", exit: 4, says: "none"},
	{id: "identity-foreign", where: "key", how: "the host does not know the SSH key", do: func(s *scene) {
		key, err := loopback.GenerateKey()
		must(s.t, err)
		keyFile("foreign", string(key.Private), 0o600)(s)
		s.deploy("hosts", "host-2")["identity"] = "file:keys/foreign"
	}, code: "step-failed", exit: 4, says: "not let in", hint: "authorized_keys"},
	{id: "identity-garbage", where: "key", how: "the SSH key is no key", do: both(keyFile("junk", "junk", 0o600), set("file:keys/junk", "deploy", "hosts", "host-2", "identity")), code: "step-failed", exit: 4, says: "no key found"},
	{id: "shell-banner", where: "host tool output", how: "the login shell prints a greeting before everything", do: filter(1, `echo "Welcome to host-2!"; cat`), code: "step-failed", exit: 4, says: "no number"},
	{id: "shell-nologin", where: "host tool output", how: "the account may not log in", do: filter(1, `cat >/dev/null; echo "This account is currently not available."; exit 1`), code: "step-failed", exit: 4, says: "exit"},
	{id: "shell-silent", where: "host tool output", how: "every command succeeds and says nothing", do: filter(1, `cat >/dev/null`), code: "host-unreadable", exit: 1},
	{id: "shell-cut", where: "host tool output", how: "every answer ends after 200 bytes", do: filter(1, `head -c 200`), code: "host-unreadable", exit: 1},
	{id: "shell-flood", where: "host tool output", how: "every answer goes on for 64 MiB", do: filter(1, `cat; head -c 67108864 /dev/zero | tr '\0' 'x'`), code: "step-failed", exit: 4, says: "longer than the limit"},
	{id: "shell-hostile", where: "host tool output", how: "answers hold terminal sequences and bytes that are no text", do: filter(1, `printf '\033[2J\033]0;owned\007\377\376\n== end\n'`), code: "host-unreadable", exit: 1},
}

// other serves a port that is no SSH server in place of host-2; without text it never stops.
func other(text string) func(*scene) {
	return func(s *scene) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(s.t, err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_ = c.SetDeadline(time.Now().Add(20 * time.Second))
					_, err := fmt.Fprint(c, text)
					for text == "" && err == nil {
						_, err = fmt.Fprintln(c, "a line that is no version")
					}
				}()
			}
		}()
		s.heal(func() { _ = l.Close() })
		s.deploy("hosts", "host-2")["port"] = l.Addr().(*net.TCPAddr).Port
	}
}

func portEngine(h sandbox.Host) int  { return h.Ports.Engine }
func portSide(h sandbox.Host) int    { return h.Ports.Side }
func portSidecar(h sandbox.Host) int { return h.Ports.Sidecar }
func portFabric(h sandbox.Host) int  { return h.Ports.Fabric }
func portRouter(h sandbox.Host) int  { return h.Ports.Router }
