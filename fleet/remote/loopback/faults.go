package loopback

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/ssh"
)

// faults are the injected failures of one server.
type faults struct {
	refuse atomic.Bool
	space  atomic.Int64 // bytes that SFTP may still write; negative = no limit
	mu     sync.Mutex
	muted  chan struct{} // closed to let traffic pass again; nil = not muted
	cut    atomic.Int64  // bytes that may still come in on one connection after another; 0 = no limit
}

// gatedConn holds traffic back while its server is muted.
type gatedConn struct {
	net.Conn
	faults *faults
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.faults.pass()
	if c.faults.spend(int64(n)) {
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	c.faults.pass()
	return c.Conn.Write(b)
}

func (f *faults) pass() {
	f.mu.Lock()
	gate := f.muted
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// Mute sets whether traffic is held back.
func (f *faults) Mute(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on == (f.muted != nil) {
		return
	}
	if on {
		f.muted = make(chan struct{})
		return
	}
	close(f.muted)
	f.muted = nil
}

// Drop closes every connection now. Processes go on.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// Refuse sets whether new connections are closed as soon as they are accepted.
func (s *Server) Refuse(on bool) { s.faults.refuse.Store(on) }

// Mute sets whether the server stops reading and answering while its connections stay open,
// as a host whose network is gone.
func (s *Server) Mute(on bool) { s.faults.Mute(on) }

// SetHostKey changes the host key (a private key as PEM) for connections that come after.
func (s *Server) SetHostKey(private []byte) error {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return fmt.Errorf("read host key: %w", err)
	}
	s.signer.Store(&signer)
	return nil
}

// FillAfter lets SFTP write n more bytes and then fails with ENOSPC; a negative n lifts the limit.
func (s *Server) FillAfter(n int64) { s.faults.space.Store(n) }

// CutAfter drops the connection on which the n-th byte from now comes in, once; 0 lifts it.
func (s *Server) CutAfter(n int64) { s.faults.cut.Store(max(n, 0)) }

// spend counts bytes that came in; it is true once, when a cut is due.
func (f *faults) spend(n int64) bool {
	for {
		left := f.cut.Load()
		if left == 0 {
			return false
		}
		if f.cut.CompareAndSwap(left, max(left-n, 0)) {
			return left <= n
		}
	}
}

// take reserves n bytes of the simulated space.
func (f *faults) take(n int64) bool {
	for {
		left := f.space.Load()
		if left < 0 {
			return true
		}
		if left < n {
			return false
		}
		if f.space.CompareAndSwap(left, left-n) {
			return true
		}
	}
}
