package netns

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/fleet/remote/loopback"
)

// User is the ordinary account of every host.
const User = "narwhal"

// GateID is the id of the jump host.
const GateID = "gate"

// uid of User; no account of the machine needs it.
const uid = 42042

// HostInfo is one host of the network.
type HostInfo struct {
	ID        string
	Namespace string // its network namespace, for "ip netns exec"
	// Address is reached from the test; Inside only from the other hosts, the jump host included.
	Address string
	Inside  string
	Port    int
	// HostKey is an authorized_keys line, Fingerprint its SHA256.
	HostKey     string
	Fingerprint string
	// Identity is the path of a private key that both accounts let in.
	Identity string
	// RootHome and UserHome are the accounts' home folders, as the host and the test see them.
	RootHome string
	UserHome string

	veth string
}

// Fleet describes the host in a fleet file, for one of the accounts, reached directly.
func (h HostInfo) Fleet(user string) fleet.Host {
	return fleet.Host{Address: h.Address, Port: h.Port, User: user, HostKeys: []string{h.HostKey}, Identity: "file:" + h.Identity}
}

// Behind describes the host as reached only through the jump host with this id.
func (h HostInfo) Behind(jump, user string) fleet.Host {
	host := h.Fleet(user)
	host.Address, host.Jump = h.Inside, jump
	return host
}

// Cut takes the host's outer link down: packets vanish, and nobody is told.
func (h HostInfo) Cut(t testing.TB) { t.Helper(); ip(t, "link", "set", h.veth, "down") }

// Mend takes the link up again.
func (h HostInfo) Mend(t testing.TB) { t.Helper(); ip(t, "link", "set", h.veth, "up") }

// Up builds n hosts, alpha-1 … alpha-n, and then the jump host, and takes all down with the test.
func Up(t testing.TB, n int) []HostInfo {
	t.Helper()
	sshd := require(t, n)
	dir := folder(t)
	key, err := loopback.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	identity := write(t, dir, "identity", key.Private, 0o600)
	keys := write(t, dir, "authorized_keys", []byte(key.Public+"\n"), 0o644)
	w := newNetwork(t)
	var hosts []HostInfo
	for i := 1; i <= n+1; i++ {
		id := "alpha-" + strconv.Itoa(i)
		if i == n+1 {
			id = GateID
		}
		h := w.host(t, id, i)
		h.Identity, h.Port = identity, 22
		serve(t, sshd, &h, filepath.Join(dir, id), keys)
		hosts = append(hosts, h)
	}
	for _, h := range hosts {
		await(t, h)
	}
	return hosts
}

func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "narwhal-netns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// The ordinary user reads authorized_keys and its home below it.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, dir, name string, text []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// await waits for the host's sshd.
func await(t testing.TB, h HostInfo) {
	t.Helper()
	addr := net.JoinHostPort(h.Address, strconv.Itoa(h.Port))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("sshd of %s does not answer: %v", h.ID, err)
		}
	}
}

// network is one bridge here and one in a namespace of its own.
type network struct {
	tag    string // of every name, so that two tests do not meet
	subnet int    // third byte of 198.18.x.0/24 and 198.19.x.0/24, the range for benchmarks
	swtch  string // namespace of the inner bridge
}

func newNetwork(t testing.TB) network {
	t.Helper()
	w := network{tag: fmt.Sprintf("nw%05x", rand.Uint32()&0xfffff)}
	w.subnet = freeSubnet(t)
	w.swtch = w.tag + "-switch"
	bridge := w.tag + "br"
	t.Cleanup(func() { quiet("link", "del", bridge) })
	ip(t, "link", "add", bridge, "type", "bridge")
	ip(t, "addr", "add", fmt.Sprintf("198.18.%d.254/24", w.subnet), "dev", bridge)
	ip(t, "link", "set", bridge, "up")
	t.Cleanup(func() { quiet("netns", "del", w.swtch) })
	ip(t, "netns", "add", w.swtch)
	ip(t, "-n", w.swtch, "link", "add", "inner", "type", "bridge")
	ip(t, "-n", w.swtch, "link", "set", "inner", "up")
	return w
}

// host makes the namespace of host i with a link to each bridge.
func (w network) host(t testing.TB, id string, i int) HostInfo {
	t.Helper()
	h := HostInfo{
		ID: id, Namespace: w.tag + "-" + id, veth: fmt.Sprintf("%sv%d", w.tag, i),
		Address: fmt.Sprintf("198.18.%d.%d", w.subnet, i), Inside: fmt.Sprintf("198.19.%d.%d", w.subnet, i),
	}
	t.Cleanup(func() {
		killAll(h.Namespace)
		quiet("netns", "del", h.Namespace)
		quiet("link", "del", h.veth)
	})
	ip(t, "netns", "add", h.Namespace)
	ip(t, "-n", h.Namespace, "link", "set", "lo", "up")
	ip(t, "link", "add", h.veth, "type", "veth", "peer", "name", "eth0", "netns", h.Namespace)
	ip(t, "link", "set", h.veth, "master", w.tag+"br", "up")
	ip(t, "-n", h.Namespace, "addr", "add", h.Address+"/24", "dev", "eth0")
	ip(t, "-n", h.Namespace, "link", "set", "eth0", "up")
	inner := fmt.Sprintf("in%d", i)
	ip(t, "-n", w.swtch, "link", "add", inner, "type", "veth", "peer", "name", "eth1", "netns", h.Namespace)
	ip(t, "-n", w.swtch, "link", "set", inner, "master", "inner", "up")
	ip(t, "-n", h.Namespace, "addr", "add", h.Inside+"/24", "dev", "eth1")
	ip(t, "-n", h.Namespace, "link", "set", "eth1", "up")
	return h
}
