package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Defaults of Options, and limits of a connection.
const (
	DefaultConnectTimeout = 10 * time.Second
	DefaultMaxOutput      = 1 << 20 // bytes of each of stdout and stderr
	keepaliveInterval     = time.Second
	keepaliveMisses       = 2
	// maxSessions stays below OpenSSH's default of 10, since a session that has just ended counts
	// until both sides have closed it.
	maxSessions = 8
	// openTries and openWait bound the repetition of a session that the server would not open yet.
	openTries = 8
	openWait  = 10 * time.Millisecond // before the second try; doubles
)

// Options are how a host is worked on. The zero value is usable.
type Options struct {
	// Policy sees every operation before it begins; an error refuses it.
	Policy func(Operation) error
	// Trace sees every operation after it has ended. It is called from the operation's goroutine.
	Trace func(Operation, Outcome)
	// ConnectTimeout bounds each hop, from name lookup to the end of authentication.
	ConnectTimeout time.Duration
	// MaxOutput bounds the bytes kept of stdout, and of stderr, where a command sets none.
	MaxOutput int
	// Jumps shares connections to jump hosts; nil makes the host's own.
	Jumps *Jumps
	// KeepaliveInterval and KeepaliveMisses say when a silent connection is given up: 1 s and 2.
	KeepaliveInterval time.Duration
	KeepaliveMisses   int
	// Now is the clock of durations; nil is time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = DefaultConnectTimeout
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	if o.KeepaliveInterval <= 0 {
		o.KeepaliveInterval = keepaliveInterval
	}
	if o.KeepaliveMisses <= 0 {
		o.KeepaliveMisses = keepaliveMisses
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Host is an open connection to one host. Its methods may be called concurrently.
type Host struct {
	id    string
	opts  Options
	conn  *conn
	own   *Jumps // jump connections that end with this host, nil when shared
	slots chan struct{}

	// background holds what outlives its operation: sessions that a server does not close.
	background sync.WaitGroup

	filesGate chan struct{} // held while files is looked at or made
	files     *sftp.Client  // opened when first needed; holds one slot

	mu    sync.Mutex
	paths map[string]*sync.Mutex
}

// Open connects to the host through its hops. The caller closes it. Errors are *HopError, which
// wraps *UnknownHostKeyError, *ChangedHostKeyError or *AuthError where one is the cause.
func Open(ctx context.Context, cfg Config, opts Options) (*Host, error) {
	if len(cfg.Hops) == 0 {
		return nil, &HopError{Host: cfg.ID, Hop: cfg.ID, Stage: StageResolve, Err: errors.New("no hop is configured")}
	}
	h := &Host{id: cfg.ID, opts: opts.withDefaults(), slots: make(chan struct{}, maxSessions),
		filesGate: make(chan struct{}, 1), paths: map[string]*sync.Mutex{}}
	jumps := opts.Jumps
	if jumps == nil {
		h.own = NewJumps()
		jumps = h.own
	}
	var err error
	if h.conn, err = jumps.dial(ctx, cfg.ID, cfg.Hops, h.opts); err != nil {
		if h.own != nil {
			_ = h.own.Close()
		}
		return nil, err
	}
	return h, nil
}

// ID is the host's id in the fleet.
func (h *Host) ID() string { return h.id }

// HopInfo is what is known of one hop after it was reached.
type HopInfo struct {
	ID            string
	Addr          string
	User          string
	KeyType       string
	Fingerprint   string // of the accepted host key
	ServerVersion string // as the server says, printable
}

// Hops describes the way to the host, the host itself last.
func (h *Host) Hops() []HopInfo {
	var out []HopInfo
	for c := h.conn; c != nil; c = c.via {
		out = append([]HopInfo{{
			ID: c.hop.ID, Addr: c.hop.Addr(), User: c.hop.User, KeyType: c.key.Type(),
			Fingerprint: ssh.FingerprintSHA256(c.key), ServerVersion: printable(string(c.client.ServerVersion())),
		}}, out...)
	}
	return out
}

// Lost is closed when the connection has ended, Close included.
func (h *Host) Lost() <-chan struct{} { return h.conn.lost }

// Err is nil while the connection lives, then a *LostError.
func (h *Host) Err() error {
	select {
	case <-h.conn.lost:
		return h.lostError()
	default:
		return nil
	}
}

// lostError describes the end of the connection, which has happened.
func (h *Host) lostError() *LostError {
	c := h.conn.dead()
	return &LostError{Host: h.id, Hop: c.hop.ID, Err: c.cause}
}

// Close ends the connection; commands that are running on it end too. It waits for the
// connection's goroutines.
func (h *Host) Close() error {
	h.conn.close()
	h.background.Wait()
	if h.own != nil {
		return h.own.Close()
	}
	return nil
}

// ended returns why an operation cannot go on: the caller's context, or a lost connection.
func (h *Host) ended(ctx context.Context) error {
	if err := h.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// acquire takes a session slot; the caller calls release.
func (h *Host) acquire(ctx context.Context) error {
	if err := h.ended(ctx); err != nil {
		return err
	}
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-h.conn.lost:
	}
	return h.ended(ctx)
}

func (h *Host) release() { <-h.slots }

// session opens a session in a slot that is held, waiting briefly for a server that still
// counts sessions which have ended.
func (h *Host) session(ctx context.Context) (*ssh.Session, error) {
	wait := openWait
	for try := 1; ; try++ {
		s, err := h.conn.client.NewSession()
		if err == nil {
			return s, nil
		}
		var refused *ssh.OpenChannelError
		if !errors.As(err, &refused) {
			return nil, h.channelError(err)
		}
		if try == openTries || refused.Reason == ssh.Prohibited {
			return nil, h.channelError(err)
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-h.conn.lost:
			return nil, h.lostError()
		}
	}
}

// channelError is the error of a channel that was not opened: a loss where there is one. A
// connection that fails under a channel is about to be seen as lost.
func (h *Host) channelError(err error) error {
	var refused *ssh.OpenChannelError
	if !errors.As(err, &refused) {
		select {
		case <-h.conn.lost:
			return h.lostError()
		case <-time.After(parentGrace):
		}
	}
	return &HopError{Host: h.id, Hop: h.id, Addr: h.conn.hop.Addr(), Stage: StageChannel, Err: err}
}

func (h *Host) wrap(what, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s on host %s: %w", what, printable(path), h.id, err)
}
