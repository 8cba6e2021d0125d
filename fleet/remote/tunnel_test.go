package remote

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// echo serves connections that answer what they are sent, after its end when late is set.
func echo(t *testing.T, late bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if late {
					all, _ := io.ReadAll(c)
					_, _ = c.Write(all)
					return
				}
				_, _ = io.Copy(c, c)
			})
		}
	})
	return l.Addr().String()
}

func TestDial(t *testing.T) {
	_, h := one(t, Options{})
	c, err := h.Dial(limited(t), "tcp", echo(t, false))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	for name, c := range map[string]struct {
		addr       string
		prohibited bool
	}{"closed port": {"127.0.0.1:1", false}, "beyond loopback": {"192.0.2.1:80", true}} {
		_, err := h.Dial(limited(t), "tcp", c.addr)
		stage(t, err, "alpha", StageChannel)
		var forward *ForwardError
		var refused *ssh.OpenChannelError
		if !errors.As(err, &forward) || !errors.As(err, &refused) || forward.Prohibited != c.prohibited {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTunnelEchoes(t *testing.T) {
	_, h := one(t, Options{})
	tun, err := h.Tunnel(limited(t), "127.0.0.1:0", echo(t, true))
	if err != nil {
		t.Fatal(err)
	}
	data := content(1 << 20)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			c, err := net.Dial("tcp", tun.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := c.Write(data); err != nil {
				t.Error(err)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes %v", len(got), err)
			}
		})
	}
	wg.Wait()
	if err := tun.Close(); err != nil || tun.Err() != nil {
		t.Error(err, tun.Err())
	}
	if _, err := net.Dial("tcp", tun.Addr()); err == nil {
		t.Error("a closed tunnel listens")
	}
	if n, err := tun.Failures(); n != 0 {
		t.Error(n, err)
	}
}

func TestTunnelCloseEndsItsConnections(t *testing.T) {
	_, h := one(t, Options{})
	tun, err := h.Tunnel(limited(t), "localhost:0", echo(t, false))
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", tun.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = tun.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}

func TestTunnelReportsFailureAndLoss(t *testing.T) {
	s, h := one(t, Options{})
	tun, err := h.Tunnel(limited(t), "127.0.0.1:0", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	c, err := net.Dial("tcp", tun.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadAll(c); err != nil {
		t.Log(err)
	}
	n, last := tun.Failures()
	var forward *ForwardError
	if n != 1 || !errors.As(last, &forward) {
		t.Errorf("%d %v", n, last)
	}
	s.Drop()
	select {
	case <-tun.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the loss was not reported")
	}
	var lost *LostError
	if !errors.As(tun.Err(), &lost) {
		t.Error(tun.Err())
	}
}

func TestTunnelListensOnLoopbackOnly(t *testing.T) {
	_, h := one(t, Options{})
	for _, local := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "nonsense"} {
		_, err := h.Tunnel(limited(t), local, "127.0.0.1:1")
		var refused *CommandError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", local, err)
		}
	}
}
