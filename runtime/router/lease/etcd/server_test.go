package etcd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

// serves finds in the server's log the address that port 0 became.
var serves = regexp.MustCompile(`client (?:requests|traffic).*?"address": ?"(127\.0\.0\.1:\d+)"|client requests on (127\.0\.0\.1:\d+)`)

// startServer runs an etcd of its own and returns its endpoint and a function that stops
// it, or skips where etcd is not installed and not required.
func startServer(t *testing.T, args ...string) (endpoint string, process *os.Process) {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		if os.Getenv("NARWHAL_REQUIRE_ETCD") == "1" {
			t.Fatal("etcd is required and not installed")
		}
		t.Skip("etcd is not installed")
	}
	const any = "http://127.0.0.1:0"
	ctx, cancel := context.WithCancel(context.Background())
	// A short election timeout lets etcd grant one second instead of two.
	c := exec.CommandContext(ctx, path, append([]string{"--name", "one", "--data-dir", t.TempDir(), "--logger", "zap", "--log-outputs", "stderr",
		"--listen-client-urls", any, "--advertise-client-urls", any, "--listen-peer-urls", any, "--initial-advertise-peer-urls", any,
		"--initial-cluster", "one=" + any, "--heartbeat-interval", "20", "--election-timeout", "200"}, args...)...)
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	address, drained := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(drained)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if m := serves.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case address <- m[1] + m[2]:
				default:
				}
			}
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		cancel()
		<-drained
		_ = c.Wait()
	})
	select {
	case a := <-address:
		return a, c.Process
	case <-drained:
		t.Fatal("etcd ended at its start")
	case <-time.After(30 * time.Second):
		t.Fatal("etcd does not serve after 30 s")
	}
	return "", nil
}

func open(t *testing.T, endpoint, key, holder string, ttl, margin time.Duration) *Store {
	t.Helper()
	s, err := Open(Options{Endpoints: []string{endpoint}, Key: key, Holder: holder, TTL: ttl, Margin: margin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// expire makes etcd end the lease of a term now, as its clock does later.
func expire(t *testing.T, l lease.Lease, term lease.Term) {
	t.Helper()
	s := l.(*Store)
	r, err := s.fetch(t.Context())
	if err != nil || !r.doc.Is(term) {
		t.Fatalf("%+v is not stored: %+v, %v", term, r, err)
	}
	if _, err := s.client.Revoke(t.Context(), r.id); err != nil {
		t.Fatal(err)
	}
}

// awaitEnd returns when the key of s is deleted after revision.
func awaitEnd(t *testing.T, s *Store, revision int64) {
	t.Helper()
	for res := range s.client.Watch(t.Context(), s.o.Key, clientv3.WithRev(revision+1)) {
		if err := res.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range res.Events {
			if e.Type == clientv3.EventTypeDelete {
				return
			}
		}
	}
	t.Fatal("the watch ended")
}

func key(t *testing.T) string { return fmt.Sprintf("/narwhal/%s/lease", t.Name()) }
