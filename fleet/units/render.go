package units

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/fleet"
)

// service is what a unit's text depends on.
type service struct {
	fleet     fleet.Fleet
	host      string
	process   string
	user      bool
	sidecar   bool
	contained bool   // its engine runs in a container
	listen    string // of a router
}

// launchMark stands for the file with the launch until the set has a name. It has no character
// that quoting changes.
const launchMark = "@narwhal-launch-file@"

func expand(content []byte, launch string) []byte {
	return bytes.ReplaceAll(content, []byte(`"`+launchMark+`"`), []byte(quote(launch, true)))
}

// stopSlack is what systemd waits, in seconds, beyond the time in which requests may end.
const stopSlack = 40

func (s service) render() []byte {
	root := s.fleet.Deploy.Hosts[s.host].Root
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("# Written by narwhal, gate B. What is changed here is found and written anew.")
	line("[Unit]")
	line("Description=narwhal %s of fleet %s", s.process, s.fleet.Deploy.Name)
	if !s.user {
		line("Wants=network-online.target")
		line("After=network-online.target")
		line("RequiresMountsFor=%s", quote(root, false))
	}
	line("StartLimitIntervalSec=300")
	line("StartLimitBurst=5")
	line("")
	line("[Service]")
	line("Type=exec")
	line("ExecStart=%s host become %s \"%s\"", quote(path.Join(root, "current", "narwhal"), true), quote(path.Join(root, "run"), true), launchMark)
	log := percent(path.Join(root, "run", s.process+".log"))
	line("StandardOutput=append:%s", log)
	line("StandardError=append:%s", log)
	if !s.sidecar && len(RouterSecrets(s.fleet)) > 0 {
		line("EnvironmentFile=-%s", percent(path.Join(root, SecretFile)))
	}
	line("Restart=on-failure")
	line("RestartSec=2")
	line("KillMode=mixed")
	line("TimeoutStopSec=%d", stopSlack+int(math.Ceil(s.fleet.Serving.GracefulTimeoutS)))
	line("UMask=0077")
	line("LimitNOFILE=1048576")
	for _, l := range s.sandbox() {
		line("%s", l)
	}
	if !s.sidecar { // the process that a sidecar speaks for does not outlive its boot
		line("")
		line("[Install]")
		line("WantedBy=%s", map[bool]string{false: "multi-user.target", true: "default.target"}[s.user])
	}
	return []byte(b.String())
}

// families are what a router or a sidecar opens sockets of.
const families = "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"

// sandbox is what the process cannot do. A user's manager can lay no mounts over the host's
// without a user namespace, which would hide the engines' processes.
func (s service) sandbox() []string {
	if s.contained { // it asks the container's runtime, which needs the host as it is
		return nil
	}
	out := []string{"NoNewPrivileges=yes", families, "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "LockPersonality=yes", "MemoryDenyWriteExecute=yes", "SystemCallArchitectures=native"}
	if s.user {
		return out
	}
	out = append(out, "ProtectSystem=strict", "ReadWritePaths="+s.writes(), "ProtectKernelModules=yes", "ProtectClock=yes", "ProtectHostname=yes", "RestrictNamespaces=yes")
	if s.sidecar {
		// What it shows of the engine is another process's, and the model may lie anywhere.
		return append(out, "CapabilityBoundingSet=CAP_SYS_PTRACE CAP_DAC_READ_SEARCH", "ProtectHome=read-only")
	}
	out = append(out, "CapabilityBoundingSet="+s.capabilities(), "ProtectKernelTunables=yes", "ProtectKernelLogs=yes", "ProtectControlGroups=yes", "PrivateDevices=yes", "SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM")
	if s.below(homes...) {
		out = append(out, "ProtectHome=read-only")
	} else {
		out = append(out, "ProtectHome=yes")
	}
	if !s.below(temps...) {
		out = append(out, "PrivateTmp=yes")
	}
	return out
}

// Folders of which a router sees nothing, unless something that it opens lies below one.
var (
	homes = []string{"/home", "/root", "/run/user"}
	temps = []string{"/tmp", "/var/tmp"}
)

// Hides lists the folders that units of a host do not show to their process.
func Hides(f fleet.Fleet, host string) (out []string) {
	for _, u := range Of(f, host) {
		if bytes.Contains(u.Content, []byte("\nProtectHome=yes\n")) {
			out = append(out, homes...)
		}
		if bytes.Contains(u.Content, []byte("\nPrivateTmp=yes\n")) {
			out = append(out, temps...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// capabilities let a router listen on a port of the system's.
func (s service) capabilities() string {
	_, port, err := net.SplitHostPort(s.listen)
	if n, perr := strconv.Atoi(port); err == nil && perr == nil && n < 1024 {
		return "CAP_NET_BIND_SERVICE"
	}
	return ""
}

// writes are the folders that may be written: the root, and that of a lease file.
func (s service) writes() string {
	out := quote(s.fleet.Deploy.Hosts[s.host].Root, false)
	if lease := s.fleet.Deploy.Router.Lease.Path; lease != "" && !s.sidecar {
		out += " " + quote("-"+path.Dir(lease), false)
	}
	return out
}

// below reports whether something that a router opens on its host lies below one of the folders.
func (s service) below(folders ...string) bool {
	r := s.fleet.Deploy.Router
	opens := []string{s.fleet.Deploy.Hosts[s.host].Root, r.Lease.Path, file(r.HTTP.Tenants), file(string(r.HTTP.ControlToken))}
	if e := r.Lease.Etcd; e != nil {
		opens = append(opens, file(e.CA), file(e.Cert), file(e.Key), file(string(e.Password)))
	}
	return slices.ContainsFunc(opens, func(p string) bool {
		return slices.ContainsFunc(folders, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
	})
}

// file is the path of a file reference, "" of another one.
func file(ref string) string {
	if p, ok := strings.CutPrefix(ref, "file:"); ok {
		return path.Clean(p)
	}
	return ""
}

// percent keeps systemd from reading specifiers in a path.
func percent(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// quote writes one word of a unit; in a command a dollar sign would begin a variable.
func quote(s string, command bool) string {
	s = percent(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s))
	if command {
		s = strings.ReplaceAll(s, "$", "$$")
	}
	return `"` + s + `"`
}
