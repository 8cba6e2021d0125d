package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Dial connects from the host to addr over TCP. The connection has no deadlines; close it to end
// what waits on it. A refusal is a *HopError with StageChannel that wraps *ssh.OpenChannelError.
func (h *Host) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if network != "tcp" {
		return nil, &CommandError{Host: h.id, Reason: fmt.Sprintf("network %q is not tcp", network)}
	}
	op := Operation{Kind: KindDial, Host: h.id, Address: addr}
	if err := h.permit(op); err != nil {
		return nil, err
	}
	started := h.opts.Now()
	c, err := h.dial(ctx, addr)
	h.trace(op, started, Outcome{Err: err})
	return c, err
}

func (h *Host) dial(ctx context.Context, addr string) (net.Conn, error) {
	if err := h.ended(ctx); err != nil {
		return nil, err
	}
	c, err := h.conn.client.DialContext(ctx, "tcp", addr)
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var refused *ssh.OpenChannelError
	if errors.As(err, &refused) {
		err = &ForwardError{Addr: addr, Prohibited: refused.Reason == ssh.Prohibited, Err: err}
	}
	return nil, h.channelError(err)
}

// ForwardError is a connection that the host did not make for us.
type ForwardError struct {
	Addr       string
	Prohibited bool // the SSH server forbids it; otherwise connecting failed
	Err        error
}

func (e *ForwardError) Error() string {
	if e.Prohibited {
		return fmt.Sprintf("forward to %s: the ssh server forbids it", printable(e.Addr))
	}
	return fmt.Sprintf("forward to %s: %s", printable(e.Addr), printable(e.Err.Error()))
}

func (e *ForwardError) Unwrap() error { return e.Err }

// Tunnel carries connections from a loopback address here to an address as the host sees it.
type Tunnel struct {
	host     *Host
	remote   string
	listener net.Listener
	done     chan struct{}
	wg       sync.WaitGroup
	cancel   context.CancelFunc

	mu     sync.Mutex
	closed bool
	err    error
	open   map[net.Conn]bool
	failed int
	last   error
}

// Tunnel listens on local, a loopback address (port 0 takes a free one), until Close, the end of
// ctx, or the loss of the host's connection.
func (h *Host) Tunnel(ctx context.Context, local, remote string) (*Tunnel, error) {
	host, _, err := net.SplitHostPort(local)
	if err != nil {
		return nil, &CommandError{Host: h.id, Reason: fmt.Sprintf("%q is no local address with a port", local)}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, &CommandError{Host: h.id, Reason: fmt.Sprintf("a tunnel listens on loopback only, not on %q", host)}
	}
	op := Operation{Kind: KindTunnel, Host: h.id, Address: remote, Local: local}
	if err := h.permit(op); err != nil {
		return nil, err
	}
	if err := h.ended(ctx); err != nil {
		return nil, err
	}
	started := h.opts.Now()
	l, err := net.Listen("tcp", local)
	h.trace(op, started, Outcome{Err: err})
	if err != nil {
		return nil, fmt.Errorf("open tunnel to %s on host %s: %w", printable(remote), h.id, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &Tunnel{host: h, remote: remote, listener: l, done: make(chan struct{}), cancel: cancel, open: map[net.Conn]bool{}}
	t.wg.Go(func() { t.accept(ctx) })
	t.wg.Go(func() { t.watch(ctx) })
	return t, nil
}

// Addr is the local address.
func (t *Tunnel) Addr() string { return t.listener.Addr().String() }

// Done is closed when the tunnel has ended for any reason.
func (t *Tunnel) Done() <-chan struct{} { return t.done }

// Err is nil while the tunnel works and after Close; a *LostError after the loss of the host's
// connection; otherwise the context's cause.
func (t *Tunnel) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Failures counts connections that the host did not make, with the last reason.
func (t *Tunnel) Failures() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed, t.last
}

// Close ends the tunnel with its connections and waits for them.
func (t *Tunnel) Close() error {
	t.end(nil)
	t.wg.Wait()
	return nil
}

// end closes everything once and keeps the first reason.
func (t *Tunnel) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed, t.err = true, err
	_ = t.listener.Close()
	t.cancel()
	for c := range t.open {
		_ = c.Close()
	}
	close(t.done)
}

func (t *Tunnel) watch(ctx context.Context) {
	select {
	case <-t.host.conn.lost:
		t.end(t.host.lostError())
	case <-ctx.Done():
		t.end(context.Cause(ctx))
	}
}

func (t *Tunnel) accept(ctx context.Context) {
	for {
		c, err := t.listener.Accept()
		if err != nil {
			select {
			case <-t.done:
				return
			case <-time.After(10 * time.Millisecond): // out of descriptors, for one
				continue
			}
		}
		if !t.add(c) {
			_ = c.Close()
			return
		}
		t.wg.Go(func() {
			defer t.remove(c)
			t.carry(ctx, c)
		})
	}
}

func (t *Tunnel) add(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.open[c] = true
	return true
}

func (t *Tunnel) remove(c net.Conn) {
	_ = c.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
}

// carry copies both ways until both have ended; the end of one way is passed on alone.
func (t *Tunnel) carry(ctx context.Context, local net.Conn) {
	remote, err := t.host.dial(ctx, t.remote)
	if err != nil {
		t.mu.Lock()
		t.failed, t.last = t.failed+1, err
		t.mu.Unlock()
		return
	}
	if !t.add(remote) {
		_ = remote.Close()
		return
	}
	defer t.remove(remote)
	var wg sync.WaitGroup
	wg.Go(func() { pass(remote, local) })
	pass(local, remote)
	wg.Wait()
}

// pass copies one way. A failed write ends both ways.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
	_ = from.Close()
}
