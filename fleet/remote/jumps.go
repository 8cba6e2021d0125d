package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Jumps shares the connections to jump hosts among many hosts, so that 64 hosts behind one
// jump host cost it one connection. Its methods may be called concurrently.
type Jumps struct {
	mu     sync.Mutex
	conns  map[string]*jump
	closed bool
}

// jump is a connection that is being made or is there.
type jump struct {
	ready chan struct{}
	conn  *conn
	err   error
}

// NewJumps returns an empty set. The caller closes it after the hosts that use it.
func NewJumps() *Jumps { return &Jumps{conns: map[string]*jump{}} }

// Close ends the connections.
func (j *Jumps) Close() error {
	j.mu.Lock()
	j.closed = true
	conns := j.conns
	j.conns = map[string]*jump{}
	j.mu.Unlock()
	for _, e := range conns {
		<-e.ready
	}
	for _, e := range conns {
		if e.conn != nil {
			e.conn.close()
		}
	}
	return nil
}

// reach returns the connection to the last of hops, nil for none.
func (j *Jumps) reach(ctx context.Context, host string, hops []Hop, opts Options) (*conn, error) {
	if len(hops) == 0 {
		return nil, nil
	}
	key := chainKey(hops)
	for {
		e, mine, err := j.entry(key)
		if err != nil {
			return nil, err
		}
		if mine {
			e.conn, e.err = j.dial(ctx, host, hops, opts)
			if e.err != nil {
				j.drop(key, e)
			}
			close(e.ready)
			return e.conn, e.err
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, &HopError{Host: host, Hop: hops[len(hops)-1].ID, Addr: hops[len(hops)-1].Addr(), Stage: StageConnect, Err: context.Cause(ctx)}
		}
		if e.err != nil {
			// The one who dialled gave up for its own reasons: dial anew.
			if (errors.Is(e.err, context.Canceled) || errors.Is(e.err, context.DeadlineExceeded)) && ctx.Err() == nil {
				continue
			}
			return nil, forHost(e.err, host)
		}
		select {
		case <-e.conn.lost:
			j.drop(key, e)
			e.conn.close()
		default:
			return e.conn, nil
		}
	}
}

// dial connects to the last of hops. The jump before it may be lost without being known to be:
// then it is reached again, once.
func (j *Jumps) dial(ctx context.Context, host string, hops []Hop, opts Options) (*conn, error) {
	last := len(hops) - 1
	for again := true; ; again = false {
		via, err := j.reach(ctx, host, hops[:last], opts)
		if err != nil {
			return nil, err
		}
		c, err := dialHop(ctx, host, hops[last], via, opts)
		if err == nil || !again || via == nil || !dropped(err) || ctx.Err() != nil || !via.ends() {
			return c, err
		}
	}
}

var errJumpsClosed = errors.New("jump connections are closed")

func (j *Jumps) entry(key string) (e *jump, mine bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, false, errJumpsClosed
	}
	if e = j.conns[key]; e != nil {
		return e, false, nil
	}
	e = &jump{ready: make(chan struct{})}
	j.conns[key] = e
	return e, true, nil
}

func (j *Jumps) drop(key string, e *jump) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.conns[key] == e {
		delete(j.conns, key)
	}
}

// forHost returns a shared error as one of this host.
func forHost(err error, host string) error {
	var hop *HopError
	if !errors.As(err, &hop) {
		return err
	}
	own := *hop
	own.Host = host
	return &own
}

// chainKey tells chains apart by all that decides where they lead and as whom.
func chainKey(hops []Hop) string {
	var b strings.Builder
	for _, h := range hops {
		fmt.Fprintf(&b, "%q %q %q %q %q %q %q", h.ID, h.Addr(), h.User, h.Alias, h.Pins, h.KnownHosts, h.Agent)
		for _, id := range h.Identities {
			fmt.Fprintf(&b, " %q", id.Path)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
