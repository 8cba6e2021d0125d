package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Limits of opening one hop.
const (
	// handshakeTries covers servers that drop connections while too many are starting (MaxStartups).
	handshakeTries = 4
	handshakeWait  = 100 * time.Millisecond // before the second try; doubles
)

// errSilent replaces the expiry of a connect timeout, which is not the caller's deadline.
var errSilent = errors.New("no answer in time")

// dialHop connects and authenticates one hop, through via unless nil.
func dialHop(ctx context.Context, host string, h Hop, via *conn, opts Options) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, opts.ConnectTimeout, fmt.Errorf("%w: %s", errSilent, opts.ConnectTimeout))
	defer cancel()
	v, err := newVerifier(h)
	if err != nil {
		return nil, &HopError{Host: host, Hop: h.ID, Addr: h.Addr(), Stage: StageHostKey, Err: err}
	}
	wait := handshakeWait
	for try := 1; ; try++ {
		a := attempt{host: host, hop: h, via: via, verifier: v, opts: opts}
		c, err := a.run(ctx)
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, a.fail(context.Cause(ctx))
		case v.again(err):
			try--
			continue
		case a.stage != StageHandshake || try >= handshakeTries || !dropped(err):
			return nil, err
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
			return nil, err
		}
	}
}

// dropped reports whether a server closed the connection without a word.
func dropped(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// attempt is one try to reach a hop.
type attempt struct {
	host     string
	hop      Hop
	via      *conn
	verifier *verifier
	opts     Options
	stage    Stage
}

func (a *attempt) fail(err error) error {
	return &HopError{Host: a.host, Hop: a.hop.ID, Addr: a.hop.Addr(), Stage: a.stage, Err: err}
}

func (a *attempt) run(ctx context.Context) (*conn, error) {
	a.stage = StageConnect
	raw, err := a.connect(ctx)
	if err != nil {
		var dns *net.DNSError
		if errors.As(err, &dns) {
			a.stage = StageResolve
		}
		return nil, a.fail(err)
	}
	a.stage = StageHandshake
	m := &meter{Conn: raw}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	creds := &credentials{hop: a.hop}
	defer creds.close()
	a.verifier.failure, a.verifier.passed = nil, nil
	cc, channels, requests, err := ssh.NewClientConn(m, a.hop.Addr(), &ssh.ClientConfig{
		User: a.hop.User, Auth: creds.methods(), HostKeyCallback: a.verifier.check,
		HostKeyAlgorithms: a.verifier.algorithms(), ClientVersion: "SSH-2.0-narwhal",
	})
	if !stop() && err == nil {
		err = context.Cause(ctx)
		_ = cc.Close()
	}
	if err != nil {
		_ = raw.Close()
		return nil, a.explain(err, creds)
	}
	return newConn(a, m, ssh.NewClient(cc, channels, requests)), nil
}

// explain finds the stage of a failed handshake by what had happened before.
func (a *attempt) explain(err error, creds *credentials) error {
	if key := a.verifier.translate(err); key != nil {
		a.stage = StageHostKey
		return a.fail(key)
	}
	if a.verifier.passed != nil {
		a.stage = StageAuth
		if dropped(err) {
			return a.fail(err)
		}
		return a.fail(&AuthError{User: a.hop.User, Tried: creds.tried, Problems: creds.problems, Err: err})
	}
	return a.fail(err)
}

func (a *attempt) connect(ctx context.Context) (net.Conn, error) {
	if a.via != nil {
		return a.via.client.DialContext(ctx, "tcp", a.hop.Addr())
	}
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	return d.DialContext(ctx, "tcp", a.hop.Addr())
}

// meter counts the bytes read, so that traffic counts as a sign of life.
type meter struct {
	net.Conn
	in atomic.Int64
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.in.Add(int64(n))
	return n, err
}
