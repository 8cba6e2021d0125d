package etcd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
)

const (
	childEnv = "ETCD_TEST_CHILD" // "hold" or "guard", endpoint, key, holder
	// longTTL is far beyond the test: what is claimed below was not claimed by expiry.
	longTTL = 10 * time.Minute
)

// TestMain is also the holder that the test kills, and its guard.
func TestMain(m *testing.M) {
	f := strings.Fields(os.Getenv(childEnv))
	if len(f) == 0 {
		os.Exit(m.Run())
	}
	if err := child(f[0], f[1], f[2], f[3]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func child(verb, endpoint, key, holder string) error {
	ctx := context.Background()
	s, err := Open(Options{Endpoints: []string{endpoint}, Key: key, Holder: holder, TTL: longTTL, Margin: margin})
	if err != nil {
		return err
	}
	if verb == "guard" {
		return lease.Guard(ctx, os.Stdin, s, holder, longTTL)
	}
	term, err := s.Claim(ctx)
	if err != nil {
		return err
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"=guard "+endpoint+" "+key+" "+holder)
	if _, err := lease.StartGuard(c); err != nil {
		return err
	}
	fmt.Printf("holds %d\n", term.Epoch)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// TestGuardOfAKilledHolder: a holder in etcd that is killed loses its lease to its guard's
// word, long before its time to live ends.
func TestGuardOfAKilledHolder(t *testing.T) {
	endpoint, _ := startServer(t)
	b := open(t, endpoint, key(t), "b", ttl, margin)
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"=hold "+endpoint+" "+key(t)+" a")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Process.Kill(); _ = c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "holds 1\n" {
		t.Fatalf("holder: %q, %v", line, err)
	}
	r, err := b.fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Claim(t.Context()); err == nil {
		t.Fatal("claimed beside a living holder")
	}
	killed := time.Now()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, b, r.revision)
	term, err := b.Claim(t.Context())
	gap := time.Since(killed)
	t.Logf("claimed %v after the kill", gap)
	if err != nil || term.Epoch != 2 || gap > time.Minute {
		t.Errorf("claimed %+v after %v: %v", term, gap, err)
	}
}
