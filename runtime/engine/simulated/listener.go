package simulated

import (
	"net"
	"sync"
)

// listener can close for a while and open again on the same address.
type listener struct {
	mu     sync.Mutex
	ln     net.Listener
	addr   net.Addr
	opened chan struct{} // closed when open again
	closed bool
}

func listen(addr string) (*listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &listener{ln: ln, addr: ln.Addr(), opened: make(chan struct{})}, nil
}

// Accept waits through times of refusal.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		ln, opened, closed := l.ln, l.opened, l.closed
		l.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		if ln == nil {
			<-opened
			continue
		}
		conn, err := ln.Accept()
		if err == nil {
			return conn, nil
		}
		l.mu.Lock()
		refusing := l.ln != ln
		l.mu.Unlock()
		if !refusing {
			return nil, err
		}
	}
}

// refuse closes the port until reopen.
func (l *listener) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ln != nil {
		l.ln.Close()
		l.ln, l.opened = nil, make(chan struct{})
	}
}

func (l *listener) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ln != nil || l.closed {
		return nil
	}
	ln, err := net.Listen("tcp", l.addr.String())
	if err != nil {
		return err
	}
	l.ln = ln
	close(l.opened)
	return nil
}

// Close ends the listener for good.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.ln == nil {
		close(l.opened)
		return nil
	}
	err := l.ln.Close()
	l.ln = nil
	return err
}

// Addr is the address of the first opening.
func (l *listener) Addr() net.Addr { return l.addr }
