package standby

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/narwhal-fleet/narwhal/runtime/router/lease"
	"github.com/narwhal-fleet/narwhal/runtime/router/lease/conformance"
)

const (
	ttl    = 5 * time.Second
	margin = time.Second
	every  = time.Second
)

// wire is a machine without a network: connections are pipes.
type wire struct {
	mu     sync.Mutex
	queue  chan net.Conn
	closed chan struct{}
	once   sync.Once
	down   bool // nothing listens
	silent bool // nothing answers: connecting hangs
	open   []net.Conn
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	down, silent := w.down, w.silent
	near, far := net.Pipe()
	w.open = append(w.open, far)
	w.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	select {
	case w.queue <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.queue:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func (w *wire) Addr() net.Addr { return &net.TCPAddr{} }

// kill is what the kernel does for a process that ended.
func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, c := range w.open {
		_ = c.Close()
	}
}

// world is a primary that serves, and a standby that follows it, in a bubble.
type world struct {
	*wire
	t       *testing.T
	store   *conformance.Memory
	keeper  *lease.Keeper // of the primary
	doc     Document
	handler atomic.Value // http.HandlerFunc in place of the two routes; nil func = them
	control atomic.Bool
	mu      sync.Mutex
	did     []string
	applied Document
	stored  time.Time // when the last document's writer was well
	fits    error
	age     string // of what a standby between passes on
	opened  *lease.Keeper
	apply   func(context.Context) error
	verify  func(context.Context) error
	options Options
	own     lease.Lease
	cancel  context.CancelFunc
	result  chan error
}

// inBubble runs f with a primary that holds epoch 1 and a standby that has seen it.
func inBubble(t *testing.T, change func(*world), f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{wire: &wire{queue: make(chan net.Conn), closed: make(chan struct{})}, t: t, store: new(conformance.Memory), result: make(chan error, 1)}
		w.control.Store(true)
		w.handler.Store(http.HandlerFunc(w.serve))
		l := w.store.Lease("router-a:0", ttl, margin)
		term, err := l.Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.keeper = lease.Keep(l, term, every)
		w.doc = NewDocument()
		w.doc.Epoch, w.doc.Holder, w.doc.Counters.Served = 1, "router-a:0", 7
		w.own = w.store.Lease("router-b:0", ttl, margin)
		w.options = Options{Primary: "http://router-a:8000", Interval: DefaultInterval, Misses: DefaultMisses, MaxAge: DefaultMaxAge, Renew: every}
		if change != nil {
			change(w)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) { w.handler.Load().(http.HandlerFunc)(rw, q) })}
		var wg sync.WaitGroup
		wg.Go(func() { _ = server.Serve(w.wire) })
		s, err := build(w.options, w.own, w, w.wire.dial)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.cancel = cancel
		wg.Go(func() { w.result <- s.Run(ctx) })
		time.Sleep(10 * DefaultInterval)
		synctest.Wait()
		f(w)
		cancel()
		w.keeper.Stop(nil)
		w.kill()
		_ = server.Close()
		if w.opened != nil {
			w.opened.Stop(nil)
			<-w.opened.Done()
		}
		wg.Wait()
	})
}

func (w *world) serve(rw http.ResponseWriter, q *http.Request) {
	switch q.URL.Path {
	case "/ready":
		if w.control.Load() {
			_, _ = rw.Write([]byte(`{"status": "ready", "control_ready": true}`))
			return
		}
		rw.WriteHeader(http.StatusServiceUnavailable)
		_, _ = rw.Write([]byte(`{"status": "not_ready", "control_ready": false}`))
	case "/narwhal/handoff":
		if w.age != "" {
			rw.Header().Set(AgeHeader, w.age)
		}
		b, err := w.doc.Encode()
		if err != nil {
			rw.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = rw.Write(b)
	}
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if what != "store" || len(w.did) == 0 || w.did[len(w.did)-1] != what {
		w.did = append(w.did, what)
	}
}

func (w *world) Apply(ctx context.Context, d Document) error {
	w.note("apply")
	w.applied = d
	if w.apply != nil {
		return w.apply(ctx)
	}
	return nil
}

func (w *world) Verify(ctx context.Context) error {
	w.note("verify")
	if w.verify != nil {
		return w.verify(ctx)
	}
	return nil
}

func (w *world) Open(k *lease.Keeper) { w.note("open"); w.opened = k }
func (w *world) Block(reason string)  { w.note("block " + reason) }
func (w *world) Fits(Document) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fits
}

func (w *world) Store(_ Document, at time.Time) error {
	w.note("store")
	w.stored = at
	return nil
}
func (w *world) stopRenewing()          { w.keeper.Stop(nil); <-w.keeper.Done() }
func (w *world) use(h http.HandlerFunc) { w.handler.Store(h) }

// end waits until Run returned, and tells how long that took.
func (w *world) end() (time.Duration, error) {
	from := time.Now()
	err := <-w.result
	return time.Since(from), err
}

// after lets time pass and compares what the local router was told since the start.
func (w *world) after(d time.Duration, want ...string) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.did, want) {
		w.t.Errorf("after %v the local router was told %q, want %q", d, w.did, want)
	}
}

var errTest = errors.New("engine d0 is unknown")
